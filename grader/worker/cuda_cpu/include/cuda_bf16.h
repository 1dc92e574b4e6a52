// __nv_bfloat16 on the CPU: the upper 16 bits of a float, computed in float and rounded after each operation.
#pragma once

#include "cuda_fp16.h"

struct alignas(2) __nv_bfloat16 {
    uint16_t bits;
    __nv_bfloat16() = default;
    __nv_bfloat16(float value) : bits(encode(value)) {}
    __nv_bfloat16(double value) : __nv_bfloat16(float(value)) {}
    __nv_bfloat16(int value) : __nv_bfloat16(float(value)) {}
    operator float() const { return __uint_as_float(uint32_t(bits) << 16); }

    static uint16_t encode(float value) {
        uint32_t word = __float_as_uint(value);
        if ((word & 0x7fffffff) > 0x7f800000) return 0x7fff;  // NaN
        return uint16_t((word + 0x7fff + (word >> 16 & 1)) >> 16);
    }
};
struct alignas(4) __nv_bfloat162 {
    __nv_bfloat16 x, y;
    __nv_bfloat162() = default;
    __nv_bfloat162(__nv_bfloat16 x, __nv_bfloat16 y) : x(x), y(y) {}
};
using nv_bfloat16 = __nv_bfloat16;
using nv_bfloat162 = __nv_bfloat162;
CUDA_CPU_HALVES(__nv_bfloat16)
CUDA_CPU_PAIRS(__nv_bfloat162)

static inline __nv_bfloat16 __float2bfloat16(float value) { return __nv_bfloat16(value); }
static inline __nv_bfloat16 __float2bfloat16_rn(float value) { return __nv_bfloat16(value); }
static inline float __bfloat162float(__nv_bfloat16 value) { return float(value); }
static inline float2 __bfloat1622float2(__nv_bfloat162 v) { return {float(v.x), float(v.y)}; }
static inline __nv_bfloat162 __floats2bfloat162_rn(float x, float y) { return {__nv_bfloat16(x), __nv_bfloat16(y)}; }
static inline __nv_bfloat162 __float22bfloat162_rn(float2 v) { return {__nv_bfloat16(v.x), __nv_bfloat16(v.y)}; }
static inline __nv_bfloat162 __float2bfloat162_rn(float v) { return {__nv_bfloat16(v), __nv_bfloat16(v)}; }
static inline __nv_bfloat162 __bfloat162bfloat162(__nv_bfloat16 v) { return {v, v}; }
static inline __nv_bfloat162 __halves2bfloat162(__nv_bfloat16 x, __nv_bfloat16 y) { return {x, y}; }
static inline __nv_bfloat162 make_bfloat162(__nv_bfloat16 x, __nv_bfloat16 y) { return {x, y}; }
static inline __nv_bfloat16 __low2bfloat16(__nv_bfloat162 v) { return v.x; }
static inline __nv_bfloat16 __high2bfloat16(__nv_bfloat162 v) { return v.y; }
static inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 v) { return v.bits; }
static inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short bits) {
    __nv_bfloat16 v;
    v.bits = bits;
    return v;
}
