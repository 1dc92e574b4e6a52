#include <ATen/ceil_div.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAMathCompat.h>
#include <c10/util/Load.h>
#include <torch/extension.h>

#define DISPATCH(type, name, ...)                                      \
    AT_DISPATCH_SWITCH(type, name,                                     \
                       AT_DISPATCH_CASE(at::ScalarType::Float, __VA_ARGS__) \
                       AT_DISPATCH_CASE(at::ScalarType::Half, __VA_ARGS__))

constexpr int kThreads = 4 * C10_WARP_SIZE, kVector = 4;

template <typename T>
struct alignas(kVector * sizeof(T)) Vector {
    T at[kVector];
};

template <typename T>
struct Gelu {
    C10_HOST_DEVICE T operator()(T x) const {
        const float v = static_cast<float>(x);
        return static_cast<T>(0.5f * v * (1.0f + c10::cuda::compat::tanh(0.7978845608f * (v + 0.044715f * v * v * v))));
    }
};

template <typename T, typename Op>
C10_LAUNCH_BOUNDS_1(kThreads)
__global__ void apply(const T* x, T* y, int64_t n, bool aligned, Op op) {
    const int64_t first = kVector * (int64_t(blockIdx.x) * blockDim.x + threadIdx.x);
    if (aligned && first + kVector <= n) {
        auto vector = *reinterpret_cast<const Vector<T>*>(x + first);
#pragma unroll
        for (int i = 0; i < kVector; i++) vector.at[i] = op(vector.at[i]);
        *reinterpret_cast<Vector<T>*>(y + first) = vector;
        return;
    }
    for (int64_t i = first; i < first + kVector && i < n; i++) y[i] = op(c10::load(x + i));
}

torch::Tensor gelu(torch::Tensor x) {
    auto y = torch::empty_like(x);
    if (x.numel() == 0) return y;
    auto stream = at::cuda::getCurrentCUDAStream();
    const auto blocks = at::ceil_div(x.numel(), int64_t(kVector * kThreads));
    DISPATCH(x.scalar_type(), "gelu", [&] {
        const auto* from = x.const_data_ptr<scalar_t>();
        auto* to = y.mutable_data_ptr<scalar_t>();
        const bool aligned = (reinterpret_cast<uintptr_t>(from) | reinterpret_cast<uintptr_t>(to)) % sizeof(Vector<scalar_t>) == 0;
        apply<<<blocks, kThreads, 0, stream>>>(from, to, x.numel(), aligned, Gelu<scalar_t>());
    });
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return y;
}
