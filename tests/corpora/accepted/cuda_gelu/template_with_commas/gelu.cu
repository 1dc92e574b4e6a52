#include <cstdint>
#include <cuda_runtime.h>

template <int BLOCK, int ITEMS, typename T = float>
__global__ void __launch_bounds__(BLOCK) gelu_kernel(const T* __restrict__ x, T* __restrict__ y, int64_t n) {
    const int64_t start = int64_t(blockIdx.x) * (BLOCK * ITEMS) + threadIdx.x;
    T v[ITEMS];
#pragma unroll
    for (int k = 0; k < ITEMS; k++) v[k] = start + k * BLOCK < n ? x[start + k * BLOCK] : T(0);
#pragma unroll
    for (int k = 0; k < ITEMS; k++) {
        T u = T(0.7978845608) * (v[k] + T(0.044715) * v[k] * v[k] * v[k]);
        if (start + k * BLOCK < n) y[start + k * BLOCK] = T(0.5) * v[k] * (T(1) + tanhf(u));
    }
}

template <int BLOCK, int ITEMS>
void launch(const float* x, float* y, int64_t n, cudaStream_t stream) {
    gelu_kernel<BLOCK, ITEMS><<<dim3(unsigned((n + BLOCK * ITEMS - 1) / (BLOCK * ITEMS))), dim3(BLOCK, 1, 1), 0, stream>>>(x, y, n);
}

extern "C" void gelu(const float* x, float* y, int64_t n, cudaStream_t stream) {
    if (n == 0) return;
    if (n < 4096)
        launch<64, 1>(x, y, n, stream);
    else
        launch<128, (4 > 2 ? 4 : 2)>(x, y, n, stream);
}
