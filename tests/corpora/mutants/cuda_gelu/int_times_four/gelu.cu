#include <cstdint>
#include <cuda_runtime.h>

__device__ float gelu_of(float v) {
    return 0.5f * v * (1.0f + tanhf(0.7978845608f * (v + 0.044715f * v * v * v)));
}

__global__ void gelu_kernel(const float* x, float* y, int64_t n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    for (int k = 0; k < 4; k++)
        if (4 * i + k < n) y[4 * i + k] = gelu_of(x[4 * i + k]);
}

extern "C" void gelu(const float* x, float* y, int64_t n, cudaStream_t stream) {
    if (n == 0) return;
    gelu_kernel<<<(n + 1023) / 1024, 256, 0, stream>>>(x, y, n);
}
