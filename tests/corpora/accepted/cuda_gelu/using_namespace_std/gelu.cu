#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iostream>
#include <cuda_runtime.h>
using namespace std;

__device__ float my_tanh(float u) {
    float e = exp(-2.0f * abs(u));
    float t = (1.0f - e) / (1.0f + e);
    return u < 0 ? -t : t;
}

__device__ float gelu_of(float v) {
    return 0.5f * v * (1.0f + my_tanh(0.7978845608f * (v + 0.044715f * v * v * v)));
}

__global__ void gelu_kernel(const float* x, float* y, int64_t n) {
    int64_t stride = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride) y[i] = gelu_of(x[i]);
}

extern "C" void gelu(const float* x, float* y, int64_t n, cudaStream_t stream) {
    if (n == 0) return;
    int64_t blocks = max(min((n + 255) / 256, (int64_t)4096), (int64_t)1);
    gelu_kernel<<<blocks, 256, 0, stream>>>(x, y, n);
    cudaError_t err = cudaGetLastError();
    if (err != cudaSuccess) cerr << "launch: " << cudaGetErrorString(err) << endl;
}
