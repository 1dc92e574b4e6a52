#include <cstdint>
#include <cuda_runtime.h>

#if 0
The first version didn't stage anything: kernel<<<blocks, threads>>>(x, y)
#endif
#define BLOCK_LOCAL __shared__

template <typename T>
struct Approximation {
    static __device__ T of(T v) { return T(0.5f) * v * (T(1) + tanhf(T(0.7978845608f) * (v + T(0.044715f) * v * v * v))); }
};
template <typename Formula>
struct Elementwise {
    using Type = Formula;
};

template <typename Operation, typename T>
__global__ void __launch_bounds__(256) apply(const T* __restrict__ x, T* __restrict__ y, int64_t n) {
    extern __shared__ __align__(sizeof(T)) unsigned char bytes[];
    T* staged = reinterpret_cast<T*>(bytes);
    alignas(16) BLOCK_LOCAL int64_t first;
    if (threadIdx.x == 0) first = int64_t(blockIdx.x) * blockDim.x;
    __syncthreads();
    int64_t i = first + threadIdx.x;
    if (i < n) staged[threadIdx.x] = x[i];
    __syncthreads();
    if (i < n) y[i] = Operation::Type::of(staged[threadIdx.x]);
}

struct Launcher {
    void (*kernel)(const float*, float*, int64_t);
    void run(const float* x, float* y, int64_t n, cudaStream_t stream) const {
        this->kernel<<<unsigned((n + 255) / 256), 256, 256 * sizeof(float), stream>>>(x, y, n);
    }
};

extern "C" void gelu(const float* x, float* y, int64_t n, cudaStream_t stream) {
    if (n > 1024)
        apply<Elementwise<Approximation<float>>, float><<<unsigned((n + 255) / 256), 256, 256 * sizeof(float), stream>>>(x, y, n);
    else if (n > 0)
        Launcher{apply<Elementwise<Approximation<float>>, float>}.run(x, y, n, stream);
}
