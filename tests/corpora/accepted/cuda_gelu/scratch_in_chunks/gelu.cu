#include <algorithm>
#include <cstdio>
#include <cstdint>
#include <cuda_runtime.h>

__device__ __forceinline__ float gelu_of(float v) {
    return 0.5f * v * (1.0f + tanhf(0.7978845608f * (v + 0.044715f * v * v * v)));
}

#define CHECK(call)                                                                  \
    do {                                                                             \
        cudaError_t error = (call);                                                  \
        if (error != cudaSuccess) {                                                  \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, cudaGetErrorString(error)); \
            return;                                                                  \
        }                                                                            \
    } while (0)

__global__ void gelu_kernel(const float* x, float* y, int64_t n) {
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = gelu_of(x[i]);
}

extern "C" void gelu(const float* x, float* y, int64_t n, cudaStream_t stream) {
    const int64_t chunk = int64_t(1) << 24;
    if (n == 0) return;
    float* scratch = nullptr;
    CHECK(cudaMallocAsync(&scratch, std::min(n, chunk) * sizeof(float), stream));
    for (int64_t start = 0; start < n; start += chunk) {
        int64_t size = std::min(chunk, n - start);
        gelu_kernel<<<(size + 255) / 256, 256, 0, stream>>>(x + start, scratch, size);
        CHECK(cudaGetLastError());
        CHECK(cudaMemcpyAsync(y + start, scratch, size * sizeof(float), cudaMemcpyDeviceToDevice, stream));
    }
    CHECK(cudaFreeAsync(scratch, stream));
}
