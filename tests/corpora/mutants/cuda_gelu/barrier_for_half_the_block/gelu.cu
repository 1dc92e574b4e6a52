#include <cstdint>
#include <cuda_runtime.h>

__device__ float gelu_of(float v) {
    return 0.5f * v * (1.0f + tanhf(0.7978845608f * (v + 0.044715f * v * v * v)));
}

__global__ void gelu_kernel(const float* x, float* y, int64_t n) {
    __shared__ float tile[256];
    int64_t start = (int64_t)blockIdx.x * 256;
    int t = threadIdx.x;
    if (t < 128) {
        if (start + t < n) tile[t] = gelu_of(x[start + t]);
        if (start + t + 128 < n) tile[t + 128] = gelu_of(x[start + t + 128]);
        __syncthreads();
    }
    if (start + t < n) y[start + t] = tile[t];
}

extern "C" void gelu(const float* x, float* y, int64_t n, cudaStream_t stream) {
    if (n == 0) return;
    gelu_kernel<<<(n + 255) / 256, 256, 0, stream>>>(x, y, n);
}
