#include <cstdint>
#include <cuda_runtime.h>

__device__ __forceinline__ float gelu_of(float v) {
    return 0.5f * v * (1.0f + tanhf(0.7978845608f * (v + 0.044715f * v * v * v)));
}

__global__ void gelu_kernel(const float* x, float* y, int64_t n) {
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (2 * i >= n) return;
    if (2 * i + 1 < n && ((uintptr_t)(x + 2 * i) & 7) == 0 && ((uintptr_t)(y + 2 * i) & 7) == 0) {
        const float2 v = ((const float2*)x)[i];
        ((float2*)y)[i] = {gelu_of(v.x), gelu_of(v.y)};
        return;
    }
    y[2 * i] = gelu_of(x[2 * i]);
    if (2 * i + 1 < n) y[2 * i + 1] = gelu_of(x[2 * i + 1]);
}

extern "C" void gelu(const float* x, float* y, int64_t n, cudaStream_t stream) {
    if (n > 0) gelu_kernel<<<(n + 191) / 192, 96, 0, stream>>>(x, y, n);
}
