#include <cooperative_groups.h>
#include <cstdint>
#include <cub/block/block_reduce.cuh>
#include <cuda_fp8.h>
#include <cuda_runtime.h>
#include <mma.h>

__global__ void gelu_kernel(const float* x, float* y, int64_t n) {
    const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < n) {
        const float u = 0.7978845608f * (x[i] + 0.044715f * x[i] * x[i] * x[i]);
        y[i] = 0.5f * x[i] * (1.0f + tanhf(u));
    }
}

extern "C" void gelu(const float* x, float* y, int64_t n, cudaStream_t stream) {
    if (n > 0) gelu_kernel<<<unsigned((n + 127) / 128), 128, 0, stream>>>(x, y, n);
}
