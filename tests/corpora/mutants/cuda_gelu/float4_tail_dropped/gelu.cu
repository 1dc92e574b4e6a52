#include <cstdint>
#include <cuda_runtime.h>

__device__ float gelu_of(float v) {
    return 0.5f * v * (1.0f + tanhf(0.7978845608f * (v + 0.044715f * v * v * v)));
}

__global__ void gelu_kernel(const float4* x, float4* y, int64_t n4) {
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n4) {
        float4 v = x[i];
        y[i] = make_float4(gelu_of(v.x), gelu_of(v.y), gelu_of(v.z), gelu_of(v.w));
    }
}

extern "C" void gelu(const float* x, float* y, int64_t n, cudaStream_t stream) {
    int64_t n4 = n / 4;
    if (n4 > 0) gelu_kernel<<<(n4 + 255) / 256, 256, 0, stream>>>((const float4*)x, (float4*)y, n4);
}
