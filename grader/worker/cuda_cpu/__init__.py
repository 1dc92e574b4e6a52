"""CUDA C++ on a CPU: builds a `.cu` file with the machine's C++ compiler (`build.py`), and runs its kernels with CUDA's
grids, blocks and threads, checking every access to memory (`runtime.cpp`).
"""
