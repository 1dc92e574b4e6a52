import torch
import triton
import triton.language as tl


@triton.jit
def gelu_2d(x_ptr, y_ptr, rows, cols, x_row, x_col, y_row, y_col, BR: tl.constexpr, BC: tl.constexpr):
    r = (tl.program_id(0).to(tl.int64) * BR + tl.arange(0, BR))[:, None]
    c = (tl.program_id(1).to(tl.int64) * BC + tl.arange(0, BC))[None, :]
    inside = (r < rows) & (c < cols)
    x = tl.load(x_ptr + r * x_row + c * x_col, mask=inside, other=0.0).to(tl.float32)
    u = 1.5957691216057308 * (x + 0.044715 * x * x * x)
    y = x / (1.0 + tl.exp(-u))
    tl.store(y_ptr + r * y_row + c * y_col, y.to(y_ptr.dtype.element_ty), mask=inside)


def triton_gelu(x):
    shape = x.shape
    y = torch.empty(shape, dtype=x.dtype, device=x.device)
    if x.numel() == 0:
        return y
    # two dimensions as they are; anything else as one long column of rows
    x2 = x if x.dim() == 2 else x.reshape(-1, 1)
    y2 = y if x.dim() == 2 else y.view(-1, 1)
    br, bc = (32, 32) if x.dim() == 2 else (1024, 1)
    grid = (triton.cdiv(x2.shape[0], br), triton.cdiv(x2.shape[1], bc))
    gelu_2d[grid](x2, y2, *x2.shape, *x2.stride(), *y2.stride(), BR=br, BC=bc)
    return y
