// __half and __half2 on the CPU: stored in 16 bits, computed in float and rounded after each operation, as a device does.
#pragma once

#include "cuda_runtime.h"

struct alignas(2) __half {
    uint16_t bits;
    __half() = default;
    __half(float value) : bits(encode(value)) {}
    __half(double value) : __half(float(value)) {}
    __half(int value) : __half(float(value)) {}
    operator float() const { return decode(bits); }

    static uint16_t encode(float value) {
        uint32_t word = __float_as_uint(value), sign = word >> 16 & 0x8000, magnitude = word & 0x7fffffff;
        if (magnitude > 0x7f800000) return 0x7fff;                   // NaN
        if (magnitude >= 0x477ff000) return uint16_t(sign | 0x7c00);  // rounds to infinity
        if (magnitude < 0x38800000) {                                // subnormal: in units of 2^-24, the even one of two neighbours
            return uint16_t(sign | uint32_t(std::nearbyint(std::fabs(value) * 16777216.0f)));
        }
        uint32_t rounded = magnitude + 0xfff + (magnitude >> 13 & 1);
        return uint16_t(sign | (rounded - 0x38000000) >> 13);
    }
    static float decode(uint16_t bits) {
        uint32_t sign = uint32_t(bits & 0x8000) << 16, exponent = bits >> 10 & 31, fraction = bits & 1023;
        if (exponent == 31) return __uint_as_float(sign | 0x7f800000 | fraction << 13);
        if (exponent == 0) return (sign ? -1.0f : 1.0f) * float(fraction) / 16777216.0f;
        return __uint_as_float(sign | (exponent + 112) << 23 | fraction << 13);
    }
};
using half = __half;
struct alignas(4) __half2 {
    __half x, y;
};
using half2 = __half2;

#define CUDA_CPU_HALF(T, operation)                                                                        \
    static inline T operator operation(T a, T b) { return T(float(a) operation float(b)); }               \
    static CUDA_CPU_INLINE T& operator operation##=(T& a, T b) { return a = a operation b; }
#define CUDA_CPU_HALVES(T)                                                                                 \
    CUDA_CPU_HALF(T, +) CUDA_CPU_HALF(T, -) CUDA_CPU_HALF(T, *) CUDA_CPU_HALF(T, /)                        \
    static inline T operator-(T a) { return T(-float(a)); }                                                \
    static inline bool operator<(T a, T b) { return float(a) < float(b); }                                 \
    static inline bool operator>(T a, T b) { return float(a) > float(b); }                                 \
    static inline bool operator<=(T a, T b) { return float(a) <= float(b); }                               \
    static inline bool operator>=(T a, T b) { return float(a) >= float(b); }                               \
    static inline bool operator==(T a, T b) { return float(a) == float(b); }                               \
    static inline bool operator!=(T a, T b) { return float(a) != float(b); }                               \
    static inline T __hadd(T a, T b) { return a + b; }                                                     \
    static inline T __hsub(T a, T b) { return a - b; }                                                     \
    static inline T __hmul(T a, T b) { return a * b; }                                                     \
    static inline T __hdiv(T a, T b) { return a / b; }                                                     \
    static inline T __hneg(T a) { return -a; }                                                             \
    static inline T __hmax(T a, T b) { return a > b ? a : b; }                                             \
    static inline T __hmin(T a, T b) { return a < b ? a : b; }                                             \
    static inline T __hfma(T a, T b, T c) { return T(std::fma(float(a), float(b), float(c))); }            \
    static inline T hexp(T a) { return T(std::exp(float(a))); }                                            \
    static inline T htanh(T a) { return T(std::tanh(float(a))); }                                          \
    static inline T hlog(T a) { return T(std::log(float(a))); }                                            \
    static inline T hsqrt(T a) { return T(std::sqrt(float(a))); }                                          \
    static inline T hrsqrt(T a) { return T(1.0f / std::sqrt(float(a))); }
CUDA_CPU_HALVES(__half)

static inline __half __float2half(float value) { return __half(value); }
static inline __half __float2half_rn(float value) { return __half(value); }
static inline float __half2float(__half value) { return float(value); }
static inline __half2 __halves2half2(__half x, __half y) { return {x, y}; }
static inline __half2 make_half2(__half x, __half y) { return {x, y}; }
static inline __half2 __float2half2_rn(float value) { return {__half(value), __half(value)}; }
static inline __half2 __floats2half2_rn(float x, float y) { return {__half(x), __half(y)}; }
static inline __half2 __float22half2_rn(float2 v) { return {__half(v.x), __half(v.y)}; }
static inline float2 __half22float2(__half2 v) { return {float(v.x), float(v.y)}; }
static inline float __low2float(__half2 v) { return float(v.x); }
static inline float __high2float(__half2 v) { return float(v.y); }
static inline __half2 __hadd2(__half2 a, __half2 b) { return {a.x + b.x, a.y + b.y}; }
static inline __half2 __hmul2(__half2 a, __half2 b) { return {a.x * b.x, a.y * b.y}; }
static inline __half2 __hfma2(__half2 a, __half2 b, __half2 c) { return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)}; }
