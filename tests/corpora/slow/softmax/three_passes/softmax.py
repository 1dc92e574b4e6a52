import torch
import triton
import triton.language as tl


@triton.jit
def _softmax(inp, out, cols, BLOCK: tl.constexpr):
    base = tl.program_id(0).to(tl.int64) * cols
    lane = tl.arange(0, BLOCK)

    row_max = -float("inf")
    for c in range(0, cols, BLOCK):
        x = tl.load(inp + base + c + lane, mask=c + lane < cols, other=-float("inf"))
        row_max = max(row_max, tl.max(x.to(tl.float32), 0))

    norm = 0.0
    for c in range(0, cols, BLOCK):
        x = tl.load(inp + base + c + lane, mask=c + lane < cols, other=-float("inf"))
        norm += tl.sum(tl.exp(x.to(tl.float32) - row_max), 0)

    for c in range(0, cols, BLOCK):
        x = tl.load(inp + base + c + lane, mask=c + lane < cols, other=0)
        tl.store(out + base + c + lane, tl.exp(x.to(tl.float32) - row_max) / norm, mask=c + lane < cols)


def softmax(x: torch.Tensor) -> torch.Tensor:
    x = x.contiguous()
    out = torch.empty_like(x)
    rows, cols = x.shape
    if rows:
        _softmax[(rows,)](x, out, cols, BLOCK=min(8192, triton.next_power_of_2(cols)))
    return out
