import torch
import triton
import triton.language as tl
from triton.runtime import driver

DEVICE = triton.runtime.driver.active.get_active_torch_device()


def is_hip():
    return triton.runtime.driver.active.get_current_target().backend == "hip"


properties = driver.active.utils.get_device_properties(DEVICE.index)
NUM_SM = properties["multiprocessor_count"]
NUM_REGS = properties["max_num_regs"]
SIZE_SMEM = properties["max_shared_mem"]
WARP_SIZE = properties["warpSize"]
target = triton.runtime.driver.active.get_current_target()
kernels = {}


# A kernel that is kept must not have been compiled for one row: Triton makes a constant of every 1.
@triton.jit(do_not_specialize=["input_row_stride", "input_col_stride", "output_row_stride", "n_rows", "n_cols"])
def softmax_kernel(
    output_ptr,
    input_ptr,
    input_row_stride,
    input_col_stride,
    output_row_stride,
    n_rows,
    n_cols,
    BLOCK_SIZE: tl.constexpr,
    num_stages: tl.constexpr,
):
    row_start = tl.program_id(0)
    row_step = tl.num_programs(0)
    for row_idx in tl.range(row_start, n_rows, row_step, num_stages=num_stages):
        row_start_ptr = input_ptr + row_idx.to(tl.int64) * input_row_stride
        col_offsets = tl.arange(0, BLOCK_SIZE)
        input_ptrs = row_start_ptr + col_offsets.to(tl.int64) * input_col_stride
        mask = col_offsets < n_cols
        row = tl.load(input_ptrs, mask=mask, other=-float("inf")).to(tl.float32)
        row_minus_max = row - tl.max(row, axis=0)
        numerator = tl.exp(row_minus_max)
        denominator = tl.sum(numerator, axis=0)
        softmax_output = numerator / denominator
        output_row_start_ptr = output_ptr + row_idx.to(tl.int64) * output_row_stride
        tl.store(output_row_start_ptr + col_offsets, softmax_output.to(output_ptr.dtype.element_ty), mask=mask)


@triton.jit
def long_rows_kernel(y_ptr, x_ptr, x_row, x_col, n_cols, BLOCK_SIZE: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    lanes = tl.arange(0, BLOCK_SIZE)
    top = tl.full((BLOCK_SIZE,), -float("inf"), tl.float32)
    for start in range(0, n_cols, BLOCK_SIZE):
        here = start + lanes
        x = tl.load(x_ptr + row * x_row + here.to(tl.int64) * x_col, mask=here < n_cols, other=-float("inf"))
        top = tl.maximum(top, x.to(tl.float32))
    m = tl.max(top, axis=0)
    total = tl.zeros((BLOCK_SIZE,), tl.float32)
    for start in range(0, n_cols, BLOCK_SIZE):
        here = start + lanes
        x = tl.load(x_ptr + row * x_row + here.to(tl.int64) * x_col, mask=here < n_cols, other=-float("inf"))
        total += tl.exp(x.to(tl.float32) - m)
    s = tl.sum(total, axis=0)
    for start in range(0, n_cols, BLOCK_SIZE):
        here = start + lanes
        x = tl.load(x_ptr + row * x_row + here.to(tl.int64) * x_col, mask=here < n_cols, other=-float("inf"))
        y = tl.exp(x.to(tl.float32) - m) / s
        tl.store(y_ptr + row * n_cols + here, y.to(y_ptr.dtype.element_ty), mask=here < n_cols)


def softmax(x):
    assert x.device == DEVICE
    n_rows, n_cols = x.shape
    BLOCK_SIZE = triton.next_power_of_2(n_cols)
    num_warps = 8
    num_stages = 4 if SIZE_SMEM > 200000 else 2
    y = torch.empty(x.shape, dtype=x.dtype, device=DEVICE)
    if not y.numel():
        return y
    if BLOCK_SIZE > 8192:
        long_rows_kernel[(n_rows,)](y, x, x.stride(0), x.stride(1), n_cols, BLOCK_SIZE=8192)
        return y
    kernel, num_programs = kernels.get((BLOCK_SIZE, x.dtype, x.data_ptr() % 16), (None, 0))
    if kernel is None:
        kernel = softmax_kernel.warmup(
            y,
            x,
            x.stride(0),
            x.stride(1),
            y.stride(0),
            n_rows,
            n_cols,
            BLOCK_SIZE=BLOCK_SIZE,
            num_stages=num_stages,
            num_warps=num_warps,
            grid=(1,),
        )
        kernel._init_handles()
        n_regs = kernel.n_regs
        size_smem = kernel.metadata.shared
        occupancy = NUM_REGS // (n_regs * WARP_SIZE * num_warps)
        occupancy = min(occupancy, SIZE_SMEM // max(1, size_smem))
        num_programs = NUM_SM * occupancy
        kernels[(BLOCK_SIZE, x.dtype, x.data_ptr() % 16)] = kernel, num_programs
    num_programs = min(num_programs, n_rows)
    kernel[(num_programs, 1, 1)](y, x, x.stride(0), x.stride(1), y.stride(0), n_rows, n_cols, BLOCK_SIZE, num_stages)
    return y
