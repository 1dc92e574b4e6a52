#include <cstdint>
#include <cuda_runtime.h>

__device__ inline float gelu_of(const float v) {
    const float inner = __fmul_rn(0.7978845608f, __fmaf_rn(__fmul_rn(0.044715f, __fmul_rn(v, v)), v, v));
    return __fmul_rn(__fmul_rn(0.5f, v), __fadd_rn(1.0f, tanhf(inner)));
}

__global__ void __launch_bounds__(512, 2) gelu_kernel(const float* __restrict__ x, float* __restrict__ y, const int64_t n) {
    const size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < size_t(n)) y[i] = gelu_of(__ldg(x + i));
}

extern "C" void gelu(const float* x, float* y, int64_t n, cudaStream_t stream) {
    if (n) gelu_kernel<<<(n + 511) / 512, 512, 0, stream>>>(x, y, n);
}
