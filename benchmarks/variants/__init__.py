"""Variants of the reference kernels, tried against each other: what `benchmarks/try_variants.py` measures."""
