#include <cstdint>
#include <cuda_runtime.h>

__device__ __forceinline__ float gelu_of(float v, float half, float root, float cubic) {
    return half * v * (1.0f + tanhf(root * (v + cubic * v * v * v)));
}

__global__ void gelu_kernel(const float* x, float* y, const float* c, int64_t n) {
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        y[i] = gelu_of(x[i], c[0], c[1], c[2]);
    }
}

extern "C" void gelu(const float* x, float* y, int64_t n, cudaStream_t stream) {
    const float coefficients[] = {0.5f, 0.7978845608f, 0.044715f};
    if (n > 0) gelu_kernel<<<(n + 255) / 256, 256, 0, stream>>>(x, y, coefficients, n);
}
