#include <cstdint>
#include <cuda_runtime.h>

__global__ void cube_kernel(const float* x, float* y, int64_t n) {
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = 0.7978845608f * (x[i] + 0.044715f * x[i] * x[i] * x[i]);
}

__global__ void tanh_kernel(float* y, int64_t n) {
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = 1.0f + tanhf(y[i]);
}

__global__ void product_kernel(const float* x, float* y, int64_t n) {
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = 0.5f * x[i] * y[i];
}

extern "C" void gelu(const float* x, float* y, int64_t n, cudaStream_t stream) {
    if (n == 0) return;
    int64_t blocks = (n + 255) / 256;
    cube_kernel<<<blocks, 256, 0, stream>>>(x, y, n);
    tanh_kernel<<<blocks, 256, 0, stream>>>(y, n);
    product_kernel<<<blocks, 256, 0, stream>>>(x, y, n);
}
