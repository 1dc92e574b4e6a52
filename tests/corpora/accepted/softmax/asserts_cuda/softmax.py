"""Right on a GPU. It asks for CUDA in the ways that course files do."""

import torch
import triton
import triton.language as tl

NUM_SMS = torch.cuda.get_device_properties(torch.cuda.current_device()).multi_processor_count


@triton.jit
def softmax_kernel(x_ptr, y_ptr, rows, cols, x_row, x_col, block: tl.constexpr):
    lanes = tl.arange(0, block)
    for row in range(tl.program_id(0), rows, tl.num_programs(0)):
        x_start = x_ptr + row.to(tl.int64) * x_row
        top = tl.full((block,), float("-inf"), tl.float32)
        for first in range(0, cols, block):
            here = first + lanes
            top = tl.maximum(
                top, tl.load(x_start + here.to(tl.int64) * x_col, mask=here < cols, other=float("-inf")).to(tl.float32)
            )
        m = tl.max(top, axis=0)
        total = tl.zeros((block,), tl.float32)
        for first in range(0, cols, block):
            here = first + lanes
            x = tl.load(x_start + here.to(tl.int64) * x_col, mask=here < cols, other=float("-inf")).to(tl.float32)
            total += tl.exp(x - m)
        s = tl.sum(total, axis=0)
        y_start = y_ptr + row.to(tl.int64) * cols
        for first in range(0, cols, block):
            here = first + lanes
            x = tl.load(x_start + here.to(tl.int64) * x_col, mask=here < cols, other=float("-inf")).to(tl.float32)
            tl.store(y_start + here, (tl.exp(x - m) / s).to(y_ptr.dtype.element_ty), mask=here < cols)


def softmax(x: torch.Tensor) -> torch.Tensor:
    assert x.is_cuda, "x must live on the GPU"
    assert x.device.type == "cuda"
    rows, cols = x.shape
    y = torch.empty((rows, cols), dtype=x.dtype, device="cuda")
    if rows:
        block = min(4096, triton.next_power_of_2(cols))
        with torch.cuda.device(x.device):
            softmax_kernel[(min(rows, 4 * NUM_SMS),)](x, y, rows, cols, x.stride(0), x.stride(1), block=block)
    return y
