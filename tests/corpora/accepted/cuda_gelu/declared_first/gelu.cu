#include <stdint.h>
#include <cuda_runtime.h>
#include <math_constants.h>

#define CEIL_DIV(a, b) (((a) + (b) - 1) / (b))

static __global__ void gelu_kernel(const float* x, float* y, size_t n, const float scale);

extern "C" {

void gelu(const float* x, float* y, int64_t n, cudaStream_t stream) {
    if (n == 0)
        return;
    const int threads = 1024;
    gelu_kernel<<<CEIL_DIV(n, threads), threads, 0, stream>>>(
        x, y,  // device
        n, CUDART_SQRT_2_OVER_PI_F);
}

}

static __global__ void gelu_kernel(const float* x, float* y, size_t n, const float scale) {
    const uint3 t = threadIdx;
    const size_t i = (size_t)blockIdx.x * blockDim.x + t.x;
    if (i >= n) return;
    const float v = x[i], cube = v * v * v;
    y[i] = v * 0.5f * (1.0f + tanhf(scale * (v + 0.044715f * cube)));
}
