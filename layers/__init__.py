"""Maths on arrays: Caffe's layers, one family a file; what they share is in ``base``, their arithmetic in ``kernels``.

``from scaffe import layers as L`` is pycaffe's way of writing nets, too: ``L.Convolution(bottom, num_output=20)`` is a
layer of a net spec.
"""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    """A layer type, as Caffe's ``caffe.layers`` has it: the function that adds one to a net spec."""
    if not name[:1].isupper():  # a module of this package that is not imported yet, or a name of Python's own
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from scaffe.proto.net_spec import layers

    return getattr(layers, name)
