#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/types.h>

namespace {

constexpr int kThreads = 128;

__device__ float gelu_of(float v) { return 0.5f * v * (1.0f + tanhf(0.7978845608f * (v + 0.044715f * v * v * v))); }

__global__ void by_fours(const float4* __restrict__ x, float4* __restrict__ y, int64_t fours) {
    const int64_t i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x;
    if (i >= fours) return;
    const float4 v = x[i];
    y[i] = make_float4(gelu_of(v.x), gelu_of(v.y), gelu_of(v.z), gelu_of(v.w));
}

__global__ void one_by_one(const float* x, float* y, int64_t first, int64_t n) {
    const int64_t i = first + blockIdx.x * int64_t(blockDim.x) + threadIdx.x;
    if (i < n) y[i] = gelu_of(x[i]);
}

unsigned blocks_for(int64_t items) { return static_cast<unsigned>((items + kThreads - 1) / kThreads); }

}  // namespace

torch::Tensor gelu(const torch::Tensor& x) {
    TORCH_CHECK(x.scalar_type() == at::kFloat && x.device().type() == at::kCUDA, "float32 on a GPU, not ", x.options().dtype());
    const auto stream = c10::cuda::getCurrentCUDAStream(x.device().index()).stream();
    auto y = torch::zeros_like(x);
    const int64_t n = x.numel();
    const auto address = reinterpret_cast<uintptr_t>(x.const_data_ptr<float>());
    const int64_t fours = address % 16 == 0 ? n / 4 : 0;
    if (fours) {
        by_fours<<<blocks_for(fours), kThreads, 0, stream>>>(reinterpret_cast<const float4*>(x.const_data_ptr<float>()),
                                                             reinterpret_cast<float4*>(y.mutable_data_ptr<float>()), fours);
        C10_CUDA_KERNEL_LAUNCH_CHECK();
    }
    if (const int64_t left = n - 4 * fours; left > 0) {
        one_by_one<<<blocks_for(left), kThreads, 0, stream>>>(x.data_ptr<float>(), y.data_ptr<float>(), 4 * fours, n);
        C10_CUDA_KERNEL_LAUNCH_CHECK();
    }
    return y;
}
