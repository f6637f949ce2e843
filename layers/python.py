"""Layers written by users in Python: ``type: "Python"`` with python_param, as in Caffe 1.0's Python interface."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from scaffe.layers.base.blob import Blob, Shape
from scaffe.layers.base.errors import LayerError
from scaffe.layers.base.layer import Layer, layer_types


class UserBlob:
    """A blob as Caffe's Python interface shows it.

    Args:
        blob: the blob that it shows; ``data`` and ``diff`` are its views in Caffe's order and write through.
    """

    def __init__(self, blob: Blob) -> None:
        self._blob = blob

    @property
    def data(self) -> np.ndarray:
        """The data."""
        return self._blob.data

    @property
    def diff(self) -> np.ndarray:
        """The gradient."""
        return self._blob.diff

    @property
    def shape(self) -> Shape:
        """The shape."""
        return self._blob.shape

    @property
    def count(self) -> int:
        """Number of elements."""
        return self._blob.n_elems

    @property
    def num(self) -> int:
        """First of the four old dimensions."""
        return self._legacy(0)

    @property
    def channels(self) -> int:
        """Second of the four old dimensions."""
        return self._legacy(1)

    @property
    def height(self) -> int:
        """Third of the four old dimensions."""
        return self._legacy(2)

    @property
    def width(self) -> int:
        """Last of the four old dimensions."""
        return self._legacy(3)

    def reshape(self, *dims: int) -> None:
        """Take a new shape."""
        self._blob.reshape(dims)

    def _legacy(self, axis: int) -> int:
        return self._blob.shape[axis] if axis < self._blob.ndim else 1


class UserBlobs(list):
    """A user's layer's parameters; ``add_blob(*shape)`` adds one, of zeros."""

    def __init__(self, owner: Layer) -> None:
        super().__init__()
        self._owner = owner

    def add_blob(self, *dims: int) -> None:
        """Declare a parameter."""
        self.append(UserBlob(self._owner.add_blob(dims, None)))


class UserLayer:
    """The base of users' layers, which give setup, reshape, forward and backward (Caffe's ``caffe.Layer``).

    Attributes:
        type, param_str, phase: from the prototxt and the net.
        blobs: the layer's parameters; setup may call ``self.blobs.add_blob(*shape)``.
    """

    type: str = "Python"
    param_str: str = ""
    phase: int = 0
    blobs: UserBlobs

    def setup(self, bottom: Sequence[UserBlob], top: Sequence[UserBlob]) -> None:
        """Called once."""

    def reshape(self, bottom: Sequence[UserBlob], top: Sequence[UserBlob]) -> None:
        """Shape the tops; called before every forward."""
        raise NotImplementedError

    def forward(self, bottom: Sequence[UserBlob], top: Sequence[UserBlob]) -> None:
        """Write the tops' data."""
        raise NotImplementedError

    def backward(self, top: Sequence[UserBlob], propagate_down: Sequence[bool], bottom: Sequence[UserBlob]) -> None:
        """Write the diffs of the bottoms asked for; add to the parameters'."""
        raise NotImplementedError


@layer_types.register("Python")
class Python(Layer):
    """Runs a user's layer. What the user's own code raises goes through unchanged, with its traceback."""

    n_bottoms = (0, None)
    n_tops = (0, None)
    reshape_always = True
    host_only = True

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Find the user's class, make one and set it up. Raises LayerError where it cannot be found."""
        p = self.param.python_param
        self.user: Any = self._find(p.module, p.layer)()
        self.user.param_str, self.user.phase, self.user.blobs = p.param_str, self.context.phase, UserBlobs(self)
        self.user.setup(_shown(bottom), _shown(top))

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """The user's reshape."""
        self.user.reshape(_shown(bottom), _shown(top))

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """The user's forward."""
        self.user.forward(_shown(bottom), _shown(top))

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        """The user's backward."""
        self.user.backward(_shown(top), list(propagate_down), _shown(bottom))

    @staticmethod
    def _find(module: str, name: str) -> Any:
        try:
            found = importlib.import_module(module)
        except ImportError as error:
            raise LayerError(f"cannot import python_param.module {module!r}: {error}; is it on PYTHONPATH?") from error
        if not hasattr(found, name):
            raise LayerError(f"module {module!r} has no {name!r} (python_param.layer)")
        return getattr(found, name)


def _shown(blobs: Sequence[Blob]) -> list[UserBlob]:
    return [UserBlob(blob) for blob in blobs]
