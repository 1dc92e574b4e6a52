#include <cstdint>
#include <cuda_runtime.h>

__device__ __forceinline__ float gelu_of(float v) {
    return 0.5f * v * (1.0f + tanhf(0.7978845608f * (v + 0.044715f * v * v * v)));
}

__global__ void scalar_kernel(const float* __restrict__ x, float* __restrict__ y, int64_t n) {
    int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < n) y[i] = gelu_of(x[i]);
}

__global__ void vector_kernel(const float* __restrict__ x, float* __restrict__ y, int64_t n, int head) {
    int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    int64_t vectors = (n - head) / 4;
    const float4* x4 = reinterpret_cast<const float4*>(x + head);
    float4* y4 = reinterpret_cast<float4*>(y + head);
    if (i < vectors) {
        float4 v = __ldcs(&x4[i]);
        v.x = gelu_of(v.x);
        v.y = gelu_of(v.y);
        v.z = gelu_of(v.z);
        v.w = gelu_of(v.w);
        __stcs(&y4[i], v);
    }
    int64_t tail = head + 4 * vectors;
    if (i < head) y[i] = gelu_of(x[i]);
    if (i < n - tail) y[tail + i] = gelu_of(x[tail + i]);
}

extern "C" void gelu(const float* x, float* y, int64_t n, cudaStream_t stream) {
    if (n == 0) return;
    uintptr_t ax = (uintptr_t)x % 16, ay = (uintptr_t)y % 16;
    if (ax != ay) {
        scalar_kernel<<<(n + 255) / 256, 256, 0, stream>>>(x, y, n);
        return;
    }
    int head = (int)((16 - ax) % 16 / 4);
    if (head > n) head = (int)n;
    int64_t vectors = (n - head) / 4;
    vector_kernel<<<(vectors + 255) / 256 + 1, 256, 0, stream>>>(x, y, n, head);
}
