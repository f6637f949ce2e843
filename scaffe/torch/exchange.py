"""Tensors between pairs of ranks, over the communicator's messages."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch

from scaffe.collectives import CommError, Communicator
from scaffe.collectives.runtime.point_to_point import MAX_TAG
from scaffe.torch.tensors import array_of, put_bytes, raw
from scaffe.torch.work import MessageWork

TAG = MAX_TAG
"""Of all_to_all, gather and scatter; programs' own tags lie below."""


def check_tag(tag: int) -> int:
    """Gives a program's tag. Raises CommError where it is not below `TAG`."""
    if not 0 <= tag < TAG:
        raise CommError(f"tag must be 0 to {TAG - 1}, not {tag}")
    return tag


class Exchange:
    """Sends and receives that are waited for together. Tensors on a GPU go through host memory."""

    def __init__(self, communicator: Communicator, tag: int = TAG) -> None:
        """Args:
            communicator: whose messages they are.
            tag: of all of them.
        """
        self._communicator, self._tag = communicator, tag

    def start(self, outgoing: Mapping[int, torch.Tensor], incoming: Mapping[int, torch.Tensor],
              result: Any) -> MessageWork:
        """Starts them; a tensor without elements is not sent.

        Args:
            outgoing: what each rank is sent.
            incoming: what is written by what each rank sends, of the same number of bytes; -1 for whichever rank.
            result: of the work's future.
        """
        own, messages, steps = self._communicator.rank, [], []
        for peer, tensor in incoming.items():
            if tensor.numel() and peer != own:
                flat = raw(tensor)
                messages.append(self._communicator.messages.irecv(array_of(flat), peer, self._tag))
                steps.append(partial(put_bytes, flat, tensor))
        for peer, tensor in outgoing.items():
            if tensor.numel() and peer != own:
                messages.append(self._communicator.messages.isend(array_of(raw(tensor)), peer, self._tag))
        if own in incoming and own in outgoing:
            incoming[own].detach().copy_(outgoing[own])
        return MessageWork(messages, steps, result)


