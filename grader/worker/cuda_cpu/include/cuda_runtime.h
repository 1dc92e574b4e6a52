// The CUDA runtime on a CPU: the declarations for kernels and their launchers, with CUDA's grids, blocks and threads. Compiled with the
// student's file after `rewrite.py`; runtime.cpp defines the functions. Without a GPU's speed and memory model: threads run one after
// another, in an adverse order, and every access to memory is checked.
#pragma once

#include <algorithm>
#include <climits>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <ctime>
#include <math.h>  // with the overloads for float in the global namespace, as CUDA has them
#include <stdlib.h>
#include <tuple>
#include <type_traits>
#include <utility>

// Functions that touch the student's memory are inlined, so that the place of an access is the student's line.
#define CUDA_CPU_INLINE inline __attribute__((always_inline))
#define CUDA_CPU_UNSEEN __attribute__((no_sanitize("thread")))

#define __global__
#define __device__
#define __host__
#define __constant__
#define __managed__ __attribute__((section("cuda_cpu_managed")))  // runtime.cpp knows their addresses by it
#define __grid_constant__
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)  // `rewrite.py` has put it into the kernel
#define __maxnreg__(...)
#define __nv_pure__
#define __inline_hint__
#define __align__(n) alignas(n)
#define __CUDACC__ 1
#define __NVCC__ 1
#define __CUDACC_VER_MAJOR__ 13
#define __CUDACC_VER_MINOR__ 0
#define __CUDACC_VER_BUILD__ 0
#define __CUDA_ARCH__ 900
#define CUDART_VERSION 13000
#define CUDA_VERSION 13000
#define __CUDA_RUNTIME_H__  // by these helper_cuda.h of the CUDA samples knows what was included before it
#define __DRIVER_TYPES_H__
#ifndef __clang__
#define __builtin_assume(condition) ((void)0)
#endif
#define __assume(condition) __builtin_assume(condition)

using uint = unsigned int;
using uchar = unsigned char;
using ushort = unsigned short;
using ulong = unsigned long;

// Vector types, aligned as on a device, so that misaligned accesses are found.
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
CUDA_CPU_VECTOR(long, long, 16, 16)
CUDA_CPU_VECTOR(unsigned long, ulong, 16, 16)
CUDA_CPU_VECTOR(long long, longlong, 16, 16)
CUDA_CPU_VECTOR(unsigned long long, ulonglong, 16, 16)
CUDA_CPU_VECTOR(float, float, 8, 16)
CUDA_CPU_VECTOR(double, double, 16, 16)
#undef CUDA_CPU_VECTOR
// Vectors of 32 bytes by their alignment, as CUDA 13 names them.
#define CUDA_CPU_ALIGNED(T, name)                                                                                                      \
    using name##4_16a = name##4;                                                                                                      \
    struct alignas(32) name##4_32a { T x, y, z, w; };                                                                                 \
    static inline name##4_16a make_##name##4_16a(T x, T y, T z, T w) { return {x, y, z, w}; }                                         \
    static inline name##4_32a make_##name##4_32a(T x, T y, T z, T w) { return {x, y, z, w}; }
CUDA_CPU_ALIGNED(long, long)
CUDA_CPU_ALIGNED(unsigned long, ulong)
CUDA_CPU_ALIGNED(long long, longlong)
CUDA_CPU_ALIGNED(unsigned long long, ulonglong)
CUDA_CPU_ALIGNED(double, double)
#undef CUDA_CPU_ALIGNED

struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
    constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
    constexpr operator uint3() const { return {x, y, z}; }
};

enum cudaError {
    cudaSuccess = 0,
    cudaErrorInvalidValue = 1,
    cudaErrorMemoryAllocation = 2,
    cudaErrorInitializationError = 3,
    cudaErrorInvalidConfiguration = 9,
    cudaErrorInvalidPitchValue = 12,
    cudaErrorInvalidSymbol = 13,
    cudaErrorInvalidDevicePointer = 17,
    cudaErrorInvalidMemcpyDirection = 21,
    cudaErrorInsufficientDriver = 35,
    cudaErrorMissingConfiguration = 52,
    cudaErrorInvalidDeviceFunction = 98,
    cudaErrorNoDevice = 100,
    cudaErrorInvalidDevice = 101,
    cudaErrorInvalidKernelImage = 200,
    cudaErrorNoKernelImageForDevice = 209,
    cudaErrorInvalidPtx = 218,
    cudaErrorInvalidResourceHandle = 400,
    cudaErrorSymbolNotFound = 500,
    cudaErrorNotReady = 600,
    cudaErrorIllegalAddress = 700,
    cudaErrorLaunchOutOfResources = 701,
    cudaErrorLaunchTimeout = 702,
    cudaErrorPeerAccessAlreadyEnabled = 704,
    cudaErrorPeerAccessNotEnabled = 705,
    cudaErrorContextIsDestroyed = 709,
    cudaErrorAssert = 710,
    cudaErrorHostMemoryAlreadyRegistered = 712,
    cudaErrorHostMemoryNotRegistered = 713,
    cudaErrorIllegalInstruction = 715,
    cudaErrorMisalignedAddress = 716,
    cudaErrorInvalidAddressSpace = 717,
    cudaErrorLaunchFailure = 719,
    cudaErrorNotPermitted = 800,
    cudaErrorNotSupported = 801,
    cudaErrorSystemNotReady = 802,
    cudaErrorUnknown = 999,
};
using cudaError_t = cudaError;
enum cudaMemcpyKind { cudaMemcpyHostToHost, cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost, cudaMemcpyDeviceToDevice, cudaMemcpyDefault };
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize = 8, cudaFuncAttributePreferredSharedMemoryCarveout = 9 };
enum cudaFuncCache { cudaFuncCachePreferNone, cudaFuncCachePreferShared, cudaFuncCachePreferL1, cudaFuncCachePreferEqual };
enum cudaSharedCarveout { cudaSharedmemCarveoutDefault = -1, cudaSharedmemCarveoutMaxL1 = 0, cudaSharedmemCarveoutMaxShared = 100 };
enum cudaLimit {
    cudaLimitStackSize,
    cudaLimitPrintfFifoSize,
    cudaLimitMallocHeapSize,
    cudaLimitDevRuntimeSyncDepth,
    cudaLimitDevRuntimePendingLaunchCount,
    cudaLimitMaxL2FetchGranularity,
    cudaLimitPersistingL2CacheSize,
};
enum cudaMemoryType { cudaMemoryTypeUnregistered, cudaMemoryTypeHost, cudaMemoryTypeDevice, cudaMemoryTypeManaged };
enum cudaDeviceAttr {
    cudaDevAttrMaxThreadsPerBlock = 1,
    cudaDevAttrMaxBlockDimX = 2,
    cudaDevAttrMaxBlockDimY = 3,
    cudaDevAttrMaxBlockDimZ = 4,
    cudaDevAttrMaxGridDimX = 5,
    cudaDevAttrMaxGridDimY = 6,
    cudaDevAttrMaxGridDimZ = 7,
    cudaDevAttrMaxSharedMemoryPerBlock = 8,
    cudaDevAttrTotalConstantMemory = 9,
    cudaDevAttrWarpSize = 10,
    cudaDevAttrMaxPitch = 11,
    cudaDevAttrMaxRegistersPerBlock = 12,
    cudaDevAttrClockRate = 13,
    cudaDevAttrGpuOverlap = 15,
    cudaDevAttrMultiProcessorCount = 16,
    cudaDevAttrKernelExecTimeout = 17,
    cudaDevAttrIntegrated = 18,
    cudaDevAttrCanMapHostMemory = 19,
    cudaDevAttrComputeMode = 20,
    cudaDevAttrConcurrentKernels = 31,
    cudaDevAttrEccEnabled = 32,
    cudaDevAttrMemoryClockRate = 36,
    cudaDevAttrGlobalMemoryBusWidth = 37,
    cudaDevAttrL2CacheSize = 38,
    cudaDevAttrMaxThreadsPerMultiProcessor = 39,
    cudaDevAttrAsyncEngineCount = 40,
    cudaDevAttrUnifiedAddressing = 41,
    cudaDevAttrComputeCapabilityMajor = 75,
    cudaDevAttrComputeCapabilityMinor = 76,
    cudaDevAttrStreamPrioritiesSupported = 78,
    cudaDevAttrGlobalL1CacheSupported = 79,
    cudaDevAttrLocalL1CacheSupported = 80,
    cudaDevAttrMaxSharedMemoryPerMultiprocessor = 81,
    cudaDevAttrMaxRegistersPerMultiprocessor = 82,
    cudaDevAttrManagedMemory = 83,
    cudaDevAttrSingleToDoublePrecisionPerfRatio = 87,
    cudaDevAttrConcurrentManagedAccess = 89,
    cudaDevAttrComputePreemptionSupported = 90,
    cudaDevAttrCooperativeLaunch = 95,
    cudaDevAttrMaxSharedMemoryPerBlockOptin = 97,
    cudaDevAttrHostRegisterSupported = 99,
    cudaDevAttrMaxBlocksPerMultiprocessor = 106,
    cudaDevAttrMaxPersistingL2CacheSize = 108,
    cudaDevAttrMaxAccessPolicyWindowSize = 109,
    cudaDevAttrReservedSharedMemoryPerBlock = 111,
    cudaDevAttrMemoryPoolsSupported = 115,
    cudaDevAttrClusterLaunch = 120,
};
enum cudaComputeMode { cudaComputeModeDefault, cudaComputeModeExclusive, cudaComputeModeProhibited, cudaComputeModeExclusiveProcess };
struct cudaDeviceProp {
    char name[256];
    size_t totalGlobalMem, sharedMemPerBlock, sharedMemPerBlockOptin, sharedMemPerMultiprocessor, reservedSharedMemPerBlock, totalConstMem, memPitch;
    size_t textureAlignment, texturePitchAlignment, surfaceAlignment;
    int regsPerBlock, regsPerMultiprocessor, warpSize, maxThreadsPerBlock, maxThreadsDim[3], maxGridSize[3];
    int major, minor, multiProcessorCount, maxThreadsPerMultiProcessor, maxBlocksPerMultiProcessor, l2CacheSize, memoryBusWidth;
    int asyncEngineCount, persistingL2CacheMaxSize, accessPolicyMaxWindowSize;
    int integrated, canMapHostMemory, concurrentKernels, ECCEnabled, pciBusID, pciDeviceID, pciDomainID, tccDriver, unifiedAddressing;
    int streamPrioritiesSupported, globalL1CacheSupported, localL1CacheSupported, managedMemory, isMultiGpuBoard, multiGpuBoardGroupID;
    int hostNativeAtomicSupported, pageableMemoryAccess, concurrentManagedAccess, computePreemptionSupported, canUseHostPointerForRegisteredMem;
    int cooperativeLaunch, hostRegisterSupported, memoryPoolsSupported, clusterLaunch;
};
struct cudaPointerAttributes {
    cudaMemoryType type;
    int device;
    void *devicePointer, *hostPointer;
};
struct cudaFuncAttributes {
    size_t sharedSizeBytes, constSizeBytes, localSizeBytes;
    int maxThreadsPerBlock, numRegs, ptxVersion, binaryVersion, cacheModeCA, maxDynamicSharedSizeBytes, preferredShmemCarveout;
};
using cudaStream_t = struct CUstream_st*;
using cudaEvent_t = struct CUevent_st*;
using cudaHostFn_t = void (*)(void*);
// Of a launch's attributes, those that change nothing here: a kernel begins when all before it have ended.
enum cudaLaunchAttributeID { cudaLaunchAttributeIgnore = 0, cudaLaunchAttributeProgrammaticStreamSerialization = 6, cudaLaunchAttributePriority = 8 };
union cudaLaunchAttributeValue {
    int programmaticStreamSerializationAllowed, priority;
    char pad[64];
};
struct cudaLaunchAttribute {
    cudaLaunchAttributeID id;
    cudaLaunchAttributeValue val;
};
struct cudaLaunchConfig_t {
    dim3 gridDim, blockDim;
    size_t dynamicSmemBytes;
    cudaStream_t stream;
    cudaLaunchAttribute* attrs;
    unsigned numAttrs;
};
#define cudaStreamDefault 0
#define cudaStreamNonBlocking 1
#define cudaStreamLegacy ((cudaStream_t)1)
#define cudaStreamPerThread ((cudaStream_t)2)
#define cudaEventDefault 0
#define cudaEventBlockingSync 1
#define cudaEventDisableTiming 2
#define cudaEventRecordDefault 0
#define cudaEventWaitDefault 0
#define cudaHostAllocDefault 0
#define cudaHostAllocPortable 1
#define cudaHostAllocMapped 2
#define cudaHostAllocWriteCombined 4
#define cudaMemAttachGlobal 1
#define cudaMemAttachHost 2
#define cudaOccupancyDefault 0
#define cudaDeviceScheduleAuto 0
#define cudaDeviceScheduleSpin 1
#define cudaDeviceScheduleYield 2
#define cudaDeviceScheduleBlockingSync 4
#define cudaDeviceMapHost 8
#define CUDARTAPI
#define CUDART_CB

extern "C" {
cudaError_t cudaMalloc(void** pointer, size_t bytes);
cudaError_t cudaMallocManaged(void** pointer, size_t bytes, unsigned flags = cudaMemAttachGlobal);
cudaError_t cudaMallocHost(void** pointer, size_t bytes, unsigned flags = cudaHostAllocDefault);
cudaError_t cudaFree(void* pointer);
cudaError_t cudaFreeHost(void* pointer);
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind);
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream = nullptr);
cudaError_t cudaMemcpy2D(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width, size_t height, cudaMemcpyKind kind);
cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width, size_t height, cudaMemcpyKind kind,
                              cudaStream_t stream = nullptr);
cudaError_t cudaMemset(void* to, int value, size_t bytes);
cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream = nullptr);
cudaError_t cudaMemset2D(void* to, size_t pitch, int value, size_t width, size_t height);
cudaError_t cudaMemset2DAsync(void* to, size_t pitch, int value, size_t width, size_t height, cudaStream_t stream = nullptr);
cudaError_t cudaMemGetInfo(size_t* unused, size_t* total);
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* pointer);
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int priority);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags = 0);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream = nullptr);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t start, cudaEvent_t end);
cudaError_t cudaDeviceSynchronize();
cudaError_t cudaDeviceReset();  // the tensors of the process are lost with it
cudaError_t cudaGetLastError();
cudaError_t cudaPeekAtLastError();
const char* cudaGetErrorName(cudaError_t error);
const char* cudaGetErrorString(cudaError_t error);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device);
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device);
cudaError_t cuda_cpu_allow_shared(size_t bytes);
void cuda_cpu_asked_for_block();
cudaError_t cuda_cpu_copy_symbol(void* symbol, size_t size, void* other, size_t bytes, size_t offset, cudaMemcpyKind kind, bool to_symbol);
cudaError_t cuda_cpu_symbol_address(void** pointer, void* symbol, size_t size);
}
template <class T> cudaError_t cudaMalloc(T** pointer, size_t bytes) { return cudaMalloc(reinterpret_cast<void**>(pointer), bytes); }
template <class T> cudaError_t cudaMallocAsync(T** pointer, size_t bytes, cudaStream_t) { return cudaMalloc(pointer, bytes); }
template <class T> cudaError_t cudaMallocManaged(T** pointer, size_t bytes, unsigned flags = cudaMemAttachGlobal) {
    return cudaMallocManaged(reinterpret_cast<void**>(pointer), bytes, flags);
}
template <class T> cudaError_t cudaMallocHost(T** pointer, size_t bytes, unsigned flags = cudaHostAllocDefault) {
    return cudaMallocHost(reinterpret_cast<void**>(pointer), bytes, flags);
}
template <class T> cudaError_t cudaHostAlloc(T** pointer, size_t bytes, unsigned flags) { return cudaMallocHost(pointer, bytes, flags); }
// Rows begin at multiples of 512 bytes, as on a device.
template <class T> cudaError_t cudaMallocPitch(T** pointer, size_t* pitch, size_t width, size_t height) {
    *pitch = (width + 511) / 512 * 512;
    return cudaMalloc(reinterpret_cast<void**>(pointer), *pitch * height);
}
static inline cudaError_t cudaFreeAsync(void* pointer, cudaStream_t) { return cudaFree(pointer); }

// A symbol is the variable, on the device and here.
template <class T>
CUDA_CPU_INLINE cudaError_t cudaMemcpyToSymbol(const T& symbol, const void* from, size_t bytes, size_t offset = 0, cudaMemcpyKind kind = cudaMemcpyHostToDevice) {
    return cuda_cpu_copy_symbol(const_cast<std::remove_cv_t<T>*>(&symbol), sizeof symbol, const_cast<void*>(from), bytes, offset, kind, true);
}
template <class T>
CUDA_CPU_INLINE cudaError_t cudaMemcpyToSymbolAsync(const T& symbol, const void* from, size_t bytes, size_t offset, cudaMemcpyKind kind, cudaStream_t = nullptr) {
    return cuda_cpu_copy_symbol(const_cast<std::remove_cv_t<T>*>(&symbol), sizeof symbol, const_cast<void*>(from), bytes, offset, kind, true);
}
template <class T>
CUDA_CPU_INLINE cudaError_t cudaMemcpyFromSymbol(void* to, const T& symbol, size_t bytes, size_t offset = 0, cudaMemcpyKind kind = cudaMemcpyDeviceToHost) {
    return cuda_cpu_copy_symbol(const_cast<std::remove_cv_t<T>*>(&symbol), sizeof symbol, to, bytes, offset, kind, false);
}
template <class T>
CUDA_CPU_INLINE cudaError_t cudaMemcpyFromSymbolAsync(void* to, const T& symbol, size_t bytes, size_t offset, cudaMemcpyKind kind, cudaStream_t = nullptr) {
    return cuda_cpu_copy_symbol(const_cast<std::remove_cv_t<T>*>(&symbol), sizeof symbol, to, bytes, offset, kind, false);
}
template <class P, class T> cudaError_t cudaGetSymbolAddress(P** pointer, const T& symbol) {
    return cuda_cpu_symbol_address(reinterpret_cast<void**>(pointer), const_cast<std::remove_cv_t<T>*>(&symbol), sizeof symbol);
}
template <class T> cudaError_t cudaGetSymbolSize(size_t* size, const T& symbol) { return *size = sizeof symbol, cudaSuccess; }

// All work is done when a call returns, so streams are always in order.
static inline cudaError_t cudaStreamQuery(cudaStream_t) { return cudaDeviceSynchronize(); }
static inline cudaError_t cudaStreamCreate(cudaStream_t* stream) { return cudaStreamCreateWithPriority(stream, 0, 0); }
static inline cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) { return cudaStreamCreateWithPriority(stream, flags, 0); }
static inline cudaError_t cudaStreamGetPriority(cudaStream_t, int* priority) { return *priority = 0, cudaDeviceSynchronize(); }
static inline cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) { return *least = 0, *greatest = -5, cudaDeviceSynchronize(); }
static inline cudaError_t cudaEventCreate(cudaEvent_t* event, unsigned flags = 0) { return cudaEventCreateWithFlags(event, flags); }
static inline cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream = nullptr, unsigned = 0) { return cudaEventRecord(event, stream); }
static inline cudaError_t cudaEventQuery(cudaEvent_t event) { return cudaEventSynchronize(event); }
static inline cudaError_t cudaLaunchHostFunc(cudaStream_t, cudaHostFn_t function, void* data) {
    cudaError_t error = cudaDeviceSynchronize();
    return error == cudaSuccess ? function(data), error : error;
}
using cudaStreamCallback_t = void (*)(cudaStream_t, cudaError_t, void*);
static inline cudaError_t cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t function, void* data, unsigned) {
    cudaError_t error = cudaDeviceSynchronize();
    return function(stream, error, data), error;
}
static inline cudaError_t cudaGetDevice(int* device) { return *device = 0, cudaSuccess; }
static inline cudaError_t cudaSetDevice(int device) { return device ? cudaErrorInvalidDevice : cudaSuccess; }
static inline cudaError_t cudaGetDeviceCount(int* count) { return *count = 1, cudaSuccess; }
static inline cudaError_t cudaDeviceSetLimit(cudaLimit, size_t) { return cudaDeviceSynchronize(); }
static inline cudaError_t cudaDeviceGetLimit(size_t* value, cudaLimit limit) {
    *value = limit == cudaLimitStackSize ? 1024 : limit == cudaLimitMallocHeapSize ? 8 << 20 : limit == cudaLimitPrintfFifoSize ? 1 << 20 : 0;
    return cudaDeviceSynchronize();
}
static inline cudaError_t cudaSetDeviceFlags(unsigned) { return cudaSuccess; }
static inline cudaError_t cudaInitDevice(int device, unsigned, unsigned) { return device ? cudaErrorInvalidDevice : cudaSuccess; }
static inline cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
    return *can = 0, device || peer ? cudaErrorInvalidDevice : cudaSuccess;
}
static inline cudaError_t cudaProfilerStart() { return cudaSuccess; }
static inline cudaError_t cudaProfilerStop() { return cudaSuccess; }
static inline cudaError_t cudaDeviceSetCacheConfig(cudaFuncCache) { return cudaDeviceSynchronize(); }
static inline cudaError_t cudaRuntimeGetVersion(int* version) { return *version = CUDART_VERSION, cudaSuccess; }
static inline cudaError_t cudaDriverGetVersion(int* version) { return *version = CUDART_VERSION, cudaSuccess; }
template <class Kernel> cudaError_t cudaFuncSetCacheConfig(Kernel, cudaFuncCache) { return cudaDeviceSynchronize(); }
template <class Kernel> cudaError_t cudaFuncSetAttribute(Kernel, cudaFuncAttribute attribute, int value) {
    return attribute == cudaFuncAttributeMaxDynamicSharedMemorySize ? cuda_cpu_allow_shared(value) : cudaSuccess;
}
template <class Kernel> cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, Kernel) {
    *attributes = {};
    cuda_cpu_asked_for_block();
    attributes->maxThreadsPerBlock = 1024, attributes->numRegs = 32, attributes->maxDynamicSharedSizeBytes = 48 << 10;
    attributes->ptxVersion = attributes->binaryVersion = 90, attributes->preferredShmemCarveout = -1;
    return cudaDeviceSynchronize();
}
// As for kernels of 32 registers: a thread's registers are unknown here.
template <class Kernel> cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, Kernel, int threads, size_t shared) {
    if (threads < 1) return cudaErrorInvalidValue;
    size_t by_threads = threads > 1024 ? 0 : std::min(32, 2048 / ((threads + 31) / 32 * 32));
    return *blocks = int(std::min(by_threads, (228u << 10) / (shared + 1024))), cudaSuccess;
}
template <class Kernel> cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, Kernel kernel, int threads, size_t shared, unsigned) {
    return cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks, kernel, threads, shared);
}
template <class Kernel, class Bytes>
cudaError_t cudaOccupancyMaxPotentialBlockSizeVariableSMem(int* grid, int* block, Kernel kernel, Bytes bytes, int limit = 0) {
    int best = 0;
    cuda_cpu_asked_for_block();
    for (int threads = limit > 0 && limit < 1024 ? limit : 1024, blocks = 0; threads > 0; threads = (threads - 1) / 32 * 32)
        if (cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, threads, size_t(bytes(threads))); blocks * threads > best)
            best = blocks * threads, *grid = 132 * blocks, *block = threads;
    return best ? cudaSuccess : cudaErrorInvalidValue;
}
template <class Kernel> cudaError_t cudaOccupancyMaxPotentialBlockSize(int* grid, int* block, Kernel kernel, size_t shared = 0, int limit = 0) {
    return cudaOccupancyMaxPotentialBlockSizeVariableSMem(grid, block, kernel, [shared](int) { return shared; }, limit);
}

namespace cuda_cpu {
struct Config {
    const char* name;
    dim3 grid, block;
    size_t shared_bytes;
    cudaStream_t stream;
    const void* const* arguments = nullptr;  // of the kernel; null for one that is no pointer
    int argument_count = 0;
};
extern "C" {
cudaError_t cuda_cpu_run(const Config* config, void (*entry)(void*), void* closure);
void* cuda_cpu_static_shared(const char* name, int line, size_t bytes, size_t alignment);
void* cuda_cpu_dynamic_shared();
int cuda_cpu_barrier(int value);  // number of threads that brought a value other than 0
void cuda_cpu_warp(unsigned mask, uint64_t value, uint64_t* inbox, unsigned* arrived, const char* what);
void cuda_cpu_shuffled(int source, const char* what);  // a value from a lane that did not take part
unsigned cuda_cpu_active();
int cuda_cpu_lane();
void cuda_cpu_atomic(const void* address, size_t bytes, bool reads);
void cuda_cpu_fence();
void cuda_cpu_bounds(int most);  // called at the beginning of a kernel with __launch_bounds__
[[noreturn]] void cuda_cpu_trap(const char* what);
}

template <class T> const void* pointer_in(const T& argument) {
    if constexpr (std::is_pointer_v<T> && !std::is_function_v<std::remove_pointer_t<T>>)
        return const_cast<const void*>(static_cast<const volatile void*>(argument));
    else
        return nullptr;
}
template <class Body> struct Launch {
    Config config;
    Body body;
    template <class... Arguments> CUDA_CPU_INLINE void operator()(Arguments... arguments) { (void)run(arguments...); }
    template <class... Arguments> CUDA_CPU_INLINE cudaError_t run(Arguments... arguments) {
        const void* pointers[] = {pointer_in(arguments)..., nullptr};
        config.arguments = pointers, config.argument_count = sizeof...(arguments);
        auto once = [&]() CUDA_CPU_UNSEEN { body(arguments...); };
        return cuda_cpu_run(&config, [](void* closure) CUDA_CPU_UNSEEN { (*static_cast<decltype(once)*>(closure))(); }, &once);
    }
};
template <size_t I, class Kernel> struct parameter;
template <size_t I, class... Parameters> struct parameter<I, void (*)(Parameters...)> {
    using type = std::tuple_element_t<I, std::tuple<Parameters...>>;
};
template <size_t I, class Kernel> using parameter_t = typename parameter<I, std::decay_t<Kernel>>::type;
template <class Body> Launch<Body> launch(const char* name, Body body, dim3 grid, dim3 block, size_t shared = 0, cudaStream_t stream = nullptr) {
    return {{name, grid, block, shared, stream}, body};
}
template <class... Parameters, size_t... Positions>
CUDA_CPU_INLINE cudaError_t launch_with(Config config, void (*kernel)(Parameters...), void** arguments, std::index_sequence<Positions...>) {
    return Launch<decltype(kernel)>{config, kernel}.run(*static_cast<std::remove_reference_t<Parameters>*>(arguments[Positions])...);
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
template <class T> CUDA_CPU_INLINE T shuffle(unsigned mask, T value, int source, bool valid, const char* what) {
    uint64_t inbox[32];
    unsigned arrived = 0;
    cuda_cpu_warp(mask, to_bits(value), inbox, &arrived, what);
    if (!valid || arrived >> source & 1) return valid ? from_bits<T>(inbox[source]) : value;
    cuda_cpu_shuffled(source, what);
    return value;
}
}  // namespace cuda_cpu

// Constants for a thread: the runtime changes them when another thread runs.
#ifndef CUDA_CPU_RUNTIME
extern const uint3 threadIdx __attribute__((visibility("hidden")));
extern const uint3 blockIdx __attribute__((visibility("hidden")));
extern const uint3 blockDim __attribute__((visibility("hidden")));
extern const uint3 gridDim __attribute__((visibility("hidden")));
#endif
static constexpr int warpSize = 32;

// The other ways to launch. A kernel's type gives its parameters; `rewrite.py` removes casts to void*.
template <class... Parameters>
CUDA_CPU_INLINE cudaError_t cudaLaunchKernel(void (*kernel)(Parameters...), dim3 grid, dim3 block, void** arguments, size_t shared = 0, cudaStream_t stream = nullptr) {
    return cuda_cpu::launch_with({"a kernel", grid, block, shared, stream}, kernel, arguments, std::index_sequence_for<Parameters...>{});
}
__attribute__((error("not on the CPU: cudaLaunchKernel with a kernel that is not named in the call"))) cudaError_t
cudaLaunchKernel(const void* kernel, dim3 grid, dim3 block, void** arguments, size_t shared = 0, cudaStream_t stream = nullptr);
template <class... Parameters, class... Arguments>
CUDA_CPU_INLINE cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...), Arguments&&... arguments) {
    return cuda_cpu::Launch<decltype(kernel)>{{"a kernel", config->gridDim, config->blockDim, config->dynamicSmemBytes, config->stream}, kernel}.run(Parameters(arguments)...);
}
template <class... Parameters>
CUDA_CPU_INLINE cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...), void** arguments) {
    return cudaLaunchKernel(kernel, config->gridDim, config->blockDim, arguments, config->dynamicSmemBytes, config->stream);
}

#define __syncthreads() ((void)::cuda_cpu::cuda_cpu_barrier(0))
static CUDA_CPU_INLINE int __syncthreads_count(int value) { return cuda_cpu::cuda_cpu_barrier(value != 0); }
static CUDA_CPU_INLINE int __syncthreads_or(int value) { return cuda_cpu::cuda_cpu_barrier(value != 0) != 0; }
static CUDA_CPU_INLINE int __syncthreads_and(int value) { return cuda_cpu::cuda_cpu_barrier(value == 0) == 0; }
static CUDA_CPU_INLINE void __threadfence() { cuda_cpu::cuda_cpu_fence(); }
static CUDA_CPU_INLINE void __threadfence_block() {}
static CUDA_CPU_INLINE void __threadfence_system() { cuda_cpu::cuda_cpu_fence(); }
static CUDA_CPU_INLINE void cudaGridDependencySynchronize() {}
static CUDA_CPU_INLINE void cudaTriggerProgrammaticLaunchCompletion() {}
static CUDA_CPU_INLINE void __trap() { cuda_cpu::cuda_cpu_trap("__trap()"); }
#undef assert
#define assert(condition) ((condition) ? (void)0 : ::cuda_cpu::cuda_cpu_trap("assert(" #condition ")"))

// Warps: 32 threads that meet.
static CUDA_CPU_INLINE void __syncwarp(unsigned mask = 0xffffffffu) {
    uint64_t inbox[32];
    unsigned arrived;
    cuda_cpu::cuda_cpu_warp(mask, 0, inbox, &arrived, "__syncwarp");
}
template <class T> CUDA_CPU_INLINE T __shfl_sync(unsigned mask, T value, int source, int width = 32) {
    int lane = cuda_cpu::cuda_cpu_lane(), base = lane & ~(width - 1);
    return cuda_cpu::shuffle(mask, value, base + (source & (width - 1)), true, "__shfl_sync");
}
template <class T> CUDA_CPU_INLINE T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32) {
    int lane = cuda_cpu::cuda_cpu_lane(), source = lane - int(delta);
    return cuda_cpu::shuffle(mask, value, source & 31, source >= (lane & ~(width - 1)), "__shfl_up_sync");
}
template <class T> CUDA_CPU_INLINE T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32) {
    int lane = cuda_cpu::cuda_cpu_lane(), source = lane + int(delta);
    return cuda_cpu::shuffle(mask, value, source & 31, source < (lane & ~(width - 1)) + width, "__shfl_down_sync");
}
template <class T> CUDA_CPU_INLINE T __shfl_xor_sync(unsigned mask, T value, int bits, int width = 32) {
    int lane = cuda_cpu::cuda_cpu_lane(), source = lane ^ bits;
    return cuda_cpu::shuffle(mask, value, source & 31, source < (lane & ~(width - 1)) + width, "__shfl_xor_sync");
}
static CUDA_CPU_INLINE unsigned __ballot_sync(unsigned mask, int predicate) {
    uint64_t inbox[32];
    unsigned arrived = 0, result = 0;
    cuda_cpu::cuda_cpu_warp(mask, predicate != 0, inbox, &arrived, "__ballot_sync");
    for (int lane = 0; lane < 32; lane++)
        if ((arrived >> lane & 1) && inbox[lane]) result |= 1u << lane;
    return result;
}
static CUDA_CPU_INLINE int __any_sync(unsigned mask, int predicate) { return __ballot_sync(mask, predicate) != 0; }
static CUDA_CPU_INLINE int __all_sync(unsigned mask, int predicate) { return __ballot_sync(mask, !predicate) == 0; }
#define __activemask() (::cuda_cpu::cuda_cpu_active())
template <class T> CUDA_CPU_INLINE unsigned __match_any_sync(unsigned mask, T value) {
    uint64_t inbox[32];
    unsigned arrived = 0, result = 0;
    cuda_cpu::cuda_cpu_warp(mask, cuda_cpu::to_bits(value), inbox, &arrived, "__match_any_sync");
    for (int lane = 0; lane < 32; lane++)
        if ((arrived >> lane & 1) && inbox[lane] == cuda_cpu::to_bits(value)) result |= 1u << lane;
    return result;
}
template <class T> CUDA_CPU_INLINE unsigned __match_all_sync(unsigned mask, T value, int* all) {
    uint64_t inbox[32];
    unsigned arrived = 0;
    cuda_cpu::cuda_cpu_warp(mask, cuda_cpu::to_bits(value), inbox, &arrived, "__match_all_sync");
    for (int lane = 0; lane < 32; lane++)
        if ((arrived >> lane & 1) && inbox[lane] != cuda_cpu::to_bits(value)) return *all = 0, 0;
    return *all = 1, arrived;
}
template <class T, class Combine> CUDA_CPU_INLINE T cuda_cpu_reduce(unsigned mask, T value, Combine combine) {
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
template <class T> CUDA_CPU_INLINE T __reduce_add_sync(unsigned mask, T value) { return cuda_cpu_reduce(mask, value, [](T a, T b) { return T(a + b); }); }
template <class T> CUDA_CPU_INLINE T __reduce_max_sync(unsigned mask, T value) { return cuda_cpu_reduce(mask, value, [](T a, T b) { return a > b ? a : b; }); }
template <class T> CUDA_CPU_INLINE T __reduce_and_sync(unsigned mask, T value) { return cuda_cpu_reduce(mask, value, [](T a, T b) { return a & b; }); }
template <class T> CUDA_CPU_INLINE T __reduce_or_sync(unsigned mask, T value) { return cuda_cpu_reduce(mask, value, [](T a, T b) { return a | b; }); }
template <class T> CUDA_CPU_INLINE T __reduce_xor_sync(unsigned mask, T value) { return cuda_cpu_reduce(mask, value, [](T a, T b) { return a ^ b; }); }
template <class T> CUDA_CPU_INLINE T __reduce_min_sync(unsigned mask, T value) { return cuda_cpu_reduce(mask, value, [](T a, T b) { return a < b ? a : b; }); }

// Atomics: each is one step, because threads change only when one waits.
template <class T, class Change> __attribute__((noinline)) CUDA_CPU_UNSEEN T cuda_cpu_change_quietly(T* address, Change change) {
    T old = *address;
    *address = change(old);
    return old;
}
template <class T, class Change> CUDA_CPU_INLINE T cuda_cpu_change(T* address, Change change, bool reads = true) {
    cuda_cpu::cuda_cpu_atomic(address, sizeof(T), reads);
    return cuda_cpu_change_quietly(address, change);
}
template <class T> struct cuda_cpu_same { using type = T; };
#define CUDA_CPU_ATOMIC(name, expression)                                                                                              \
    template <class T> CUDA_CPU_INLINE T name(T* address, typename cuda_cpu_same<T>::type value) {                                                    \
        return cuda_cpu_change(address, [&](T old) { return T(expression); });                                                        \
    }                                                                                                                                 \
    template <class T> CUDA_CPU_INLINE T name##_block(T* address, typename cuda_cpu_same<T>::type value) { return name(address, value); }             \
    template <class T> CUDA_CPU_INLINE T name##_system(T* address, typename cuda_cpu_same<T>::type value) { return name(address, value); }
CUDA_CPU_ATOMIC(atomicAdd, old + value)
CUDA_CPU_ATOMIC(atomicSub, old - value)
CUDA_CPU_ATOMIC(atomicMax, old > value ? old : value)
CUDA_CPU_ATOMIC(atomicMin, old < value ? old : value)
CUDA_CPU_ATOMIC(atomicAnd, old & value)
CUDA_CPU_ATOMIC(atomicOr, old | value)
CUDA_CPU_ATOMIC(atomicXor, old ^ value)
CUDA_CPU_ATOMIC(atomicInc, old >= value ? 0 : old + 1)
CUDA_CPU_ATOMIC(atomicDec, old == 0 || old > value ? value : old - 1)
#undef CUDA_CPU_ATOMIC
template <class T> CUDA_CPU_INLINE T atomicExch(T* address, typename cuda_cpu_same<T>::type value) {
    return cuda_cpu_change(address, [&](T) { return value; }, false);
}
template <class T> CUDA_CPU_INLINE T atomicExch_block(T* address, typename cuda_cpu_same<T>::type value) { return atomicExch(address, value); }
template <class T> CUDA_CPU_INLINE T atomicExch_system(T* address, typename cuda_cpu_same<T>::type value) { return atomicExch(address, value); }
template <class T> CUDA_CPU_INLINE T atomicCAS(T* address, typename cuda_cpu_same<T>::type expected, typename cuda_cpu_same<T>::type value) {
    return cuda_cpu_change(address, [&](T old) { return old == expected ? value : old; });
}

// Arithmetic of CUDA that C++ lacks or names differently. Fast intrinsics are as exact as the CPU's functions, but take
// and refuse the same arguments as a device's: __powf has no powers of negative numbers, __fdividef no divisors above 2^126.
template <class T> CUDA_CPU_INLINE T __ldg(const T* address) { return *address; }
template <class T> CUDA_CPU_INLINE T __ldcg(const T* address) { return *address; }
template <class T> CUDA_CPU_INLINE T __ldcs(const T* address) { return *address; }
template <class T> CUDA_CPU_INLINE T __ldca(const T* address) { return *address; }
template <class T> CUDA_CPU_INLINE T __ldlu(const T* address) { return *address; }
template <class T> CUDA_CPU_INLINE T __ldcv(const T* address) { return *address; }
template <class T> CUDA_CPU_INLINE void __stwt(T* address, typename cuda_cpu_same<T>::type value) { *address = value; }
template <class T> CUDA_CPU_INLINE void __stwb(T* address, typename cuda_cpu_same<T>::type value) { *address = value; }
template <class T> CUDA_CPU_INLINE void __stcs(T* address, typename cuda_cpu_same<T>::type value) { *address = value; }
template <class T> CUDA_CPU_INLINE void __stcg(T* address, typename cuda_cpu_same<T>::type value) { *address = value; }
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
static inline float cuda_cpu__powf(float x, float y) { return float(std::exp2(y * std::log2(double(x)))); }
#define __sinf cuda_cpu__sinf
static inline float cuda_cpu__sinf(float x) { return std::sin(x); }
#define __cosf cuda_cpu__cosf
static inline float cuda_cpu__cosf(float x) { return std::cos(x); }
#define __tanf cuda_cpu__tanf
static inline float cuda_cpu__tanf(float x) { return std::tan(x); }
static inline float __fdividef(float x, float y) {
    return std::fabs(y) > 0x1p126f && std::isfinite(y) ? x * std::copysign(0.0f, y) : x / y;
}
// Rounded towards 0 (rz), up (ru) or down (rd): of `sum` and a small `rest`, which together are the exact result.
static inline float cuda_cpu_rounded(double sum, double rest, char towards) {
    float near = float(sum);
    double off = std::isfinite(near) ? (sum - double(near)) + rest : sum - double(near);  // of the exact result from `near`
    bool down = towards == 'd' || (towards == 'z' && !std::signbit(sum));
    if (std::isnan(sum) || std::isinf(sum) || off == 0) return near;
    return down ? off < 0 ? std::nextafter(near, -INFINITY) : near : off > 0 ? std::nextafter(near, INFINITY) : near;
}
static inline float cuda_cpu_rounded_sum(double a, double b, char towards) {
    double sum = a + b, of_b = sum - a;
    if (sum == 0 && (a != 0 || std::signbit(a) != std::signbit(b))) return towards == 'd' ? -0.0f : 0.0f;
    return cuda_cpu_rounded(sum, (a - (sum - of_b)) + (b - of_b), towards);
}
static inline float cuda_cpu_rounded_quotient(double a, double b, char towards) {
    double quotient = a / b;
    return cuda_cpu_rounded(quotient, std::isfinite(quotient) && std::isfinite(b) ? std::fma(-quotient, b, a) / b : 0, towards);
}
static inline float cuda_cpu_rounded_root(double a, char towards) {
    double root = std::sqrt(a);
    return cuda_cpu_rounded(root, root > 0 && std::isfinite(root) ? std::fma(-root, root, a) / root : 0, towards);
}
#define CUDA_CPU_ROUNDED(mode, towards)                                                                                                \
    static inline float __fadd_##mode(float x, float y) { return cuda_cpu_rounded_sum(x, y, towards); }                               \
    static inline float __fsub_##mode(float x, float y) { return cuda_cpu_rounded_sum(x, -double(y), towards); }                      \
    static inline float __fmul_##mode(float x, float y) { return cuda_cpu_rounded(double(x) * y, 0, towards); }                       \
    static inline float __fmaf_##mode(float x, float y, float z) { return cuda_cpu_rounded_sum(double(x) * y, z, towards); }          \
    static inline float __fdiv_##mode(float x, float y) { return cuda_cpu_rounded_quotient(x, y, towards); }                          \
    static inline float __frcp_##mode(float x) { return cuda_cpu_rounded_quotient(1, x, towards); }                                   \
    static inline float __fsqrt_##mode(float x) { return cuda_cpu_rounded_root(x, towards); }                                         \
    static inline float __double2float_##mode(double x) { return cuda_cpu_rounded(x, 0, towards); }                                   \
    static inline float __int2float_##mode(int x) { return cuda_cpu_rounded(x, 0, towards); }                                         \
    static inline float __uint2float_##mode(unsigned x) { return cuda_cpu_rounded(x, 0, towards); }                                   \
    static inline float __ll2float_##mode(long long x) { return cuda_cpu_rounded(double(x), double(x - (__int128)double(x)), towards); } \
    static inline float __ull2float_##mode(unsigned long long x) { return cuda_cpu_rounded(double(x), double(x - (__int128)double(x)), towards); }
CUDA_CPU_ROUNDED(rz, 'z')
CUDA_CPU_ROUNDED(ru, 'u')
CUDA_CPU_ROUNDED(rd, 'd')
#undef CUDA_CPU_ROUNDED
static inline double __dadd_rn(double x, double y) { return x + y; }
static inline double __dsub_rn(double x, double y) { return x - y; }
static inline double __dmul_rn(double x, double y) { return x * y; }
static inline double __ddiv_rn(double x, double y) { return x / y; }
static inline double __drcp_rn(double x) { return 1.0 / x; }
static inline double __dsqrt_rn(double x) { return std::sqrt(x); }
static inline double __fma_rn(double x, double y, double z) { return std::fma(x, y, z); }
static inline float __frcp_rn(float x) { return 1.0f / x; }
static inline float __fsqrt_rn(float x) { return std::sqrt(x); }
static inline float __frsqrt_rn(float x) { return 1.0f / std::sqrt(x); }
static inline float __fmaf_rn(float x, float y, float z) { return std::fma(x, y, z); }
static inline float __fadd_rn(float x, float y) { return x + y; }
static inline float __fsub_rn(float x, float y) { return x - y; }
static inline float __fmul_rn(float x, float y) { return x * y; }
static inline float __fdiv_rn(float x, float y) { return x / y; }
static inline float __saturatef(float x) { return x > 0 ? (x < 1 ? x : 1.0f) : 0.0f; }
#define __tanhf cuda_cpu__tanhf
static inline float cuda_cpu__tanhf(float x) { return std::tanh(x); }
#define __sincosf cuda_cpu__sincosf
static inline void cuda_cpu__sincosf(float x, float* sine, float* cosine) { *sine = std::sin(x), *cosine = std::cos(x); }
static inline float fdividef(float x, float y) { return x / y; }
static inline float rcbrtf(float x) { return 1.0f / std::cbrt(x); }
static inline double rcbrt(double x) { return 1.0 / std::cbrt(x); }
static inline double sinpi(double x) { return std::sin(std::remainder(x, 2.0) * 3.14159265358979323846); }
static inline double cospi(double x) { return std::cos(std::remainder(x, 2.0) * 3.14159265358979323846); }
static inline float sinpif(float x) { return float(sinpi(x)); }
static inline float cospif(float x) { return float(cospi(x)); }
static inline double normcdf(double x) { return 0.5 * std::erfc(-x * 0.70710678118654752440); }
static inline double erfcx(double x) {
    if (x < 25) return std::exp(x * x) * std::erfc(x);
    double square = 0.5 / x / x;  // its series at infinity, to 1e-16
    return 0.56418958354775628695 / x * (1 - square * (1 - 3 * square * (1 - 5 * square * (1 - 7 * square))));
}
static inline float erfcxf(float x) { return float(erfcx(x)); }
static inline float rsqrtf(float x) { return 1.0f / std::sqrt(x); }
static inline double rsqrt(double x) { return 1.0 / std::sqrt(x); }
static inline float normcdff(float x) { return 0.5f * std::erfc(-x * 0.70710678118654752f); }
static inline int __float_as_int(float x) { return cuda_cpu::from_bits<int>(cuda_cpu::to_bits(x)); }
static inline unsigned __float_as_uint(float x) { return cuda_cpu::from_bits<unsigned>(cuda_cpu::to_bits(x)); }
static inline float __int_as_float(int x) { return cuda_cpu::from_bits<float>(cuda_cpu::to_bits(x)); }
static inline float __uint_as_float(unsigned x) { return cuda_cpu::from_bits<float>(cuda_cpu::to_bits(x)); }
static inline double __hiloint2double(int high, int low) { return cuda_cpu::from_bits<double>(uint64_t(unsigned(high)) << 32 | unsigned(low)); }
static inline int __double2hiint(double x) { return int(cuda_cpu::to_bits(x) >> 32); }
static inline int __double2loint(double x) { return int(cuda_cpu::to_bits(x)); }
static inline double __longlong_as_double(long long x) { return cuda_cpu::from_bits<double>(cuda_cpu::to_bits(x)); }
static inline long long __double_as_longlong(double x) { return cuda_cpu::from_bits<long long>(cuda_cpu::to_bits(x)); }
// Conversions to integers as on a device: too large numbers become the largest, NaN 0, or in 64 bits the highest bit alone.
template <class T> T cuda_cpu_to_integer(double x) {
    if (std::isnan(x)) return sizeof(T) == 8 ? T(1ull << 63) : T(0);
    if (x <= double(std::numeric_limits<T>::min())) return std::numeric_limits<T>::min();
    if (x >= double(std::numeric_limits<T>::max())) return std::numeric_limits<T>::max();
    return T(x);
}
#define CUDA_CPU_TO_INTEGER(from, name, T)                                                                                             \
    static inline T __##from##2##name##_rn(from x) { return cuda_cpu_to_integer<T>(std::nearbyint(x)); }                             \
    static inline T __##from##2##name##_rz(from x) { return cuda_cpu_to_integer<T>(std::trunc(x)); }                                 \
    static inline T __##from##2##name##_ru(from x) { return cuda_cpu_to_integer<T>(std::ceil(x)); }                                  \
    static inline T __##from##2##name##_rd(from x) { return cuda_cpu_to_integer<T>(std::floor(x)); }
CUDA_CPU_TO_INTEGER(float, int, int)
CUDA_CPU_TO_INTEGER(float, uint, unsigned)
CUDA_CPU_TO_INTEGER(float, ll, long long)
CUDA_CPU_TO_INTEGER(float, ull, unsigned long long)
CUDA_CPU_TO_INTEGER(double, int, int)
CUDA_CPU_TO_INTEGER(double, uint, unsigned)
CUDA_CPU_TO_INTEGER(double, ll, long long)
CUDA_CPU_TO_INTEGER(double, ull, unsigned long long)
#undef CUDA_CPU_TO_INTEGER
static inline float __int2float_rn(int x) { return float(x); }
static inline float __uint2float_rn(unsigned x) { return float(x); }
static inline float __ll2float_rn(long long x) { return float(x); }
static inline float __ull2float_rn(unsigned long long x) { return float(x); }
static inline double __int2double_rn(int x) { return x; }
static inline double __uint2double_rn(unsigned x) { return x; }
static inline double __ll2double_rn(long long x) { return double(x); }
static inline double __ull2double_rn(unsigned long long x) { return double(x); }
static inline float __double2float_rn(double x) { return float(x); }
static inline int __popc(unsigned x) { return __builtin_popcount(x); }
static inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
static inline int __clz(int x) { return x ? __builtin_clz(unsigned(x)) : 32; }
static inline int __ffs(int x) { return __builtin_ffs(x); }
static inline unsigned __brev(unsigned x) {
    unsigned result = 0;
    for (int bit = 0; bit < 32; bit++) result |= (x >> bit & 1) << (31 - bit);
    return result;
}
static inline int __clzll(long long x) { return x ? __builtin_clzll((unsigned long long)x) : 64; }
static inline int __ffsll(long long x) { return __builtin_ffsll(x); }
static inline unsigned long long __brevll(unsigned long long x) { return (unsigned long long)__brev(unsigned(x)) << 32 | __brev(unsigned(x >> 32)); }
static inline int __mulhi(int x, int y) { return int((long long)x * y >> 32); }
static inline unsigned __umulhi(unsigned x, unsigned y) { return unsigned((unsigned long long)x * y >> 32); }
static inline long long __mul64hi(long long x, long long y) { return (long long)((__int128)x * y >> 64); }
static inline unsigned long long __umul64hi(unsigned long long x, unsigned long long y) { return (unsigned long long)((unsigned __int128)x * y >> 64); }
static inline unsigned __sad(int x, int y, unsigned z) { return z + (x > y ? unsigned(x) - unsigned(y) : unsigned(y) - unsigned(x)); }
static inline unsigned __usad(unsigned x, unsigned y, unsigned z) { return z + (x > y ? x - y : y - x); }
static inline unsigned __byte_perm(unsigned x, unsigned y, unsigned selector) {
    unsigned long long both = (unsigned long long)y << 32 | x;
    unsigned result = 0;
    for (int byte = 0; byte < 4; byte++) result |= unsigned(both >> 8 * (selector >> 4 * byte & 7) & 255) << 8 * byte;
    return result;
}
static inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned by) {
    return unsigned(((unsigned long long)high << 32 | low) << (by & 31) >> 32);
}
static inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned by) { return unsigned(((unsigned long long)high << 32 | low) >> (by & 31)); }
static inline int __mul24(int x, int y) { return int(unsigned(x << 8 >> 8) * unsigned(y << 8 >> 8)); }
static inline unsigned __umul24(unsigned x, unsigned y) { return (x & 0xffffff) * (y & 0xffffff); }
static inline void __nanosleep(unsigned) {}
static inline size_t __cvta_generic_to_shared(const void* pointer) { return size_t(pointer); }  // for PTX, which is told where it stands
static inline size_t __cvta_generic_to_global(const void* pointer) { return size_t(pointer); }
static inline long long clock64() {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000ll + now.tv_nsec;
}
static inline float rsqrt(float x) { return rsqrtf(x); }
static inline float rcbrt(float x) { return rcbrtf(x); }
static inline float sinpi(float x) { return sinpif(x); }
static inline float cospi(float x) { return cospif(x); }
static inline float erfcx(float x) { return erfcxf(x); }
static inline float normcdf(float x) { return normcdff(x); }
// CUDA's overloads and no more: nvcc refuses min(int64_t, int) as ambiguous. Of a number and NaN, the number is taken.
#define CUDA_CPU_LEAST_OF(T, A, B)                                                                                                     \
    static inline T min(A a, B b) { return (T)b < (T)a ? (T)b : (T)a; }                                                               \
    static inline T max(A a, B b) { return (T)a < (T)b ? (T)b : (T)a; }
#define CUDA_CPU_LEAST(S)                                                                                                              \
    CUDA_CPU_LEAST_OF(S, S, S)                                                                                                         \
    CUDA_CPU_LEAST_OF(unsigned S, unsigned S, unsigned S)                                                                              \
    CUDA_CPU_LEAST_OF(unsigned S, S, unsigned S)                                                                                       \
    CUDA_CPU_LEAST_OF(unsigned S, unsigned S, S)
CUDA_CPU_LEAST(int)
CUDA_CPU_LEAST(long)
CUDA_CPU_LEAST(long long)
#undef CUDA_CPU_LEAST
#undef CUDA_CPU_LEAST_OF
static inline float min(float a, float b) { return std::fmin(a, b); }
static inline float max(float a, float b) { return std::fmax(a, b); }
static inline double min(double a, double b) { return std::fmin(a, b); }
static inline double max(double a, double b) { return std::fmax(a, b); }
static inline double min(float a, double b) { return std::fmin(a, b); }
static inline double max(float a, double b) { return std::fmax(a, b); }
static inline double min(double a, float b) { return std::fmin(a, b); }
static inline double max(double a, float b) { return std::fmax(a, b); }
