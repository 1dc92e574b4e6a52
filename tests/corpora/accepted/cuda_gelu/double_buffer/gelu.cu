#include <algorithm>
#include <cstdint>
#include <cuda_runtime.h>

__device__ __forceinline__ float gelu_of(float v) {
    return 0.5f * v * (1.0f + tanhf(0.7978845608f * (v + 0.044715f * v * v * v)));
}

constexpr int TILE = 256;

__global__ void gelu_kernel(const float* x, float* y, int64_t n) {
    __shared__ float buffer[2][TILE];
    const int64_t tiles = (n + TILE - 1) / TILE;
    const int t = threadIdx.x;
    auto load = [&](int which, int64_t tile) {
        if (tile * TILE + t < n) buffer[which][t] = x[tile * TILE + t];
    };
    int which = 0;
    load(0, blockIdx.x);
    __syncthreads();
    for (int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        load(which ^ 1, tile + gridDim.x);
        const int mine = TILE - 1 - t;
        if (tile * TILE + mine < n) y[tile * TILE + mine] = gelu_of(buffer[which][mine]);
        __syncthreads();
        which ^= 1;
    }
}

extern "C" void gelu(const float* x, float* y, int64_t n, cudaStream_t stream) {
    if (n == 0) return;
    gelu_kernel<<<std::min<int64_t>((n + TILE - 1) / TILE, 264), TILE, 0, stream>>>(x, y, n);
}
