"""CUDA C++ on the CPU, for correctness: a `.cu` file is built with the machine's C++ compiler and run with CUDA's grid, block and
thread semantics, every access to memory looked at. See `build.py`; the semantics are in `runtime.cpp`.
"""
