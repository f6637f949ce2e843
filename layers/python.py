"""Layers that users write in Python: ``type: "Python"`` with python_param (Caffe 1.0's Python interface)."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Sequence
from enum import IntEnum
from traceback import extract_tb
from types import ModuleType, TracebackType
from typing import Any, NoReturn

import numpy as np

from scaffe import forking
from scaffe.errors import LayerError, mark_users_error
from scaffe.layers.base.blob import Blob, Shape
from scaffe.layers.base.layer import TRAIN, Layer, layer_types
from scaffe.log import warning


def _legacy_axis(axis: int, name: str) -> property:
    def length(self: UserBlob) -> int:
        return self.shape[axis] if axis < len(self.shape) else 1

    return property(length, doc=f"Length of axis {axis}, {name}; 1 if there is no such axis.")


class UserBlob:
    """A blob with the attributes that Caffe's Python interface gives it.

    ``data`` and ``diff`` are arrays in Caffe's order, (N, C, H, W) for images; writing to them writes to the blob.

    Args:
        blob: the blob to wrap.
    """

    def __init__(self, blob: Blob) -> None:
        self._blob = blob

    @property
    def data(self) -> np.ndarray:
        """The data, an array in Caffe's order that can be written to."""
        return self._blob.data

    @property
    def diff(self) -> np.ndarray:
        """The gradient, an array in Caffe's order that can be written to."""
        return self._blob.diff

    @property
    def shape(self) -> Shape:
        """The lengths of the axes, in Caffe's order."""
        return self._blob.shape

    @property
    def count(self) -> int:
        """The number of elements."""
        return self._blob.n_elems

    num, channels, height, width = map(_legacy_axis, range(4), "NCHW")

    def reshape(self, *dims: int) -> None:
        """Change the shape; ``dims`` are the lengths of the axes."""
        self._blob.reshape(dims)

    def __dlpack__(self, **options: Any) -> Any:
        """The data's own memory for another library (DLPack): ``torch.from_dlpack(blob)``, ``numpy.from_dlpack(blob)``.

        Its holder may write at any time. ``options`` are the protocol's.

        Raises:
            BufferError: the blob's type is none of the protocol's, or of the library's.
        """
        return self._lent().__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        """DLPack's number of the kind of device whose memory the data are in, and the device's own."""
        kind, number = self._blob.data.__dlpack_device__()
        return int(kind), int(number)

    def _lent(self) -> Any:
        """The data as an array of the library that they are of, to which its holder may write at any time."""
        return self.data


class Phase(IntEnum):
    """Caffe's phase: a number whose text is its name."""

    TRAIN = 0
    TEST = 1

    def __str__(self) -> str:
        return self.name


class RawBlobVec(list[UserBlob]):
    """The bottoms or tops of a user's layer."""


class BlobVec(list[UserBlob]):
    """The learnable parameters of a layer; a user's own adds one with ``add_blob(*shape)``.

    Args:
        blobs: the parameters that there are.
        owner: the layer that ``add_blob`` adds to; None: its parameters are as its type has them.
    """

    def __init__(self, blobs: Iterable[UserBlob] = (), owner: Layer | None = None) -> None:
        super().__init__(blobs)
        self._owner = owner

    def add_blob(self, *dims: int) -> None:
        """Add a parameter of zeros; ``dims`` are the lengths of its axes. Raises LayerError without an owner."""
        if self._owner is None:
            raise LayerError("add_blob adds parameters to a layer written in Python, in its setup")
        self.append(UserBlob(self._owner.add_blob(dims, None)))


class UserLayer:
    """The base class of users' layers, Caffe's ``caffe.Layer``.

    A subclass defines setup, reshape, forward and backward.

    Attributes:
        type: "Python".
        param_str: python_param.param_str from the prototxt, for the subclass to interpret; ``param_str_`` too, as in
            the Caffe of py-faster-rcnn.
        phase: 0 in training, 1 in testing; as text "TRAIN" or "TEST", as in that Caffe.
        blobs: the layer's learnable parameters; setup adds them with ``self.blobs.add_blob(*shape)``.
    """

    type: str = "Python"
    param_str: str = ""
    param_str_: str = ""
    phase: int = 0
    blobs: BlobVec

    def setup(self, bottom: Sequence[UserBlob], top: Sequence[UserBlob]) -> None:
        """Read param_str, check the bottoms, add parameters. Called once, before the first reshape."""

    def reshape(self, bottom: Sequence[UserBlob], top: Sequence[UserBlob]) -> None:
        """Shape the tops. Called before every forward."""
        raise NotImplementedError(f"{type(self).__name__} has no reshape")

    def forward(self, bottom: Sequence[UserBlob], top: Sequence[UserBlob]) -> None:
        """Compute the tops' data."""
        raise NotImplementedError(f"{type(self).__name__} has no forward")

    def backward(self, top: Sequence[UserBlob], propagate_down: Sequence[bool], bottom: Sequence[UserBlob]) -> None:
        """Write ``diff`` of each bottom i with propagate_down[i]; add the parameters' gradients to their ``diff``."""
        raise NotImplementedError(f"{type(self).__name__} has no backward")


class Shard:
    """The part of the data that Python data layers read, which ``caffe.solver_rank`` and ``solver_count`` return.

    Attributes:
        part: the part's number and the number of parts; None before a solver is made.
        is_asked: whether a script has asked for it, or the user was warned that none does.
    """

    def __init__(self) -> None:
        self.part: tuple[int, int] | None = None
        self.is_asked = self._is_given = False

    def take(self, part: tuple[int, int] | None) -> None:
        """Set the part. If there is one rank, the user's own setting stays."""
        if part is not None and (part[1] > 1 or not self._is_given):
            self.part = part

    def give(self, part: tuple[int, int]) -> None:
        """Set the part that the user has chosen."""
        self.part, self._is_given = part, True


SHARD = Shard()


@layer_types.register("Python")
class Python(Layer):
    """Runs a user's layer: the class ``python_param.layer`` of the module ``python_param.module``.

    An exception that the user's code raises keeps its type and traceback; a note on it names the layer.
    """

    n_bottoms = (0, None)
    n_tops = (0, None)
    reshape_always = True
    host_only = writes_params = True

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Import the user's class, make an instance and run its setup. Raises LayerError if there is no such class."""
        p = self.param.python_param
        self.user: Any = self._run(self._find(p.module, p.layer))
        self.user.param_str = self.user.param_str_ = p.param_str
        self.user.phase, self.user.blobs = Phase(self.context.phase), BlobVec(owner=self)
        self._run(self.user.setup, _shown(bottom), _shown(top))

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        self._run(self.user.reshape, _shown(bottom), _shown(top))

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        self._run(self.user.forward, _shown(bottom), _shown(top))
        if not (bottom or SHARD.is_asked) and self.context.phase == TRAIN and self.context.n_ranks > 1:
            SHARD.is_asked = True
            warning(f"layer {self.param.name!r} (Python) runs on each of {self.context.n_ranks} ranks and asks neither "
                    "caffe.solver_rank() nor caffe.solver_count(): do all read the same data? docs/python.md says how "
                    "to share it out")

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        """Run the user's backward on zeroed bottom diffs, as layers without a gradient often leave them."""
        for blob, wanted in zip(bottom, propagate_down, strict=True):
            if wanted and blob not in top:
                blob.diff_flat[...] = 0
        self._run(self.user.backward, _shown(top), list(propagate_down), _shown(bottom))

    def _find(self, module: str, name: str) -> type[UserLayer]:
        """The class that the prototxt names. As in Caffe it must be a Layer, since the prototxt may not be trusted."""
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
        """Call the user's code, and add the layer's name to an exception that it raises."""
        SHARD.take(self.context.shard)
        generation = forking.generation()
        try:
            return code(*arguments)
        except (Exception, SystemExit) as error:
            if isinstance(error, SystemExit) and forking.generation() != generation:
                raise  # of a child that the user's code has forked
            trace = error.__traceback__ and error.__traceback__.tb_next
            self._raise(code.__qualname__, error, trace)

    def _raise(self, what: str, error: BaseException, trace: TracebackType | None) -> NoReturn:
        """Raise the user's error again, marked as the user's; for ``sys.exit`` raise a LayerError instead."""
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
    """The part of a traceback of ``import_module`` in the imported module's own code; None if it never got there."""
    trace = trace and trace.tb_next
    while trace is not None and "importlib" in trace.tb_frame.f_code.co_filename:
        trace = trace.tb_next
    return trace


def _shown(blobs: Sequence[Blob]) -> RawBlobVec:
    return RawBlobVec(UserBlob(blob) for blob in blobs)
