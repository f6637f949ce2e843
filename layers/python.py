"""Layers written by users in Python: ``type: "Python"`` with python_param, as in Caffe 1.0's Python interface."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from traceback import extract_tb
from types import ModuleType, TracebackType
from typing import Any, NoReturn

import numpy as np

from scaffe.errors import mark_users_error
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


class UserBlobs(list[UserBlob]):
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
        raise NotImplementedError(f"{type(self).__name__} has no reshape")

    def forward(self, bottom: Sequence[UserBlob], top: Sequence[UserBlob]) -> None:
        """Write the tops' data."""
        raise NotImplementedError(f"{type(self).__name__} has no forward")

    def backward(self, top: Sequence[UserBlob], propagate_down: Sequence[bool], bottom: Sequence[UserBlob]) -> None:
        """Write the diffs of the bottoms asked for; add to the parameters'."""
        raise NotImplementedError(f"{type(self).__name__} has no backward")


@layer_types.register("Python")
class Python(Layer):
    """Runs a user's layer. What the user's own code raises keeps its type and traceback; a note names the layer."""

    n_bottoms = (0, None)
    n_tops = (0, None)
    reshape_always = True
    host_only = True

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Find the user's class, make one and set it up. Raises LayerError where it cannot be found."""
        p = self.param.python_param
        self.user: Any = self._run(self._find(p.module, p.layer))
        self.user.param_str, self.user.phase, self.user.blobs = p.param_str, self.context.phase, UserBlobs(self)
        self._run(self.user.setup, _shown(bottom), _shown(top))

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """The user's reshape."""
        self._run(self.user.reshape, _shown(bottom), _shown(top))

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """The user's forward."""
        self._run(self.user.forward, _shown(bottom), _shown(top))

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        """The user's backward."""
        self._run(self.user.backward, _shown(top), list(propagate_down), _shown(bottom))

    def _find(self, module: str, name: str) -> type[UserLayer]:
        """The class that the prototxt names. As in Caffe only a Layer is made: a prototxt may be a stranger's."""
        if not all(part.isidentifier() for part in module.split(".")):
            raise LayerError(f"python_param.module {module!r} is no module's name")
        found = self._import(module)
        layer, file = getattr(found, name, None), getattr(found, "__file__", "built in")
        if layer is None:
            raise LayerError(f"module {module!r} ({file}) has no {name!r} (python_param.layer)")
        if not (isinstance(layer, type) and issubclass(layer, UserLayer)):
            raise LayerError(f"{name!r} of module {module!r} ({file}) is no subclass of caffe.Layer")
        return layer

    def _import(self, module: str) -> ModuleType:
        try:
            return importlib.import_module(module)
        except SyntaxError as error:
            raise LayerError(f"cannot import python_param.module {module!r}: {error.filename}, line {error.lineno}: "
                             f"{error.msg}") from error
        except (Exception, SystemExit) as error:
            if trace := _behind_importlib(error.__traceback__):
                self._raise(f"importing {module!r}", error, trace)
            hint = "; is it on PYTHONPATH?" if isinstance(error, ModuleNotFoundError) else ""
            raise LayerError(f"cannot import python_param.module {module!r}: {error}{hint}") from error

    def _run(self, code: Callable[..., Any], *arguments: Any) -> Any:
        """Call the user's code, and put the layer's name to what it raises."""
        try:
            return code(*arguments)
        except (Exception, SystemExit) as error:
            trace = error.__traceback__ and error.__traceback__.tb_next
            self._raise(code.__qualname__, error, trace)

    def _raise(self, what: str, error: BaseException, trace: TracebackType | None) -> NoReturn:
        """Raise what the user's code raised, marked as theirs; a LayerError in place of ``sys.exit``."""
        raised, said = error, f"raised {type(error).__name__}: {error}"
        if isinstance(error, SystemExit):
            said = f"called sys.exit({error.code!r})"
            raised = LayerError(said)
        frames = extract_tb(trace)
        place = f" ({frames[-1].filename}, line {frames[-1].lineno})" if frames else ""
        line = " ".join(f"layer {self.param.name!r} (Python): {what} {said}{place}".split())
        mark_users_error(raised, line, trace)
        raise raised from (error if raised is not error else error.__cause__)


def _behind_importlib(trace: TracebackType | None) -> TracebackType | None:
    """Where the imported module's own code begins in a traceback of ``import_module``; None where it does not."""
    trace = trace and trace.tb_next
    while trace is not None and "importlib" in trace.tb_frame.f_code.co_filename:
        trace = trace.tb_next
    return trace


def _shown(blobs: Sequence[Blob]) -> list[UserBlob]:
    return [UserBlob(blob) for blob in blobs]
