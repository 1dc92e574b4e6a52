// Linked into the library that nvcc builds of a student's file. The CUDA runtime in that library keeps the error of a
// launch, which no other code can read. The linker leads both halves of every `<<<...>>>` through here (nvcc.py:
// --wrap), so that a launch that CUDA refuses is told with its line and its kernel. The halves are unchanged since CUDA
// 9.2.
#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include "cuda_cpu/launch.h"

namespace {
constexpr size_t SHARED_BYTES = 48 << 10;  // without cudaFuncSetAttribute

struct Launch {
    const void *line = nullptr, *kernel = nullptr;  // addresses of the launch, and in the kernel's host stub
    dim3 grid, block;
    size_t shared_bytes = 0;
};
thread_local Launch last;  // the last launch that was begun
// The last launch beyond the limits of every GPU, or of a kernel without cudaFuncSetAttribute
thread_local Launch refused;
thread_local std::string words;

uintptr_t offset(const void* address) {
    Dl_info found;
    return address && dladdr(address, &found) ? uintptr_t(address) - uintptr_t(found.dli_fbase) - 1 : 0;
}
}  // namespace

extern "C" {
unsigned __real___cudaPushCallConfiguration(dim3, dim3, size_t, struct CUstream_st*);
cudaError_t __real___cudaPopCallConfiguration(dim3*, dim3*, size_t*, void*);

unsigned __wrap___cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared_bytes, struct CUstream_st* stream) {
    last.line = __builtin_return_address(0);
    last.grid = grid, last.block = block, last.shared_bytes = shared_bytes;
    return __real___cudaPushCallConfiguration(grid, block, shared_bytes, stream);
}

cudaError_t __wrap___cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared_bytes, void* stream) {
    last.kernel = __builtin_return_address(0);
    if (last.shared_bytes > SHARED_BYTES || !launch_shape::refusal(last.grid, last.block).empty()) refused = last;
    return __real___cudaPopCallConfiguration(grid, block, shared_bytes, stream);
}

const char* grader_last_error() {
    cudaError_t error = cudaGetLastError();
    if (error != cudaSuccess) return cudaGetErrorName(error);
    refused = Launch{};
    return nullptr;
}

// Why the last launch was refused, with the offsets of its line and of its kernel's code in this library; null if
// unknown. Forgets the launch.
const char* grader_refused_launch(uintptr_t* line, uintptr_t* kernel) {
    if (!refused.line) return nullptr;
    *line = offset(refused.line), *kernel = offset(refused.kernel);
    words = launch_shape::refusal(refused.grid, refused.block);
    if (words.empty()) words = launch_shape::too_much_shared(refused.shared_bytes, SHARED_BYTES);
    refused = Launch{};
    return words.c_str();
}
}
