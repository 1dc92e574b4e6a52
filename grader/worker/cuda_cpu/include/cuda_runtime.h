// The CUDA runtime as a CPU stands in for it: what a kernel and its launcher may use, with the grid, block and thread semantics of
// a device. Compiled with the student's file after `rewrite.py`; the other half is runtime.cpp. Not a GPU's speed, nor its memory
// model: threads run one after another, in an order that is chosen to be adverse, and every access to memory is looked at.
#pragma once

#include <algorithm>
#include <climits>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <type_traits>
#include <utility>

#define __global__
#define __device__
#define __host__
#define __constant__
#define __managed__
#define __grid_constant__
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __align__(n) alignas(n)
#define __CUDACC__ 1
#define __CUDA_ARCH__ 900
#define CUDART_VERSION 13000
#define CUDART_INF_F INFINITY
#define CUDART_NAN_F NAN
#define CUDART_PI_F 3.141592654f

using uint = unsigned int;
using uchar = unsigned char;
using ushort = unsigned short;
using ulong = unsigned long;

// Vector types: aligned as a device's, so that a misaligned one is found.
#define CUDA_CPU_VECTOR(T, name, align2, align4)                                                                                       \
    struct name##1 { T x; };                                                                                                          \
    struct alignas(align2) name##2 { T x, y; };                                                                                       \
    struct name##3 { T x, y, z; };                                                                                                    \
    struct alignas(align4) name##4 { T x, y, z, w; };                                                                                 \
    static inline name##1 make_##name##1(T x) { return {x}; }                                                                         \
    static inline name##2 make_##name##2(T x, T y) { return {x, y}; }                                                                 \
    static inline name##3 make_##name##3(T x, T y, T z) { return {x, y, z}; }                                                         \
    static inline name##4 make_##name##4(T x, T y, T z, T w) { return {x, y, z, w}; }
CUDA_CPU_VECTOR(char, char, 2, 4)
CUDA_CPU_VECTOR(unsigned char, uchar, 2, 4)
CUDA_CPU_VECTOR(short, short, 4, 8)
CUDA_CPU_VECTOR(unsigned short, ushort, 4, 8)
CUDA_CPU_VECTOR(int, int, 8, 16)
CUDA_CPU_VECTOR(unsigned int, uint, 8, 16)
CUDA_CPU_VECTOR(long long, longlong, 16, 16)
CUDA_CPU_VECTOR(unsigned long long, ulonglong, 16, 16)
CUDA_CPU_VECTOR(float, float, 8, 16)
CUDA_CPU_VECTOR(double, double, 16, 16)
#undef CUDA_CPU_VECTOR

struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
    constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
    constexpr operator uint3() const { return {x, y, z}; }
};

enum cudaError_t {
    cudaSuccess = 0,
    cudaErrorInvalidValue = 1,
    cudaErrorMemoryAllocation = 2,
    cudaErrorInvalidConfiguration = 9,
    cudaErrorInvalidDevicePointer = 17,
    cudaErrorInvalidMemcpyDirection = 21,
    cudaErrorLaunchOutOfResources = 701,
    cudaErrorIllegalAddress = 700,
    cudaErrorMisalignedAddress = 716,
    cudaErrorLaunchFailure = 719,
    cudaErrorNotSupported = 801,
};
enum cudaMemcpyKind { cudaMemcpyHostToHost, cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost, cudaMemcpyDeviceToDevice, cudaMemcpyDefault };
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize = 8, cudaFuncAttributePreferredSharedMemoryCarveout = 9 };
enum cudaDeviceAttr {
    cudaDevAttrMaxThreadsPerBlock = 1,
    cudaDevAttrMaxSharedMemoryPerBlock = 8,
    cudaDevAttrWarpSize = 10,
    cudaDevAttrMultiProcessorCount = 16,
    cudaDevAttrMaxThreadsPerMultiProcessor = 39,
    cudaDevAttrComputeCapabilityMajor = 75,
    cudaDevAttrComputeCapabilityMinor = 76,
    cudaDevAttrMaxSharedMemoryPerBlockOptin = 97,
};
struct cudaDeviceProp {
    char name[256];
    size_t totalGlobalMem, sharedMemPerBlock, sharedMemPerBlockOptin, sharedMemPerMultiprocessor;
    int regsPerBlock, warpSize, maxThreadsPerBlock, maxThreadsDim[3], maxGridSize[3];
    int major, minor, multiProcessorCount, maxThreadsPerMultiProcessor, maxBlocksPerMultiProcessor, l2CacheSize, memoryBusWidth;
};
using cudaStream_t = struct CUstream_st*;
using cudaEvent_t = struct CUevent_st*;
#define cudaStreamDefault 0
#define cudaStreamNonBlocking 1
#define cudaStreamLegacy ((cudaStream_t)1)
#define cudaStreamPerThread ((cudaStream_t)2)

extern "C" {
cudaError_t cudaMalloc(void** pointer, size_t bytes);
cudaError_t cudaFree(void* pointer);
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind);
cudaError_t cudaMemset(void* to, int value, size_t bytes);
cudaError_t cudaGetLastError();
cudaError_t cudaPeekAtLastError();
const char* cudaGetErrorName(cudaError_t error);
const char* cudaGetErrorString(cudaError_t error);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device);
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device);
cudaError_t cuda_cpu_allow_shared(size_t bytes);
}
template <class T> cudaError_t cudaMalloc(T** pointer, size_t bytes) { return cudaMalloc(reinterpret_cast<void**>(pointer), bytes); }
template <class T> cudaError_t cudaMallocAsync(T** pointer, size_t bytes, cudaStream_t) { return cudaMalloc(pointer, bytes); }
static inline cudaError_t cudaFreeAsync(void* pointer, cudaStream_t) { return cudaFree(pointer); }
static inline cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t = nullptr) {
    return cudaMemcpy(to, from, bytes, kind);
}
static inline cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t = nullptr) { return cudaMemset(to, value, bytes); }
template <class T>
cudaError_t cudaMemcpyToSymbol(T& symbol, const void* from, size_t bytes, size_t offset = 0, cudaMemcpyKind = cudaMemcpyHostToDevice) {
    std::memcpy(reinterpret_cast<char*>(&symbol) + offset, from, bytes);
    return cudaSuccess;
}
static inline cudaError_t cudaDeviceSynchronize() { return cudaPeekAtLastError(); }
static inline cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaPeekAtLastError(); }
static inline cudaError_t cudaStreamCreate(cudaStream_t* stream) { return *stream = nullptr, cudaSuccess; }
static inline cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) { return *stream = nullptr, cudaSuccess; }
static inline cudaError_t cudaStreamDestroy(cudaStream_t) { return cudaSuccess; }
static inline cudaError_t cudaGetDevice(int* device) { return *device = 0, cudaSuccess; }
static inline cudaError_t cudaSetDevice(int) { return cudaSuccess; }
static inline cudaError_t cudaGetDeviceCount(int* count) { return *count = 1, cudaSuccess; }
template <class Kernel> cudaError_t cudaFuncSetAttribute(Kernel, cudaFuncAttribute attribute, int value) {
    return attribute == cudaFuncAttributeMaxDynamicSharedMemorySize ? cuda_cpu_allow_shared(value) : cudaSuccess;
}
template <class Kernel> cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, Kernel, int threads, size_t) {
    return *blocks = threads > 0 ? std::max(1, 2048 / threads) : 0, cudaSuccess;
}
template <class Kernel> cudaError_t cudaOccupancyMaxPotentialBlockSize(int* grid, int* block, Kernel, size_t = 0, int = 0) {
    return *grid = 264, *block = 1024, cudaSuccess;
}

namespace cuda_cpu {
struct Config {
    int line;
    const char* name;
    dim3 grid, block;
    size_t shared_bytes;
};
extern "C" {
void cuda_cpu_run(const Config* config, void (*entry)(void*), void* closure);
void* cuda_cpu_static_shared(const char* name, int line, size_t bytes, size_t alignment);
void* cuda_cpu_dynamic_shared();
uint3 cuda_cpu_thread_index() __attribute__((const));
uint3 cuda_cpu_block_index() __attribute__((const));
uint3 cuda_cpu_block_size() __attribute__((const));
uint3 cuda_cpu_grid_size() __attribute__((const));
int cuda_cpu_barrier(int value);  // number of threads that brought a value other than 0
void cuda_cpu_warp(unsigned mask, uint64_t value, uint64_t* inbox, unsigned* arrived, const char* what);
int cuda_cpu_lane();
void cuda_cpu_atomic(const void* address, size_t bytes);
void cuda_cpu_fence();
[[noreturn]] void cuda_cpu_trap(const char* what);
}
inline void* static_shared(const char* name, int line, size_t bytes, size_t alignment) {
    return cuda_cpu_static_shared(name, line, bytes, alignment);
}
inline void* dynamic_shared() { return cuda_cpu_dynamic_shared(); }

template <class Body> struct Launch {
    Config config;
    Body body;
    template <class... Arguments> void operator()(Arguments... arguments) {
        auto once = [&] { body(arguments...); };
        cuda_cpu_run(&config, [](void* closure) { (*static_cast<decltype(once)*>(closure))(); }, &once);
    }
};
template <class Body> Launch<Body> launch(int line, const char* name, Body body, dim3 grid, dim3 block, size_t shared = 0, cudaStream_t = nullptr) {
    return {{line, name, grid, block, shared}, body};
}

template <class T> uint64_t to_bits(T value) {
    static_assert(sizeof(T) <= 8, "warp functions take values of up to 8 bytes");
    uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof value);
    return bits;
}
template <class T> T from_bits(uint64_t bits) {
    T value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}
template <class T> T shuffle(unsigned mask, T value, int source, bool valid, const char* what) {
    uint64_t inbox[32];
    unsigned arrived = 0;
    cuda_cpu_warp(mask, to_bits(value), inbox, &arrived, what);
    return valid && (arrived >> source & 1) ? from_bits<T>(inbox[source]) : value;
}
}  // namespace cuda_cpu

#define threadIdx (::cuda_cpu::cuda_cpu_thread_index())
#define blockIdx (::cuda_cpu::cuda_cpu_block_index())
#define blockDim (::cuda_cpu::cuda_cpu_block_size())
#define gridDim (::cuda_cpu::cuda_cpu_grid_size())
static constexpr int warpSize = 32;

#define __syncthreads() ((void)::cuda_cpu::cuda_cpu_barrier(0))
static inline int __syncthreads_count(int value) { return cuda_cpu::cuda_cpu_barrier(value != 0); }
static inline int __syncthreads_or(int value) { return cuda_cpu::cuda_cpu_barrier(value != 0) != 0; }
static inline int __syncthreads_and(int value) { return cuda_cpu::cuda_cpu_barrier(value == 0) == 0; }
static inline void __threadfence() { cuda_cpu::cuda_cpu_fence(); }
static inline void __threadfence_block() {}
static inline void __threadfence_system() { cuda_cpu::cuda_cpu_fence(); }
static inline void __trap() { cuda_cpu::cuda_cpu_trap("__trap()"); }
#undef assert
#define assert(condition) ((condition) ? (void)0 : ::cuda_cpu::cuda_cpu_trap("assert(" #condition ")"))

// Warps: 32 threads that meet.
static inline void __syncwarp(unsigned mask = 0xffffffffu) {
    uint64_t inbox[32];
    unsigned arrived;
    cuda_cpu::cuda_cpu_warp(mask, 0, inbox, &arrived, "__syncwarp");
}
template <class T> T __shfl_sync(unsigned mask, T value, int source, int width = 32) {
    int lane = cuda_cpu::cuda_cpu_lane(), base = lane & ~(width - 1);
    return cuda_cpu::shuffle(mask, value, base + (source & (width - 1)), true, "__shfl_sync");
}
template <class T> T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32) {
    int lane = cuda_cpu::cuda_cpu_lane(), source = lane - int(delta);
    return cuda_cpu::shuffle(mask, value, source & 31, source >= (lane & ~(width - 1)), "__shfl_up_sync");
}
template <class T> T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32) {
    int lane = cuda_cpu::cuda_cpu_lane(), source = lane + int(delta);
    return cuda_cpu::shuffle(mask, value, source & 31, source < (lane & ~(width - 1)) + width, "__shfl_down_sync");
}
template <class T> T __shfl_xor_sync(unsigned mask, T value, int bits, int width = 32) {
    int lane = cuda_cpu::cuda_cpu_lane(), source = lane ^ bits;
    return cuda_cpu::shuffle(mask, value, source & 31, source < (lane & ~(width - 1)) + width, "__shfl_xor_sync");
}
static inline unsigned __ballot_sync(unsigned mask, int predicate) {
    uint64_t inbox[32];
    unsigned arrived = 0, result = 0;
    cuda_cpu::cuda_cpu_warp(mask, predicate != 0, inbox, &arrived, "__ballot_sync");
    for (int lane = 0; lane < 32; lane++)
        if ((arrived >> lane & 1) && inbox[lane]) result |= 1u << lane;
    return result;
}
static inline int __any_sync(unsigned mask, int predicate) { return __ballot_sync(mask, predicate) != 0; }
static inline int __all_sync(unsigned mask, int predicate) { return __ballot_sync(mask, !predicate) == 0; }
template <class T, class Combine> T cuda_cpu_reduce(unsigned mask, T value, Combine combine) {
    uint64_t inbox[32];
    unsigned arrived = 0;
    cuda_cpu::cuda_cpu_warp(mask, cuda_cpu::to_bits(value), inbox, &arrived, "__reduce_sync");
    T result = value;
    bool first = true;
    for (int lane = 0; lane < 32; lane++)
        if (arrived >> lane & 1) {
            T other = cuda_cpu::from_bits<T>(inbox[lane]);
            result = first ? other : combine(result, other);
            first = false;
        }
    return result;
}
template <class T> T __reduce_add_sync(unsigned mask, T value) { return cuda_cpu_reduce(mask, value, [](T a, T b) { return T(a + b); }); }
template <class T> T __reduce_max_sync(unsigned mask, T value) { return cuda_cpu_reduce(mask, value, [](T a, T b) { return a > b ? a : b; }); }
template <class T> T __reduce_min_sync(unsigned mask, T value) { return cuda_cpu_reduce(mask, value, [](T a, T b) { return a < b ? a : b; }); }

// Atomics: each is one step, for threads change places only where they wait.
template <class T, class Change> __attribute__((no_sanitize("thread"))) T cuda_cpu_change(T* address, Change change) {
    cuda_cpu::cuda_cpu_atomic(address, sizeof(T));
    T old = *address;
    *address = change(old);
    return old;
}
template <class T> struct cuda_cpu_same { using type = T; };
#define CUDA_CPU_ATOMIC(name, expression)                                                                                              \
    template <class T> T name(T* address, typename cuda_cpu_same<T>::type value) {                                                    \
        return cuda_cpu_change(address, [&](T old) { return T(expression); });                                                        \
    }                                                                                                                                 \
    template <class T> T name##_block(T* address, typename cuda_cpu_same<T>::type value) { return name(address, value); }             \
    template <class T> T name##_system(T* address, typename cuda_cpu_same<T>::type value) { return name(address, value); }
CUDA_CPU_ATOMIC(atomicAdd, old + value)
CUDA_CPU_ATOMIC(atomicSub, old - value)
CUDA_CPU_ATOMIC(atomicMax, old > value ? old : value)
CUDA_CPU_ATOMIC(atomicMin, old < value ? old : value)
CUDA_CPU_ATOMIC(atomicExch, value)
CUDA_CPU_ATOMIC(atomicAnd, old & value)
CUDA_CPU_ATOMIC(atomicOr, old | value)
CUDA_CPU_ATOMIC(atomicXor, old ^ value)
CUDA_CPU_ATOMIC(atomicInc, old >= value ? 0 : old + 1)
CUDA_CPU_ATOMIC(atomicDec, old == 0 || old > value ? value : old - 1)
#undef CUDA_CPU_ATOMIC
template <class T> T atomicCAS(T* address, typename cuda_cpu_same<T>::type expected, typename cuda_cpu_same<T>::type value) {
    return cuda_cpu_change(address, [&](T old) { return old == expected ? value : old; });
}

// Arithmetic that CUDA knows and C++ does not, or by another name. Fast intrinsics are as exact as the CPU's functions.
template <class T> T __ldg(const T* address) { return *address; }
template <class T> T __ldcg(const T* address) { return *address; }
template <class T> T __ldcs(const T* address) { return *address; }
template <class T> void __stcs(T* address, T value) { *address = value; }
template <class T> void __stcg(T* address, T value) { *address = value; }
#define __expf cuda_cpu__expf
static inline float cuda_cpu__expf(float x) { return std::exp(x); }
#define __exp10f cuda_cpu__exp10f
static inline float cuda_cpu__exp10f(float x) { return std::pow(10.0f, x); }
#define __logf cuda_cpu__logf
static inline float cuda_cpu__logf(float x) { return std::log(x); }
#define __log2f cuda_cpu__log2f
static inline float cuda_cpu__log2f(float x) { return std::log2(x); }
#define __log10f cuda_cpu__log10f
static inline float cuda_cpu__log10f(float x) { return std::log10(x); }
#define __powf cuda_cpu__powf
static inline float cuda_cpu__powf(float x, float y) { return std::pow(x, y); }
#define __sinf cuda_cpu__sinf
static inline float cuda_cpu__sinf(float x) { return std::sin(x); }
#define __cosf cuda_cpu__cosf
static inline float cuda_cpu__cosf(float x) { return std::cos(x); }
#define __tanf cuda_cpu__tanf
static inline float cuda_cpu__tanf(float x) { return std::tan(x); }
static inline float __fdividef(float x, float y) { return x / y; }
static inline float __frcp_rn(float x) { return 1.0f / x; }
static inline float __fsqrt_rn(float x) { return std::sqrt(x); }
static inline float __frsqrt_rn(float x) { return 1.0f / std::sqrt(x); }
static inline float __fmaf_rn(float x, float y, float z) { return std::fma(x, y, z); }
static inline float __fadd_rn(float x, float y) { return x + y; }
static inline float __fsub_rn(float x, float y) { return x - y; }
static inline float __fmul_rn(float x, float y) { return x * y; }
static inline float __fdiv_rn(float x, float y) { return x / y; }
static inline float __saturatef(float x) { return x > 0 ? (x < 1 ? x : 1.0f) : 0.0f; }
static inline float rsqrtf(float x) { return 1.0f / std::sqrt(x); }
static inline double rsqrt(double x) { return 1.0 / std::sqrt(x); }
static inline float normcdff(float x) { return 0.5f * std::erfc(-x * 0.70710678118654752f); }
static inline int __float_as_int(float x) { return cuda_cpu::from_bits<int>(cuda_cpu::to_bits(x)); }
static inline unsigned __float_as_uint(float x) { return cuda_cpu::from_bits<unsigned>(cuda_cpu::to_bits(x)); }
static inline float __int_as_float(int x) { return cuda_cpu::from_bits<float>(cuda_cpu::to_bits(x)); }
static inline float __uint_as_float(unsigned x) { return cuda_cpu::from_bits<float>(cuda_cpu::to_bits(x)); }
static inline int __float2int_rn(float x) { return int(std::nearbyint(x)); }
static inline int __float2int_rz(float x) { return int(x); }
static inline float __int2float_rn(int x) { return float(x); }
static inline int __popc(unsigned x) { return __builtin_popcount(x); }
static inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
static inline int __clz(int x) { return x ? __builtin_clz(unsigned(x)) : 32; }
static inline int __ffs(int x) { return __builtin_ffs(x); }
static inline unsigned __brev(unsigned x) {
    unsigned result = 0;
    for (int bit = 0; bit < 32; bit++) result |= (x >> bit & 1) << (31 - bit);
    return result;
}
static inline int __mul24(int x, int y) { return x * y; }
static inline long long clock64() { return 0; }
using std::isfinite;
using std::isinf;
using std::isnan;
template <class A, class B> constexpr std::common_type_t<A, B> min(A a, B b) { return b < a ? std::common_type_t<A, B>(b) : std::common_type_t<A, B>(a); }
template <class A, class B> constexpr std::common_type_t<A, B> max(A a, B b) { return a < b ? std::common_type_t<A, B>(b) : std::common_type_t<A, B>(a); }
