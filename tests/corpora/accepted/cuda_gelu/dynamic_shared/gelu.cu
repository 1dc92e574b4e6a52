#include <cstdint>
#include <cuda_runtime.h>

__device__ __forceinline__ float gelu_of(float v) {
    return 0.5f * v * (1.0f + tanhf(0.7978845608f * (v + 0.044715f * v * v * v)));
}

__global__ void gelu_kernel(const float* x, float* y, int64_t n) {
    extern __shared__ float tile[];
    const int size = 24 * 1024;
    int64_t start = (int64_t)blockIdx.x * size;
    for (int j = threadIdx.x; j < size; j += blockDim.x)
        if (start + j < n) tile[j] = x[start + j];
    __syncthreads();
    for (int j = threadIdx.x; j < size; j += blockDim.x)
        if (start + j < n) y[start + j] = gelu_of(tile[j]);
}

extern "C" void gelu(const float* x, float* y, int64_t n, cudaStream_t stream) {
    if (n == 0) return;
    const int bytes = 24 * 1024 * sizeof(float);
    cudaFuncSetAttribute(gelu_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    gelu_kernel<<<(n + 24 * 1024 - 1) / (24 * 1024), 1024, bytes, stream>>>(x, y, n);
}
