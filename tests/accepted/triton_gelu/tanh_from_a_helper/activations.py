import triton
import triton.language as tl

SQRT_2_OVER_PI = tl.constexpr(0.7978845608028654)
COEFFICIENT = tl.constexpr(0.044715)


@triton.jit
def tanh(x):
    return 2.0 * tl.sigmoid(2.0 * x) - 1.0


@triton.jit
def gelu(x):
    return 0.5 * x * (1.0 + tanh(SQRT_2_OVER_PI * (x + COEFFICIENT * x * x * x)))
