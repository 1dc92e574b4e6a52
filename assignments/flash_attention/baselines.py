"""The baselines that a submission is timed against. Arguments as a student's function: q (batch, n, d), k and v (batch,
n_keys, d).
"""

from __future__ import annotations

import math

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention


def eager(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, is_causal: bool = False) -> torch.Tensor:
    """Attention as in textbooks: softmax(q kᵀ / √d) v, with the whole matrix of scores in memory."""
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    if is_causal:
        later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
        scores = scores.masked_fill(later, float("-inf"))
    return torch.softmax(scores, dim=-1) @ v


def sdpa_flash(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, is_causal: bool = False) -> torch.Tensor:
    """PyTorch's FlashAttention-2; raises an error if it does not support the inputs."""
    return _sdpa(SDPBackend.FLASH_ATTENTION, q, k, v, is_causal)


def sdpa_cudnn(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, is_causal: bool = False) -> torch.Tensor:
    """NVIDIA's kernel in cuDNN; raises an error if it does not support the inputs."""
    return _sdpa(SDPBackend.CUDNN_ATTENTION, q, k, v, is_causal)


def _sdpa(backend: SDPBackend, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, is_causal: bool) -> torch.Tensor:
    with sdpa_kernel(backend):  # the argument's shape is (batch, heads, n, d), with one head
        o: torch.Tensor = scaled_dot_product_attention(
            q.unsqueeze(1), k.unsqueeze(1), v.unsqueeze(1), is_causal=is_causal
        )
    return o.squeeze(1)
