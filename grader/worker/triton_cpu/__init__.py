"""Triton's interpreter, which runs kernels on a CPU: the memory that they touch, held against the tensors that there are."""
