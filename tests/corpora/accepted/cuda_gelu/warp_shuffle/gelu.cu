#include <cstdint>
#include <cuda_runtime.h>

__device__ __forceinline__ float gelu_of(float v) {
    return 0.5f * v * (1.0f + tanhf(0.7978845608f * (v + 0.044715f * v * v * v)));
}

__global__ void gelu_kernel(const float* x, float* y, int64_t n) {
    int lane = threadIdx.x & 31;
    int64_t first = 0;
    if (lane == 0) first = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    first = __shfl_sync(0xffffffff, first, 0);
    float v = first + lane < n ? x[first + lane] : 0.0f;
    float mirrored = __shfl_xor_sync(0xffffffff, v, 31);
    v = __shfl_xor_sync(0xffffffff, mirrored, 31);
    if (first + lane < n) y[first + lane] = gelu_of(v);
}

extern "C" void gelu(const float* x, float* y, int64_t n, cudaStream_t stream) {
    if (n == 0) return;
    gelu_kernel<<<(n + 255) / 256, 256, 0, stream>>>(x, y, n);
}
