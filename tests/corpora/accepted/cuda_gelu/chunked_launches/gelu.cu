#include <cstdint>
#include <cuda_runtime.h>

__device__ __forceinline__ float gelu_of(float v) {
    return 0.5f * v * (1.0f + tanhf(0.7978845608f * (v + 0.044715f * v * v * v)));
}

__global__ void gelu_kernel(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = gelu_of(x[i]);
}

extern "C" void gelu(const float* x, float* y, int64_t n, cudaStream_t stream) {
    const int64_t chunk = 1LL << 30;
    for (int64_t start = 0; start < n; start += chunk) {
        int size = int(n - start < chunk ? n - start : chunk);
        gelu_kernel<<<(size + 127) / 128, 128, 0, stream>>>(x + start, y + start, size);
    }
}
