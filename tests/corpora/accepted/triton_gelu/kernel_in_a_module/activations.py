import triton
import triton.language as tl

SQRT_2_OVER_PI = tl.constexpr(0.7978845608028654)
COEFFICIENT = tl.constexpr(0.044715)


@triton.heuristics({"BLOCK": lambda args: min(1024, triton.next_power_of_2(args["n"]))})
@triton.jit
def elementwise(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(axis=0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n, other=0).to(tl.float32)
    tanh = 2.0 * tl.sigmoid((x + x * x * x * COEFFICIENT) * SQRT_2_OVER_PI * 2.0) - 1.0
    tl.store(y_ptr + i, 0.5 * x * (1.0 + tanh), mask=i < n)  # the store converts
