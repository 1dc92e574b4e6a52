#include <cstdint>
#include <cuda_runtime.h>

__device__ __forceinline__ float gelu_of(float v) {
    return 0.5f * v * (1.0f + tanhf(0.7978845608f * (v + 0.044715f * v * v * v)));
}

constexpr int THREADS = 256, EACH = 4, TILE = THREADS * EACH;

__global__ void gelu_kernel(const float* x, float* y, int64_t n) {
    __shared__ float in[TILE], out[TILE];
    const int64_t start = static_cast<int64_t>(blockIdx.x) * TILE;
    for (int j = threadIdx.x; j < TILE && start + j < n; j += THREADS) in[j] = x[start + j];
    __syncthreads();
    for (int k = 0; k < EACH; ++k) {
        const int j = EACH * threadIdx.x + k;
        if (start + j < n) out[j] = gelu_of(in[j]);
    }
    __syncthreads();
    for (int j = threadIdx.x; j < TILE && start + j < n; j += THREADS) y[start + j] = out[j];
}

extern "C" void gelu(const float* x, float* y, int64_t n, cudaStream_t stream) {
    if (n > 0) gelu_kernel<<<(n + TILE - 1) / TILE, THREADS, 0, stream>>>(x, y, n);
}
