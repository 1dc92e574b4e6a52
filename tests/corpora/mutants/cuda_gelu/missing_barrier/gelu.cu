#include <cstdint>
#include <cuda_runtime.h>

__device__ float gelu_of(float v) {
    return 0.5f * v * (1.0f + tanhf(0.7978845608f * (v + 0.044715f * v * v * v)));
}

#define THREADS 1024

__global__ void gelu_kernel(const float* x, float* y, int64_t n) {
    __shared__ float tile[4 * THREADS];
    int64_t start = (int64_t)blockIdx.x * 4 * THREADS;
    for (int k = 0; k < 4; k++) {
        int j = 4 * threadIdx.x + k;
        if (start + j < n) tile[j] = gelu_of(x[start + j]);
    }
    for (int k = 0; k < 4; k++) {
        int j = k * THREADS + threadIdx.x;
        if (start + j < n) y[start + j] = tile[j];
    }
}

extern "C" void gelu(const float* x, float* y, int64_t n, cudaStream_t stream) {
    if (n == 0) return;
    gelu_kernel<<<(n + 4 * THREADS - 1) / (4 * THREADS), THREADS, 0, stream>>>(x, y, n);
}
