"""Triton's interpreter, which runs kernels on a CPU, changed to compute as a GPU does and to check each access to
memory.
"""
