#include <cstdint>
#include <cuda_runtime.h>

__device__ __forceinline__ float gelu_of(float v) {
    return 0.5f * v * (1.0f + tanhf(0.7978845608f * (v + 0.044715f * v * v * v)));
}

template <bool VECTOR>
__global__ void gelu_kernel(const float* x, float* y, int64_t n) {
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if constexpr (VECTOR) {
        if (4 * i + 3 < n) {
            alignas(16) float v[4];
            *reinterpret_cast<float4*>(v) = reinterpret_cast<const float4*>(x)[i];
            for (int k = 0; k < 4; k++) v[k] = gelu_of(v[k]);
            reinterpret_cast<float4*>(y)[i] = *reinterpret_cast<const float4*>(v);
        } else {
            for (int64_t j = 4 * i; j < n; j++) y[j] = gelu_of(x[j]);
        }
    } else {
        for (int64_t j = 4 * i; j < n && j < 4 * i + 4; j++) y[j] = gelu_of(x[j]);
    }
}

extern "C" void gelu(const float* x, float* y, int64_t n, cudaStream_t stream) {
    if (n == 0) return;
    bool aligned = (reinterpret_cast<uintptr_t>(x) | reinterpret_cast<uintptr_t>(y)) % sizeof(float4) == 0;
    auto kernel = aligned ? &gelu_kernel<true> : &gelu_kernel<false>;
    kernel<<<(n + 1023) / 1024, 256, 0, stream>>>(x, y, n);
}
