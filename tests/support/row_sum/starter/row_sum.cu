#include <cstdint>

#include <cuda_runtime.h>

#error "row_sum is not implemented yet: delete this line when it is"

extern "C" void row_sum(const float* x, float* y, int64_t rows, int64_t cols, cudaStream_t stream) {}
