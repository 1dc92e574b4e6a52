// Reductions over a tile, which all its threads get.
#pragma once

#include "../cooperative_groups.h"

namespace cooperative_groups {
#define CUDA_CPU_OPERATOR(name, expression) \
    template <class T> struct name { CUDA_CPU_INLINE T operator()(T a, T b) const { return expression; } };
CUDA_CPU_OPERATOR(plus, a + b)
CUDA_CPU_OPERATOR(less, b < a ? b : a)
CUDA_CPU_OPERATOR(greater, a < b ? b : a)
CUDA_CPU_OPERATOR(bit_and, a & b)
CUDA_CPU_OPERATOR(bit_or, a | b)
CUDA_CPU_OPERATOR(bit_xor, a ^ b)
#undef CUDA_CPU_OPERATOR
template <unsigned Size, class Parent, class T, class Operator>
CUDA_CPU_INLINE T reduce(const thread_block_tile<Size, Parent>& tile, T value, Operator combine) {
    for (unsigned distance = Size / 2; distance; distance /= 2) value = combine(value, tile.shfl_xor(value, distance));
    return value;
}
}  // namespace cooperative_groups
