#include <cmath>
#include <cstdint>
#include <cuda_runtime.h>

#define M_SQRT_2_PI 0.79788456080286535588

__global__ void gelu_kernel(const float* x, float* y, int64_t n) {
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < n; i += (int64_t)blockDim.x * gridDim.x) {
        double v = x[i];
        y[i] = 0.5 * v * (1 + tanh(M_SQRT_2_PI * (v + 0.044715 * pow(v, 3))));
    }
}

extern "C" void gelu(const float* x, float* y, int64_t n, cudaStream_t stream) {
    if (n == 0) return;
    gelu_kernel<<<(n + 255) / 256, 256, 0, stream>>>(x, y, n);
}
