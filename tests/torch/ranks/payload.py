"""Tensors that differ for every rank and element."""

import torch


def payload(rank, n_elems, dtype=torch.float32):
    """Small integers: sums over ranks are exact in every dtype, products small."""
    elems = torch.arange(n_elems)
    if dtype is torch.bool:
        return (elems + rank) % 3 == 0
    limit = {torch.bfloat16: 32, torch.int8: 15, torch.uint8: 31}.get(dtype, 128)
    return ((elems * 37 + rank * 11 + elems * rank) % limit).to(dtype)
