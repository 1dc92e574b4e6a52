"""Usual mistakes in GeLU, the same in CUDA C++ and in Triton."""

from __future__ import annotations

from grader.problem import load_beside

suspects = load_beside(__file__, "../_gelu/mistakes.py").suspects
