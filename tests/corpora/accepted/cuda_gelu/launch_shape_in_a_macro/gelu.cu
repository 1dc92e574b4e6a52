#include <cstdint>
#include <cstdio>
#include <cuda_runtime.h>

#define THREADS 256
#define KERNEL __global__ void __launch_bounds__(THREADS)
// The editor's parser does not know launches.
#ifdef __INTELLISENSE__
#define SHAPE(blocks, threads, stream)
#else
#define SHAPE(blocks, threads, stream) <<<blocks, threads, 0, stream>>>
#endif

__device__ __forceinline__ float gelu_of(float v) {
    return 0.5f * v * (1.0f + tanhf(0.7978845608f * (v + 0.044715f * v * v * v)));
}

KERNEL gelu_kernel(const float* x, float* y, int64_t n) {
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = gelu_of(x[i]);
}

KERNEL gelu_pair_kernel(const float* x, float* y, int64_t n) {
    int64_t i = 2 * ((int64_t)blockIdx.x * blockDim.x + threadIdx.x);
    if (i < n) y[i] = gelu_of(x[i]);
    if (i + 1 < n) y[i + 1] = gelu_of(x[i + 1]);
}

extern "C" void gelu(const float* x, float* y, int64_t n, cudaStream_t stream) {
    int64_t half = n / 2, rest = n - half;
    if (half) gelu_kernel SHAPE((half + THREADS - 1) / THREADS, THREADS, stream)(x, y, half);
    if (rest) {
#ifdef IN_SINGLES
        gelu_kernel<<<(rest + THREADS - 1) / THREADS, THREADS, 0, stream>>>
#else
        gelu_pair_kernel<<<(rest + 2 * THREADS - 1) / (2 * THREADS), THREADS, 0, stream>>>
#endif
            (x + half, y + half, rest);
    }
    enum cudaError error = cudaGetLastError();
    cudaError_t same = error;
    if (cudaError seen = same) printf("%s\n", cudaGetErrorString(seen));
}
