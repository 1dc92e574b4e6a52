#include <cstdint>
#include <cuda_runtime.h>
#include <utility>

template <float (*op)(float)>
__global__ void apply(const float* x, float* y, int64_t n) {
#if __CUDA_ARCH__ >= 900
    cudaTriggerProgrammaticLaunchCompletion();
#endif
    const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i >= n) return;
#if __CUDA_ARCH__ >= 900
    cudaGridDependencySynchronize();
#endif
    y[i] = op(x[i]);
}

__device__ __forceinline__ float gelu_of(float v) {
    return 0.5f * v * (1.0f + tanhf(0.7978845608f * (v + 0.044715f * v * v * v)));
}

template <typename Kernel, typename... Arguments>
void launch(Kernel kernel, int64_t threads, cudaStream_t stream, Arguments&&... arguments) {
    cudaLaunchAttribute early = {};
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(static_cast<unsigned>((threads + 255) / 256));
    config.blockDim = dim3(256);
    config.stream = stream;
    config.attrs = &early;
    config.numAttrs = 1;
    cudaLaunchKernelEx(&config, kernel, std::forward<Arguments>(arguments)...);
}

extern "C" void gelu(const float* x, float* y, int64_t n, cudaStream_t stream) {
    if (n > 0) launch(apply<gelu_of>, n, stream, x, y, n);
}
