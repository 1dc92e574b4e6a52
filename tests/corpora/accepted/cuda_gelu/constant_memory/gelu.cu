#include <cstdint>
#include <cuda_runtime.h>

__constant__ float constants[3] = {0.5f, 0.7978845608f, 0.044715f};

__global__ void gelu_kernel(const float* x, float* y, int64_t n) {
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        float v = x[i];
        y[i] = constants[0] * v * (1.0f + tanhf(constants[1] * (v + constants[2] * v * v * v)));
    }
}

extern "C" void gelu(const float* x, float* y, int64_t n, cudaStream_t stream) {
    if (n == 0) return;
    gelu_kernel<<<(n + 255) / 256, 256, 0, stream>>>(x, y, n);
}
