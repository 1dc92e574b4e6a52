#include <cstdint>
#include <cuda_runtime.h>

__device__ __forceinline__ float gelu_of(float v) {
    return 0.5f * v * (1.0f + tanhf(0.7978845608f * (v + 0.044715f * v * v * v)));
}

__global__ void vector_kernel(const float4* x, float4* y, int64_t n4) {
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n4) {
        float4 v = x[i];
        v.x = gelu_of(v.x); v.y = gelu_of(v.y); v.z = gelu_of(v.z); v.w = gelu_of(v.w);
        y[i] = v;
    }
}

__global__ void scalar_kernel(const float* x, float* y, int64_t begin, int64_t n) {
    int64_t i = begin + (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = gelu_of(x[i]);
}

extern "C" void gelu(const float* x, float* y, int64_t n, cudaStream_t stream) {
    bool aligned = (uintptr_t)x % 16 == 0;
    int64_t n4 = aligned ? n / 4 : 0;
    if (n4 > 0) vector_kernel<<<(n4 + 255) / 256, 256, 0, stream>>>((const float4*)x, (float4*)y, n4);
    if (4 * n4 < n) scalar_kernel<<<(n - 4 * n4 + 255) / 256, 256, 0, stream>>>(x, y, 4 * n4, n);
}
