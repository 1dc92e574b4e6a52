// GeLU in CUDA.
//
//     gelu(x) = 0.5 · x · (1 + tanh(√(2/π) · (x + 0.044715 · x³)))
//
// the tanh form of Hendrycks & Gimpel 2016, arXiv 1606.08415, section 2.
//
// What is checked
//   - float32; any n ≥ 0: 0, 1, a number that is no multiple of anything, more than 2³¹
//   - x and y at any float address: not always a multiple of 16 bytes (think of x[1:])
//   - the result is finite for every finite x, 3e38 included
//   - everything runs on the stream that you are given, and nothing is written outside y[0] … y[n-1]
//   - speed: one read and one write of every element is all the traffic that this needs
//
// Build it as the grader does:
//   nvcc -shared -Xcompiler -fPIC -O3 -arch=sm_90 -o gelu.so gelu.cu       (sm_86, sm_89 …: your GPU)
//
// If you know PyTorch's C++ extensions better, `torch::Tensor gelu(torch::Tensor x)` is accepted in place of
// the extern "C" function. It takes about 40 seconds to build instead of one.

#include <cstdint>

#include <cuda_runtime.h>

#error "gelu is not implemented yet: work through TODO 1 to 5, then delete this line"

// TODO 1: the function of one number. Mind the types of your literals: 0.5 is a double, 0.5f is not, and
//         tanh and tanhf differ in the same way. What happens to x³ at x = 1e20, and is that harmless?
__device__ float gelu_of(float x) {
    return x;
}

// x, y: n floats each, in device memory.
__global__ void gelu_kernel(const float* x, float* y, int64_t n) {
    // TODO 2: which element is this thread's? How large can that index get, and which type holds it?
    // TODO 3: not every thread has an element (n is rarely a multiple of the block size), and there may be
    //         more elements than threads. Apply gelu_of to those that are this thread's.
}

// x, y: n floats each in device memory, not overlapping; n ≥ 0. Returns once the work is queued on `stream`.
extern "C" void gelu(const float* x, float* y, int64_t n, cudaStream_t stream) {
    // TODO 4: choose the number of threads and blocks, and launch gelu_kernel on `stream`. A launch of 0
    //         blocks is an error: what is to happen for n = 0? No cudaDeviceSynchronize here: the caller
    //         decides when to wait.
    // TODO 5: when it is right, make it fast. Compare with a copy of the same size. Could a thread ask memory
    //         for more than one float at a time, and what does that require of the addresses?
}
