#include <ATen/ATen.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAGuard.h>
#include <torch/extension.h>

#include <vector>

#define CHECK_CUDA(x) TORCH_CHECK(x.is_cuda(), #x " must be a CUDA tensor")
#define CHECK_CONTIGUOUS(x) TORCH_CHECK(x.is_contiguous(), #x " must be contiguous")
#define CHECK_INPUT(x) \
    CHECK_CUDA(x);     \
    CHECK_CONTIGUOUS(x)

template <typename scalar_t>
__device__ __forceinline__ scalar_t gelu_of(scalar_t v) {
    const scalar_t inner = static_cast<scalar_t>(0.7978845608028654) * (v + static_cast<scalar_t>(0.044715) * v * v * v);
    return static_cast<scalar_t>(0.5) * v * (static_cast<scalar_t>(1) + tanh(inner));
}

template <typename scalar_t>
__global__ void gelu_kernel(const torch::PackedTensorAccessor64<scalar_t, 1, torch::RestrictPtrTraits> x,
                            torch::PackedTensorAccessor64<scalar_t, 1, torch::RestrictPtrTraits> y) {
    const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < x.size(0)) y[i] = gelu_of(x[i]);
}

torch::Tensor gelu_cuda(const torch::Tensor& x) {
    CHECK_INPUT(x);
    const at::cuda::OptionalCUDAGuard device_guard(device_of(x));
    const auto options = torch::TensorOptions().dtype(x.dtype()).device(x.device());
    auto y = torch::empty({x.numel()}, options);
    if (x.numel() == 0) return y.reshape(x.sizes());
    const auto flat = x.view({-1});
    const dim3 threads(256), blocks((x.numel() + threads.x - 1) / threads.x);
    AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "gelu_cuda", ([&] {
        gelu_kernel<scalar_t><<<blocks, threads, 0, at::cuda::getCurrentCUDAStream()>>>(
            flat.packed_accessor64<scalar_t, 1, torch::RestrictPtrTraits>(),
            y.packed_accessor64<scalar_t, 1, torch::RestrictPtrTraits>());
    }));
    AT_CUDA_CHECK(cudaGetLastError());
    return y.view(x.sizes());
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
    m.def("gelu", &gelu_cuda, "GeLU, tanh form (CUDA)", py::arg("x"));
}
