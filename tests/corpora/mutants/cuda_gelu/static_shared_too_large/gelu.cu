#include <cstdint>
#include <cuda_runtime.h>

__device__ float gelu_of(float v) {
    return 0.5f * v * (1.0f + tanhf(0.7978845608f * (v + 0.044715f * v * v * v)));
}

__global__ void gelu_kernel(const float* x, float* y, int64_t n) {
    __shared__ float tile[16384];
    int64_t start = (int64_t)blockIdx.x * 16384;
    for (int j = threadIdx.x; j < 16384; j += blockDim.x)
        if (start + j < n) tile[j] = x[start + j];
    __syncthreads();
    for (int j = threadIdx.x; j < 16384; j += blockDim.x)
        if (start + j < n) y[start + j] = gelu_of(tile[j]);
}

extern "C" void gelu(const float* x, float* y, int64_t n, cudaStream_t stream) {
    if (n == 0) return;
    gelu_kernel<<<(n + 16383) / 16384, 256, 0, stream>>>(x, y, n);
}
