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
    __half2() = default;
    __half2(__half x, __half y) : x(x), y(y) {}
};
using half2 = __half2;
using nv_half = __half;
using nv_half2 = __half2;

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
    static inline bool __hisnan(T a) { return std::isnan(float(a)); }                                      \
    static inline T __hmax(T a, T b) { return a > b ? a : b; }                                             \
    static inline T __hmin(T a, T b) { return a < b ? a : b; }                                             \
    static inline T __hmax_nan(T a, T b) { return __hisnan(a) || __hisnan(b) ? T(NAN) : __hmax(a, b); }    \
    static inline T __hmin_nan(T a, T b) { return __hisnan(a) || __hisnan(b) ? T(NAN) : __hmin(a, b); }    \
    static inline bool __hne(T a, T b) { return a < b || a > b; }                                          \
    static inline int __hisinf(T a) { return std::isinf(float(a)) ? float(a) > 0 ? 1 : -1 : 0; }           \
    static inline T hexp2(T a) { return T(std::exp2(float(a))); }                                          \
    static inline T hlog2(T a) { return T(std::log2(float(a))); }                                          \
    static inline T hsin(T a) { return T(std::sin(float(a))); }                                            \
    static inline T hcos(T a) { return T(std::cos(float(a))); }                                            \
    static inline T hfloor(T a) { return T(std::floor(float(a))); }                                        \
    static inline T hceil(T a) { return T(std::ceil(float(a))); }                                          \
    static inline T htrunc(T a) { return T(std::trunc(float(a))); }                                        \
    static inline T hrint(T a) { return T(std::nearbyint(float(a))); }                                     \
    static inline T __hfma(T a, T b, T c) { return T(std::fma(float(a), float(b), float(c))); }            \
    static inline T hexp(T a) { return T(std::exp(float(a))); }                                            \
    static inline T htanh(T a) { return T(std::tanh(float(a))); }                                          \
    static inline T hlog(T a) { return T(std::log(float(a))); }                                            \
    static inline T hsqrt(T a) { return T(std::sqrt(float(a))); }                                          \
    static inline T hrsqrt(T a) { return T(1.0f / std::sqrt(float(a))); }                                  \
    static inline T hrcp(T a) { return T(1.0f / float(a)); }                                               \
    static inline T __habs(T a) { return T(std::fabs(float(a))); }                                         \
    static inline bool __hlt(T a, T b) { return a < b; }                                                   \
    static inline bool __hgt(T a, T b) { return a > b; }                                                   \
    static inline bool __hle(T a, T b) { return a <= b; }                                                  \
    static inline bool __hge(T a, T b) { return a >= b; }                                                  \
    static inline bool __heq(T a, T b) { return a == b; }
CUDA_CPU_HALVES(__half)

// Pairs: each of the two on its own; a comparison asks whether it holds for both.
#define CUDA_CPU_PAIR(P, operation)                                                                        \
    static inline P operator operation(P a, P b) { return {a.x operation b.x, a.y operation b.y}; }        \
    static CUDA_CPU_INLINE P& operator operation##=(P& a, P b) { return a = a operation b; }
#define CUDA_CPU_BOTH(P, operation)                                                                        \
    static inline bool operator operation(P a, P b) { return a.x operation b.x && a.y operation b.y; }
#define CUDA_CPU_EACH(P, name, of)                                                                         \
    static inline P name(P a) { return {of(a.x), of(a.y)}; }
#define CUDA_CPU_PAIRS(P)                                                                                  \
    CUDA_CPU_PAIR(P, +) CUDA_CPU_PAIR(P, -) CUDA_CPU_PAIR(P, *) CUDA_CPU_PAIR(P, /)                        \
    CUDA_CPU_BOTH(P, ==) CUDA_CPU_BOTH(P, !=) CUDA_CPU_BOTH(P, <) CUDA_CPU_BOTH(P, >)                      \
    CUDA_CPU_BOTH(P, <=) CUDA_CPU_BOTH(P, >=)                                                              \
    static inline P operator-(P a) { return {-a.x, -a.y}; }                                                \
    static inline P __hadd2(P a, P b) { return a + b; }                                                    \
    static inline P __hsub2(P a, P b) { return a - b; }                                                    \
    static inline P __hmul2(P a, P b) { return a * b; }                                                    \
    static inline P __h2div(P a, P b) { return a / b; }                                                    \
    static inline P __hmax2(P a, P b) { return {__hmax(a.x, b.x), __hmax(a.y, b.y)}; }                     \
    static inline P __hmin2(P a, P b) { return {__hmin(a.x, b.x), __hmin(a.y, b.y)}; }                     \
    static inline P __hfma2(P a, P b, P c) { return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)}; }      \
    CUDA_CPU_EACH(P, __hneg2, -) CUDA_CPU_EACH(P, __habs2, __habs) CUDA_CPU_EACH(P, h2exp, hexp)           \
    CUDA_CPU_EACH(P, h2log, hlog) CUDA_CPU_EACH(P, h2sqrt, hsqrt) CUDA_CPU_EACH(P, h2rsqrt, hrsqrt)        \
    CUDA_CPU_EACH(P, h2rcp, hrcp) CUDA_CPU_EACH(P, h2tanh, htanh)                                          \
    static inline float __low2float(P v) { return float(v.x); }                                            \
    static inline float __high2float(P v) { return float(v.y); }
CUDA_CPU_PAIRS(__half2)

static inline __half __float2half(float value) { return __half(value); }
static inline __half __float2half_rn(float value) { return __half(value); }
static inline float __half2float(__half value) { return float(value); }
static inline __half2 __halves2half2(__half x, __half y) { return {x, y}; }
static inline __half2 make_half2(__half x, __half y) { return {x, y}; }
static inline __half2 __float2half2_rn(float value) { return {__half(value), __half(value)}; }
static inline __half2 __floats2half2_rn(float x, float y) { return {__half(x), __half(y)}; }
static inline __half2 __float22half2_rn(float2 v) { return {__half(v.x), __half(v.y)}; }
static inline float2 __half22float2(__half2 v) { return {float(v.x), float(v.y)}; }
static inline __half2 __half2half2(__half v) { return {v, v}; }
static inline __half __low2half(__half2 v) { return v.x; }
static inline __half __high2half(__half2 v) { return v.y; }
static inline __half __double2half(double value) { return __half(value); }
static inline __half __int2half_rn(int value) { return __half(value); }
static inline int __half2int_rn(__half v) { return __float2int_rn(float(v)); }
static inline int __half2int_rz(__half v) { return __float2int_rz(float(v)); }
static inline __half2 __lows2half2(__half2 a, __half2 b) { return {a.x, b.x}; }
static inline __half2 __highs2half2(__half2 a, __half2 b) { return {a.y, b.y}; }
static inline __half2 __low2half2(__half2 v) { return {v.x, v.x}; }
static inline __half2 __high2half2(__half2 v) { return {v.y, v.y}; }
static inline __half2 __lowhigh2highlow(__half2 v) { return {v.y, v.x}; }
static inline unsigned short __half_as_ushort(__half v) { return v.bits; }
static inline __half __ushort_as_half(unsigned short bits) {
    __half v;
    v.bits = bits;
    return v;
}
