// Linked into the library that nvcc builds of a student's file. The CUDA runtime in that library keeps the error of a
// launch, which no other code can read. The linker leads both halves of every `<<<...>>>` through here (nvcc.py:
// --wrap), so that a launch that CUDA refuses is told with its line and its kernel; and the registration of every
// kernel, so that all can be loaded before the first launch. These functions are unchanged since CUDA 9.2.
#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <vector>

#include "launch.h"

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

// The host stubs of the kernels. In a function, for kernels are registered before this file's variables are made.
std::vector<const void*>& kernels() {
    static std::vector<const void*> registered;
    return registered;
}
}  // namespace

extern "C" {
unsigned __real___cudaPushCallConfiguration(dim3, dim3, size_t, struct CUstream_st*);
cudaError_t __real___cudaPopCallConfiguration(dim3*, dim3*, size_t*, void*);
void __real___cudaRegisterFunction(void**, const char*, char*, const char*, int, uint3*, uint3*, dim3*, dim3*, int*);

void __wrap___cudaRegisterFunction(
    void** binary, const char* stub, char* name, const char* symbol, int threads, uint3* tid, uint3* bid, dim3* block,
    dim3* grid, int* warp
) {
    kernels().push_back(stub);
    __real___cudaRegisterFunction(binary, stub, name, symbol, threads, tid, bid, block, grid, warp);
}

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

// Load every kernel, and return how many there are. Otherwise CUDA loads a kernel in its first launch, and that one runs
// after all work that is queued then, on whatever stream (measured on an H200).
int grader_load_kernels() {
    bool is_pending = cudaPeekAtLastError() != cudaSuccess;  // of a launch while the library was loaded, to be told
    cudaFuncAttributes unused;
    for (const void* stub : kernels()) cudaFuncGetAttributes(&unused, stub);
    if (!is_pending) cudaGetLastError();  // a kernel that cannot be loaded says so when it is launched
    return int(kernels().size());
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
