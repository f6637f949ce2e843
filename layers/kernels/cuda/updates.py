"""Update rules on the device, and the reductions of gradients that scale or skip an update."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from scaffe.errors import LayerError
from scaffe.layers.kernels import device
from scaffe.layers.kernels.cuda.arena import arena
from scaffe.layers.kernels.cuda.launch import THREADS, blocks_for, kernel, pack, wide
from scaffe.layers.kernels.specs import Segment


def sum_of_squares(x: Any, out: Any = None) -> Any:
    """The sum of squares of a flat array, float64 (1,), in ``out`` if given. The order of additions is fixed."""
    if out is None:
        out = device.load().empty(1, np.float64)
    if not x.size:
        out[...] = 0
        return out
    grid = blocks_for(-(-x.size // pack(x.dtype)))
    (parts,) = arena.take((grid[0], np.float64))
    kernel("reductions", "sum_of_squares", x.dtype)(grid, (THREADS,), (x, parts, np.int64(x.size)))
    kernel("reductions", "sum_parts", x.dtype)((1,), (THREADS,), (parts, out, np.int32(grid[0])))
    return out


def check_finite(x: Any, flag: Any) -> None:
    """Set flag, int32 (1,), to 1 if an element of a flat array is infinite or NaN; else leave it as it is."""
    if x.size:
        grid = blocks_for(-(-x.size // pack(x.dtype)))
        kernel("reductions", "check_finite", x.dtype)(grid, (THREADS,), (x, flag, np.int64(x.size)))


class Guard:
    """See Guard in backend.py. The factor, its inverse and the iterations without an overflow are one array."""

    def __init__(self, scale: float, n_clean: int = 0) -> None:
        cupy = device.load()
        self._flag = cupy.zeros(1, np.int32)
        self._state = cupy.asarray(np.array([scale, 1 / scale, n_clean], np.float32))
        self.scale, self.inverse = self._state[:1].reshape(()), self._state[1:2].reshape(())

    def look(self, gradients: Sequence[Any]) -> Any:
        self._flag[...] = 0
        for gradient in gradients:
            check_finite(gradient, self._flag)
        return self._flag

    def checked(self, factor: Any) -> Any:
        on_device, control = hasattr(factor, "__cuda_array_interface__"), device.load().empty(2, np.float32)
        _single_thread("update_control", self._flag, factor if on_device else None,
                       np.float32(1 if on_device else factor), self._state, control)
        return control

    def adapt(self, patience: int, largest: float) -> None:
        _single_thread("next_loss_scale", self._flag, self._state, np.float32(patience), np.float32(largest))

    def read(self) -> tuple[float, int]:
        scale, _, n_clean = self._state.get()
        return float(scale), int(n_clean)


def _single_thread(name: str, *arguments: Any) -> None:
    kernel("loss_scale", name, np.dtype(np.float32))((1,), (1,), arguments)


CHUNK_ELEMS = 4 * THREADS  # of one parameter, for one block: 16 bytes of float32 a thread are 1.25 times as fast as 128
CHUNK = np.dtype([("start", np.int64), ("n_elems", np.int64), ("rate", np.float64), ("decay", np.float64),
                  ("origin", np.int64), ("n_in", np.int32), ("n_places", np.int32)])
RULES = ("SGD", "Nesterov", "AdaGrad", "RMSProp", "AdaDelta", "Adam", "LocalUpdate")


class UpdatePlan:
    """An update rule over segments of the flat parameter buffers. ``rule`` has a ``name`` of RULES (else LayerError),
    ``n_histories``, and ``numbers(hyper)``: its rate, momentum, second (a second decay rate) and delta."""

    def __init__(self, rule: Any, segments: Sequence[Segment]) -> None:
        if rule.name not in RULES:
            raise LayerError(f"update rule {rule.name} has no GPU kernel; known: {', '.join(RULES)}")
        self._rule = rule
        chunks = [(start, min(CHUNK_ELEMS, s.stop - start), s.lr_mult, s.decay_mult, s.origin, *s.kernel_order)
                  for s in segments for start in range(s.start, s.stop, CHUNK_ELEMS)]
        self._n_chunks = len(chunks)
        raw = np.array(chunks, CHUNK).view(np.uint8)
        self._chunks = device.load().asarray(raw)

    def run(self, w: Any, g: Any, histories: Sequence[Any], hyper: Any, factor: Any = 1.0,
            copy: Any = None) -> None:
        """See UpdatePlan in plans.py. A factor on the device is float32 (2,): the factor, and a flag that skips the
        update if not 0. ``copy``, a flat array of another type, gets the new weights too, each parameter in its
        kernels' order."""
        if not self._n_chunks:
            return
        on_device = hasattr(factor, "__cuda_array_interface__")
        one, other = wide(w.dtype).type, np.dtype(w.dtype if copy is None else copy.dtype)
        own = {name: one(number) for name, number in self._rule.numbers(hyper).items()}
        scale = one(hyper.scale) if on_device else one(hyper.scale * factor)
        second = histories[1] if self._rule.n_histories > 1 else None
        kernel("update_rules", self._rule.name.lower(), np.dtype(w.dtype), other)(
            (self._n_chunks,), (THREADS,),
            (w, g, histories[0], second, copy, self._chunks, np.int32(self._n_chunks), factor if on_device else None,
             own["rate"], one(hyper.decay), scale, np.int32(hyper.l1), np.int32(hyper.keeps_step), own["momentum"],
             own["second"], own["delta"]))


def clip_factor(diff: Any, limit: float, mean: Any) -> Any:
    """See DeviceBackend. Float32 (2,), the second of which is 0."""
    cupy = device.load()
    norm = cupy.sqrt(sum_of_squares(diff)) * mean
    found = cupy.zeros(2, np.float32)
    cupy.minimum(limit / cupy.maximum(norm, limit), 1.0, out=norm)
    found[:1] = norm
    return found
