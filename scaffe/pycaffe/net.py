"""pycaffe's Net over ours."""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from scaffe.data.feeds.layer_feed import Share
from scaffe.errors import UserError
from scaffe.layers.base.errors import LayerError
from scaffe.layers.memory_data import MemoryData
from scaffe.layers.python import Python, UserBlob
from scaffe.log import warning
from scaffe.nets import net
from scaffe.nets.net_layer import Node
from scaffe.nets.setup import Selection, make_context, net_by_itself
from scaffe.nets.weights import load_hdf5, load_weights, save_hdf5, save_weights
from scaffe.pycaffe import process, whole_sets
from scaffe.pycaffe.batches import Arrays, batches
from scaffe.pycaffe.mirror import MirroredBlob, show


class LayerView:
    """One layer as pycaffe shows it.

    Attributes:
        type: the layer's type.
        blobs: its parameters.
    """

    def __init__(self, node: Node, kernels: Any) -> None:
        self.type: str = node.param.type
        self.blobs = [show(blob, kernels) for blob in node.layer.blobs]


class Net:
    """A net built from a prototxt: ``Net(file, phase, weights=...)`` or, as of old, ``Net(file, weights, phase)``.

    Blobs' ``data`` and ``diff`` are arrays in Caffe's layout that write through to the net. Those of four axes and
    more are strided, so that ``reshape`` copies them. Source: Caffe 1.0, pycaffe.

    Args:
        network_file: the prototxt.
        phase: ``TRAIN`` or ``TEST``.
        level, stages: the rest of Caffe's NetState.
        weights: a ``.caffemodel`` or ``.caffemodel.h5`` to start from.

    Attributes:
        blobs, params: name to Blob, layer's name to its list of Blobs.
        layers, layer_dict: the layers in order, and by name.
        top_names, bottom_names: layer's name to the names of its blobs.
        inputs, outputs: names of the blobs that the caller fills and that no layer takes.
        blob_loss_weights: name to loss weight.

    Raises:
        UserError: one line (a ValueError) that names file and layer.
    """

    def __init__(self, network_file: str | Path, phase: int | str | Path, *old: Any, level: int = 0,
                 stages: Sequence[str] | None = None, weights: str | Path | None = None) -> None:
        if isinstance(phase, (str, Path)):
            if len(old) != 1:
                raise UserError(f"expected Net(file, phase, weights=...), got {phase!r} for the phase")
            warning(f"Net(file, weights, phase) is the old order; today's is Net(file, phase, weights={str(phase)!r})")
            weights, phase = phase, int(old[0])
        elif old:
            given: list[Any] = [*old, *(level, stages, weights)[len(old):]]
            level, stages, weights = given
        selection = Selection(phase, level, tuple(stages or ()))
        context = make_context(process.kernels(), process.stream(), Share(), process.seed())
        self._show(net_by_itself(network_file, selection, context))
        if weights is not None:
            self.copy_from(str(weights))

    @classmethod
    def of(cls, built: net.Net) -> Net:
        """The view of a net that is there already (a solver's)."""
        view = cls.__new__(cls)
        view._show(built)
        return view

    @property
    def _net(self) -> net.Net:
        """The net itself, to compute with: what the user wrote into its arrays has reached it."""
        for mirror in self._mirrors:
            mirror.push()
        return self._built

    def _show(self, built: net.Net) -> None:
        self._built, nodes = built, built.nodes
        weakref.finalize(self, built.close)
        self._layer_names = [node.name for node in nodes]
        self._blob_names = list(built.blobs)
        kernels = built.context.kernels
        self.blobs = OrderedDict((name, show(blob, kernels)) for name, blob in built.blobs.items())
        self.layers = [_layer_view(node, kernels) for node in nodes]
        shown = [*self.blobs.values(), *(blob for layer in self.layers for blob in getattr(layer, "blobs", ()))]
        self._mirrors = [blob for blob in shown if isinstance(blob, MirroredBlob)]
        self.layer_dict = OrderedDict(zip(self._layer_names, self.layers, strict=True))
        self.params = OrderedDict((name, layer.blobs) for name, layer in self.layer_dict.items() if layer.blobs)
        self.top_names = OrderedDict((node.name, list(node.top_names)) for node in nodes)
        self.bottom_names = OrderedDict((node.name, list(node.bottom_names)) for node in nodes)
        self.inputs, self.outputs = list(built.input_names), list(built.output_names)
        weights = {name: weight for node in nodes
                   for name, weight in zip(node.top_names, node.loss_weights, strict=False)}
        self._inputs, self._outputs = self._ids(self.inputs), self._ids(self.outputs)
        self.blob_loss_weights = OrderedDict((name, weights.get(name, 0.0)) for name in self.blobs)

    # -- what pycaffe has under names of its own, and people use -----------------------------------------------
    @property
    def _blobs(self) -> list[UserBlob]:
        return list(self.blobs.values())

    @property
    def _blob_loss_weights(self) -> list[float]:
        return list(self.blob_loss_weights.values())

    def _top_ids(self, layer: int) -> list[int]:
        return self._ids(self._net.nodes[layer].top_names)

    def _bottom_ids(self, layer: int) -> list[int]:
        return self._ids(self._net.nodes[layer].bottom_names)

    def _ids(self, names: Sequence[str]) -> list[int]:
        return [self._blob_names.index(name) for name in names]

    # -- running -------------------------------------------------------------------------------------------
    def forward(self, blobs: Iterable[str] | None = None, start: str | None = None, end: str | None = None,
                **inputs: np.ndarray) -> Arrays:
        """Run layers ``start`` to ``end`` (names, inclusive) forward.

        Args:
            blobs: names of blobs to give beside the outputs.
            start, end: the first and the last layer; the net's unless given.
            inputs: arrays for all of the net's inputs, by name.

        Returns:
            name to array, of the net's outputs, or of layer ``end``'s tops. The arrays are the net's own.

        Raises:
            UserError: inputs that are not the net's, or of another batch size.
        """
        self._fill(inputs, self.inputs, "data", "inputs")
        self._forward(self._index(start, 0), self._index(end, len(self.layers) - 1))
        names = {*(self.outputs if end is None else self.top_names[end]), *(blobs or ())}
        return {name: self.blobs[name].data for name in names}

    def backward(self, diffs: Iterable[str] | None = None, start: str | None = None, end: str | None = None,
                 **tops: np.ndarray) -> Arrays:
        """Run layers ``start`` down to ``end`` (names, inclusive) backward.

        Args:
            diffs: names of blobs whose diffs to give beside the inputs'.
            start, end: the first (highest) and the last layer; the net's unless given.
            tops: diffs for all of the net's outputs, by name; a loss has its own.

        Returns:
            name to diff, of the net's inputs, or of layer ``end``'s bottoms. The arrays are the net's own.

        Raises:
            UserError: tops that are not the net's outputs, or of another batch size.
        """
        self._fill(tops, self.outputs, "diff", "outputs")
        self._backward(self._index(start, len(self.layers) - 1), self._index(end, 0))
        names = {*(self.inputs if end is None else self.bottom_names[end]), *(diffs or ())}
        return {name: self.blobs[name].diff for name in names}

    def forward_all(self, blobs: Iterable[str] | None = None, **inputs: np.ndarray) -> Arrays:
        """Forward over arrays of any length, batch by batch. Returns one array of that length a name."""
        return whole_sets.forward_all(self, tuple(blobs or ()), inputs)

    def forward_backward_all(self, blobs: Iterable[str] | None = None, diffs: Iterable[str] | None = None,
                             **arrays: np.ndarray) -> tuple[Arrays, Arrays]:
        """Forward and backward over arrays of any length, batch by batch: inputs' data and outputs' diffs, by name.

        Returns:
            the outputs, and the inputs' diffs, one array of that length a name.
        """
        return whole_sets.forward_backward_all(self, tuple(blobs or ()), tuple(diffs or ()), arrays)

    def _forward(self, start: int, end: int) -> float:
        return float(self._net.forward(start, end))

    def _backward(self, start: int, end: int) -> None:
        self._net.backward(start, end)

    def _index(self, layer: str | None, default: int) -> int:
        if layer is None:
            return default
        if layer not in self.layer_dict:
            raise UserError(f"the net has no layer {layer!r}; it has: {', '.join(self._layer_names)}")
        return self._layer_names.index(layer)

    def _fill(self, arrays: Mapping[str, np.ndarray], names: list[str], part: str, what: str) -> None:
        if arrays and set(arrays) != set(names):
            raise UserError(f"expected arrays for the net's {what} {names}, got {sorted(arrays)}")
        for name, array in arrays.items():
            place = getattr(self.blobs[name], part)
            if np.shape(array)[:1] != place.shape[:1]:
                raise UserError(f"{name!r} has shape {place.shape} in the net, got {np.shape(array)}")
            place[...] = array

    def _batch(self, blobs: Mapping[str, np.ndarray]) -> Iterator[Arrays]:
        """The arrays in pieces of the net's batch size, the last one filled up with zeros."""
        return batches(blobs, whole_sets.batch_size(self))

    # -- contents ------------------------------------------------------------------------------------------
    def reshape(self) -> None:
        """Carry changed shapes of inputs through the net."""
        self._net.reshape()

    def clear_param_diffs(self) -> None:
        """Make every parameter's diff zero."""
        for node in self._net.nodes:
            for blob in node.layer.blobs:
                blob.diff_flat[:] = 0

    def copy_from(self, path: str) -> None:
        """Take the layers of a ``.caffemodel`` (or ``.caffemodel.h5``) that the net has, by name. Raises UserError."""
        load_weights(self._net, path)

    def load_hdf5(self, path: str) -> None:
        """Take the layers of an HDF5 file that the net has, by name. Raises UserError."""
        load_hdf5(self._net, path)

    def save(self, path: str) -> None:
        """Write all layers to a ``.caffemodel``. Raises UserError."""
        save_weights(self._net, path)

    def save_hdf5(self, path: str) -> None:
        """Write all layers to an HDF5 file. Raises UserError."""
        save_hdf5(self._net, path)

    def share_with(self, other: Net) -> None:
        """Use the other net's parameters, layer by layer of the same names. Raises ValueError for other shapes."""
        self._net.share_trained_layers(other._net)

    def set_input_arrays(self, data: np.ndarray, labels: np.ndarray) -> None:
        """Hand images (n, channels, height, width) and n labels to the MemoryData layer, which must be the first one.

        Raises:
            UserError: another first layer, or arrays that do not fit it.
        """
        first = self._net.nodes[0].layer
        if not isinstance(first, MemoryData):
            raise UserError(f"set_input_arrays needs a MemoryData layer first; it is {self.layers[0].type}")
        try:
            first.load(data, labels)
        except LayerError as error:
            raise UserError(f"layer {self._layer_names[0]!r} (MemoryData): {error}") from error

    # -- callbacks -----------------------------------------------------------------------------------------
    def before_forward(self, run: Callable[[int], Any]) -> None:
        """Call ``run(layer's index)`` before each layer's forward."""
        self._net.before_forward.append(run)
        self._net.unfused = True

    def after_forward(self, run: Callable[[int], Any]) -> None:
        """Call ``run(layer's index)`` after each layer's forward."""
        self._net.after_forward.append(run)
        self._net.unfused = True

    def before_backward(self, run: Callable[[int], Any]) -> None:
        """Call ``run(layer's index)`` before each layer's backward."""
        self._net.before_backward.append(run)
        self._net.unfused = True

    def after_backward(self, run: Callable[[int], Any]) -> None:
        """Call ``run(layer's index)`` after each layer's backward."""
        self._net.after_backward.append(run)
        self._net.unfused = True


def _layer_view(node: Node, kernels: Any) -> Any:
    """A user's own layer as itself, another as a view."""
    layer = getattr(node.layer, "inner", node.layer)
    return layer.user if isinstance(layer, Python) else LayerView(node, kernels)
