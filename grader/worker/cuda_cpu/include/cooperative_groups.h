// Cooperative groups on the CPU: a block, tiles of up to a warp, and the grid without its barrier, as the functions of cuda_runtime.h.
#pragma once

#include "cuda_runtime.h"

namespace cooperative_groups {
CUDA_CPU_INLINE unsigned cuda_cpu_rank(dim3 at, dim3 of) { return at.x + of.x * (at.y + of.y * at.z); }
CUDA_CPU_INLINE unsigned cuda_cpu_count(dim3 of) { return of.x * of.y * of.z; }

class thread_block {
public:
    CUDA_CPU_INLINE void sync() const { __syncthreads(); }
    CUDA_CPU_INLINE unsigned thread_rank() const { return cuda_cpu_rank(threadIdx, blockDim); }
    CUDA_CPU_INLINE unsigned num_threads() const { return cuda_cpu_count(blockDim); }
    CUDA_CPU_INLINE unsigned size() const { return num_threads(); }
    CUDA_CPU_INLINE dim3 thread_index() const { return threadIdx; }
    CUDA_CPU_INLINE dim3 group_index() const { return blockIdx; }
    CUDA_CPU_INLINE dim3 dim_threads() const { return blockDim; }
    CUDA_CPU_INLINE dim3 group_dim() const { return blockDim; }
};
CUDA_CPU_INLINE thread_block this_thread_block() { return {}; }

class grid_group {
public:
    CUDA_CPU_INLINE unsigned long long thread_rank() const {
        return block_rank() * cuda_cpu_count(blockDim) + cuda_cpu_rank(threadIdx, blockDim);
    }
    CUDA_CPU_INLINE unsigned long long block_rank() const { return cuda_cpu_rank(blockIdx, gridDim); }
    CUDA_CPU_INLINE unsigned long long num_threads() const { return num_blocks() * cuda_cpu_count(blockDim); }
    CUDA_CPU_INLINE unsigned long long num_blocks() const { return cuda_cpu_count(gridDim); }
    CUDA_CPU_INLINE unsigned long long size() const { return num_threads(); }
    CUDA_CPU_INLINE dim3 block_index() const { return blockIdx; }
    CUDA_CPU_INLINE dim3 dim_blocks() const { return gridDim; }
    CUDA_CPU_INLINE dim3 group_dim() const { return gridDim; }
    __attribute__((error("not on the CPU: the barrier of a whole grid"))) void sync() const;
    bool is_valid() const { return false; }  // no launch here is a cooperative one
};
CUDA_CPU_INLINE grid_group this_grid() { return {}; }

// `above` is the number of threads in the group that was divided.
template <unsigned Size, class Parent = void> class thread_block_tile {
    static_assert(Size > 0 && (Size & (Size - 1)) == 0, "the size of a tile is a power of two");

public:
    CUDA_CPU_INLINE explicit thread_block_tile(unsigned above) : above_(above) {}
    template <class Other>
    CUDA_CPU_INLINE thread_block_tile(const thread_block_tile<Size, Other>& other) : above_(other.cuda_cpu_above()) {}
    CUDA_CPU_INLINE unsigned thread_rank() const { return rank_in_block() % Size; }
    CUDA_CPU_INLINE unsigned meta_group_rank() const { return rank_in_block() % above_ / Size; }
    CUDA_CPU_INLINE unsigned meta_group_size() const { return (above_ + Size - 1) / Size; }
    static constexpr unsigned num_threads() { return Size; }
    static constexpr unsigned size() { return Size; }
    CUDA_CPU_INLINE void sync() const { __syncwarp(mask()); }
    template <class T> CUDA_CPU_INLINE T shfl(T value, int source) const { return __shfl_sync(mask(), value, source, Size); }
    template <class T> CUDA_CPU_INLINE T shfl_up(T value, int delta) const { return __shfl_up_sync(mask(), value, delta, Size); }
    template <class T> CUDA_CPU_INLINE T shfl_down(T value, int delta) const { return __shfl_down_sync(mask(), value, delta, Size); }
    template <class T> CUDA_CPU_INLINE T shfl_xor(T value, int bits) const { return __shfl_xor_sync(mask(), value, bits, Size); }
    CUDA_CPU_INLINE int any(int predicate) const { return __any_sync(mask(), predicate); }
    CUDA_CPU_INLINE int all(int predicate) const { return __all_sync(mask(), predicate); }
    CUDA_CPU_INLINE unsigned ballot(int predicate) const { return __ballot_sync(mask(), predicate) >> shift(); }
    template <class T> CUDA_CPU_INLINE unsigned match_any(T value) const { return __match_any_sync(mask(), value) >> shift(); }
    CUDA_CPU_INLINE unsigned cuda_cpu_above() const { return above_; }

private:
    CUDA_CPU_INLINE static unsigned rank_in_block() { return cuda_cpu_rank(threadIdx, blockDim); }
    CUDA_CPU_INLINE static unsigned shift() { return rank_in_block() % 32 / Size * Size; }
    CUDA_CPU_INLINE static unsigned mask() { return 0xffffffffu >> (32 - Size) << shift(); }
    unsigned above_;
};
template <unsigned Size, class Parent, std::enable_if_t<(Size <= 32), int> = 0>
CUDA_CPU_INLINE thread_block_tile<Size, Parent> tiled_partition(const Parent& parent) {
    return thread_block_tile<Size, Parent>(unsigned(parent.size()));
}
template <unsigned Size, class Parent, std::enable_if_t<(Size > 32), int> = 0>
__attribute__((error("not on the CPU: a tile of more than a warp"))) thread_block_tile<32, Parent> tiled_partition(const Parent& parent);

template <class Group> CUDA_CPU_INLINE void sync(const Group& group) { group.sync(); }
__attribute__((error("not on the CPU: the barrier of a whole grid"))) void sync(const grid_group& grid);

#define CUDA_CPU_ABSENT(name) \
    template <class... Any>               \
    __attribute__((error("not on the CPU: " #name "() of cooperative groups"))) thread_block_tile<32> name(Any&&...);
CUDA_CPU_ABSENT(coalesced_threads)
CUDA_CPU_ABSENT(labeled_partition)
CUDA_CPU_ABSENT(binary_partition)
CUDA_CPU_ABSENT(this_cluster)
CUDA_CPU_ABSENT(this_thread)
CUDA_CPU_ABSENT(invoke_one)
CUDA_CPU_ABSENT(memcpy_async)
CUDA_CPU_ABSENT(wait)
CUDA_CPU_ABSENT(wait_prior)
CUDA_CPU_ABSENT(inclusive_scan)
CUDA_CPU_ABSENT(exclusive_scan)
#undef CUDA_CPU_ABSENT
}  // namespace cooperative_groups
