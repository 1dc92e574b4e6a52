import torch
import triton
import triton.language as tl


@triton.jit
def one_launch(x_ptr, y_ptr, part_m_ptr, part_s_ptr, cols, parts, block: tl.constexpr, parts_block: tl.constexpr):
    """Program p of a row leaves its part's maximum and sum; the row's last program takes all of them. Nothing makes it wait."""
    row = tl.program_id(0).to(tl.int64) // parts
    part = tl.program_id(0) % parts
    here = part * block + tl.arange(0, block)
    x = tl.load(x_ptr + row * cols + here, mask=here < cols, other=float("-inf")).to(tl.float32)
    m = tl.max(x, 0)
    tl.store(part_m_ptr + row * parts + part, m)
    tl.store(part_s_ptr + row * parts + part, tl.sum(tl.where(m == float("-inf"), 0.0, tl.exp(x - m)), 0))
    if part == parts - 1:
        each = tl.arange(0, parts_block)
        ms = tl.load(part_m_ptr + row * parts + each, mask=each < parts, other=float("-inf"))
        ss = tl.load(part_s_ptr + row * parts + each, mask=each < parts, other=0.0)
        top = tl.max(ms, 0)
        total = tl.sum(tl.where(ms == float("-inf"), 0.0, ss * tl.exp(ms - top)), 0)
        for first in range(0, cols, block):
            at = first + tl.arange(0, block)
            v = tl.load(x_ptr + row * cols + at, mask=at < cols, other=float("-inf")).to(tl.float32)
            tl.store(y_ptr + row * cols + at, (tl.exp(v - top) / total).to(y_ptr.dtype.element_ty), mask=at < cols)


def softmax(x: torch.Tensor) -> torch.Tensor:
    x = x.contiguous()
    y = torch.empty_like(x)
    rows, cols = x.shape
    if rows:
        block = min(2048, triton.next_power_of_2(cols))
        parts = triton.cdiv(cols, block)
        m = torch.empty((rows, parts), dtype=torch.float32, device=x.device)
        s = torch.empty((rows, parts), dtype=torch.float32, device=x.device)
        one_launch[(parts * rows,)](x, y, m, s, cols, parts, block=block, parts_block=triton.next_power_of_2(parts))
    return y
