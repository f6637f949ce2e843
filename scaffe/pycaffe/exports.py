"""Writes a net of Caffe's Python interface for other frameworks."""

from __future__ import annotations

from pathlib import Path

from scaffe.export import torch_file
from scaffe.pycaffe.net import Net


def export_torch(net: Net, path: str | Path) -> None:
    """Write a deploy net as a PyTorch module, ``path``, and its weights beside it as safetensors.

    Args:
        net: of the TEST phase, with inputs.
        path: the ``.py`` file, whose name is a module's; the weights get its name with ``.safetensors``.

    Raises:
        UserError: as ``scaffe.export.torch_file.export_torch``.
    """
    torch_file.export_torch(net._net, path)
