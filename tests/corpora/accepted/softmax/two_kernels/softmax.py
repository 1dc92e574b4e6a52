import torch
import triton
from row_kernels import long_row, short_row

LONGEST = 16384


class RowSoftmax:
    def __init__(self, x):
        self.x = x
        self.rows, self.cols = x.shape

    def __call__(self):
        y = torch.empty(self.x.shape, device=self.x.device, dtype=self.x.dtype)
        if self.rows == 0:
            return y
        kernel, block = (short_row, triton.next_power_of_2(self.cols)) if self.cols <= LONGEST else (long_row, LONGEST)
        warps = 4 if block < 4096 else 16
        kernel[(self.rows,)](self.x, y, self.cols, self.x.stride(0), self.x.stride(1), BLOCK=block, num_warps=warps)
        return y


def softmax(x):
    return RowSoftmax(x)()
