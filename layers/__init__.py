"""Caffe's layers as operations on arrays, one family of layers per file.

``base`` holds the code that layers share, ``kernels`` their arithmetic on the CPU and on the GPU.

The package is also pycaffe's ``caffe.layers``, with which nets are written in Python: after
``from scaffe import layers as L``, ``L.Convolution(bottom, num_output=20)`` adds a layer to a net spec.
"""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    """Look up ``L.<Type>``: the function that adds a layer of this type to a net spec (pycaffe's ``caffe.layers``).

    Args:
        name: a layer type, such as "Convolution".

    Returns:
        the function that makes the layer.

    Raises:
        AttributeError: the name does not begin with a capital letter.
    """
    if not name[:1].isupper():  # a module of this package that is not imported yet, or a name of Python's own
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from scaffe.net_spec import layers

    return getattr(layers, name)
