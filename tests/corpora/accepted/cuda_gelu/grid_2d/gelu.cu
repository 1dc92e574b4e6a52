#include <cstdint>
#include <cuda_runtime.h>

__device__ __forceinline__ float gelu_of(float v) {
    return 0.5f * v * (1.0f + tanhf(0.7978845608f * (v + 0.044715f * v * v * v)));
}

__global__ void gelu_kernel(const float* x, float* y, int64_t n) {
    int64_t block = blockIdx.x + (int64_t)gridDim.x * blockIdx.y;
    int64_t i = block * (blockDim.x * blockDim.y) + threadIdx.y * blockDim.x + threadIdx.x;
    if (i >= n) return;
    y[i] = gelu_of(x[i]);
}

extern "C" void gelu(const float* x, float* y, int64_t n, cudaStream_t stream) {
    if (!n) return;
    const dim3 block(32, 8);
    const int64_t blocks = (n + 255) / 256;
    dim3 grid;
    grid.x = blocks < 4096 ? blocks : 4096;
    grid.y = (blocks + grid.x - 1) / grid.x;
    gelu_kernel<<<grid, block, 0, stream>>>(x, y, n);
}
