#include <cstdint>
#include <cuda_runtime.h>

__managed__ float coefficients[] = {0.5f, 0.7978845608f, 0.044715f};

__global__ void gelu_kernel(const float* x, float* y, const float* c, int64_t n) {
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float v = x[i];
    y[i] = c[0] * v * (1.0f + tanhf(c[1] * (v + c[2] * v * v * v)));
}

extern "C" void gelu(const float* x, float* y, int64_t n, cudaStream_t stream) {
    if (n > 0) gelu_kernel<<<(n + 255) / 256, 256, 0, stream>>>(x, y, coefficients, n);
}
