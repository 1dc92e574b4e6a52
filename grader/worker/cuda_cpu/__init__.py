"""CUDA C++ on the CPU: builds a `.cu` file with the machine's C++ compiler and runs it with CUDA's grid, block and thread semantics,
checking every access to memory. See `build.py`; the semantics are in `runtime.cpp`.
"""
