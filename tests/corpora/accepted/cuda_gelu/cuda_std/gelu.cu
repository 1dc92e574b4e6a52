#include <cuda/cmath>
#include <cuda/std/cmath>
#include <cuda/std/cstdint>
#include <cuda_runtime.h>

using index_t = cuda::std::int64_t;

__device__ float gelu_of(float v) {
    return 0.5f * v * (1.0f + cuda::std::tanh(0.7978845608f * (v + 0.044715f * v * v * v)));
}

__global__ void gelu_kernel(const float* x, float* y, index_t n) {
    index_t i = index_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < n) y[i] = gelu_of(x[i]);
}

extern "C" void gelu(const float* x, float* y, index_t n, cudaStream_t stream) {
    constexpr int threads = 256;
    if (n > 0) gelu_kernel<<<cuda::ceil_div(n, threads), threads, 0, stream>>>(x, y, n);
}
