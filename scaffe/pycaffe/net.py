"""pycaffe's Net, a view of ``scaffe.nets.net.Net``."""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np

from scaffe.data.feeds.layer_feed import Share
from scaffe.errors import LayerError, UserError
from scaffe.layers.data.memory_data import MemoryData
from scaffe.layers.python import BlobVec
from scaffe.log import warning
from scaffe.nets import net
from scaffe.nets.setup import Selection, make_context, message_of, net_by_itself
from scaffe.nets.weights import load_hdf5, load_weights, save_hdf5, save_weights
from scaffe.pictures.net_picture import net_picture, to_svg
from scaffe.pycaffe import process
from scaffe.pycaffe.batched_evaluation import Arrays, batches, copied, joined, n_rows_of
from scaffe.pycaffe.host_views import HostView, view_of_blob, view_of_layer
from scaffe.pycaffe.lazy_passes import LazyPasses


class Net:
    """A net built from a prototxt: ``Net(file, phase, weights=...)`` or the older ``Net(file, weights, phase)``.

    The blobs' ``data`` and ``diff`` are NumPy views in Caffe's axis order; writing to them changes the net. Views with
    four or more axes are not contiguous, so NumPy's ``reshape`` on them returns a copy. Source: Caffe 1.0, pycaffe.

    Args:
        network_file: the prototxt.
        phase: ``TRAIN`` or ``TEST``.
        level, stages: Caffe's NetState besides the phase; they select layers with ``include`` and ``exclude`` rules.
        weights: a ``.caffemodel``, ``.caffemodel.h5`` or ``.safetensors`` to start from.

    Attributes:
        blobs: each blob by name.
        params: the list of parameter blobs of each layer, by the layer's name.
        layers, layer_dict: the layers in order, and by name.
        top_names, bottom_names: the names of each layer's top and bottom blobs, by the layer's name.
        inputs: names of the blobs that the caller fills.
        outputs: names of the blobs that no layer reads.
        blob_loss_weights: each blob's loss weight, by name.

    Raises:
        UserError: the net cannot be built; one line names file and layer. It is also a ValueError.
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
        context = make_context(process.kernels(), process.stream(), Share(), process.seed(), dtype=process.dtype())
        self._show(net_by_itself(network_file, selection, context))
        if weights is not None:
            self.copy_from(str(weights))

    @classmethod
    def of(cls, built: net.Net) -> Net:
        """The view of an existing net, such as a solver's."""
        view = cls.__new__(cls)
        view._show(built)
        view._passes.is_solvers = True
        return view

    @property
    def _net(self) -> net.Net:
        """The net itself, ready to compute: the user's writes are on the device, and skipped blobs are computed."""
        self._passes.compute_skipped()
        return self._pushed

    @property
    def _pushed(self) -> net.Net:
        """The net itself, with the user's writes on the device."""
        self._push()
        return self._built

    def _push(self) -> None:
        for view in self._host_views:
            view.push()
        if self._host_views:
            HostView.push_all([blob.writes for node in self._built.nodes for blob in node.layer.blobs])

    def _show(self, built: net.Net) -> None:
        self._built, nodes = built, built.nodes
        weakref.finalize(self, built.close)
        self._layer_names = [node.name for node in nodes]
        self._blob_names = list(built.blobs)
        kernels, self._passes = built.context.kernels, LazyPasses(built)
        self.blobs = OrderedDict((name, view_of_blob(blob, kernels, partial(self._passes.before_read, name),
                                             partial(self._passes.before_reshape, name)))
                                 for name, blob in built.blobs.items())
        self.layers = [view_of_layer(node, kernels, self._passes.before_parameter_read, self._passes.compute_skipped)
                       for node in nodes]
        shown = [*self.blobs.values(), *(blob for layer in self.layers for blob in getattr(layer, "blobs", ()))]
        self._host_views = [blob for blob in shown if isinstance(blob, HostView)]
        self.layer_dict = OrderedDict(zip(self._layer_names, self.layers, strict=True))
        named = zip(self._layer_names, self.layers, strict=True)  # more than one layer may have a name
        self.params = OrderedDict((name, layer.blobs) for name, layer in named if layer.blobs)
        self.top_names = OrderedDict((node.name, list(node.top_names)) for node in nodes)
        self.bottom_names = OrderedDict((node.name, list(node.bottom_names)) for node in nodes)
        self.inputs, self.outputs = list(built.input_names), list(built.output_names)
        weights = {name: weight for node in nodes
                   for name, weight in zip(node.top_names, node.loss_weights, strict=False)}
        self._inputs, self._outputs = self._ids(self.inputs), self._ids(self.outputs)
        self.blob_loss_weights = OrderedDict((name, weights.get(name, 0.0)) for name in self.blobs)

    def _repr_svg_(self) -> str:
        """The net's drawing, as notebooks ask for it."""
        return to_svg(net_picture(message_of(self._built))).decode()

    # -- pycaffe's underscored names, which scripts use --------------------------------------------------------
    @property
    def _blobs(self) -> BlobVec:
        return BlobVec(self.blobs.values())

    @property
    def _blob_loss_weights(self) -> list[float]:
        return list(self.blob_loss_weights.values())

    def _top_ids(self, layer: int) -> list[int]:
        return self._ids(self._built.nodes[layer].top_names)

    def _bottom_ids(self, layer: int) -> list[int]:
        return self._ids(self._built.nodes[layer].bottom_names)

    def _ids(self, names: Sequence[str]) -> list[int]:
        return [self._blob_names.index(name) for name in names]

    # -- running -------------------------------------------------------------------------------------------
    def forward(self, blobs: Iterable[str] | None = None, start: str | None = None, end: str | None = None,
                **inputs: np.ndarray) -> Arrays:
        """Run layers ``start`` to ``end`` (names, inclusive) forward.

        Args:
            blobs: names of further blobs to return.
            start, end: the first and the last layer to run; by default the net's first and last.
            inputs: arrays for the net's inputs, by name: all of them, or none to keep what the inputs hold.

        Returns:
            By name, the net's outputs, or layer ``end``'s tops if ``end`` is given. The arrays are the net's own
            memory, not copies.

        Raises:
            UserError: the names are not those of the net's inputs, or an array has another batch size.
        """
        self._fill(inputs, self.inputs, "data", "inputs")
        first, last = self._index(start, 0), self._index(end, len(self.layers) - 1)
        names = {*(self.outputs if end is None else self.top_names[end]), *(blobs or ())}
        self._forward(first, last, names)
        return {name: self.blobs[name].data for name in names}

    def backward(self, diffs: Iterable[str] | None = None, start: str | None = None, end: str | None = None,
                 **tops: np.ndarray) -> Arrays:
        """Run layers ``start`` down to ``end`` (names, inclusive) backward.

        Args:
            diffs: names of further blobs whose diffs to return.
            start, end: the first (highest) and the last (lowest) layer to run; by default the net's last and first.
            tops: diffs for all of the net's outputs, by name. Not needed for losses, which start from their weight.

        Returns:
            By name, the diffs of the net's inputs, or of layer ``end``'s bottoms if ``end`` is given. The arrays are
            the net's own memory, not copies.

        Raises:
            UserError: the names are not those of the net's outputs, or an array has another batch size.
        """
        self._fill(tops, self.outputs, "diff", "outputs")
        self._backward(self._index(start, len(self.layers) - 1), self._index(end, 0))
        names = {*(self.inputs if end is None else self.bottom_names[end]), *(diffs or ())}
        return {name: self.blobs[name].diff for name in names}

    def forward_all(self, blobs: Iterable[str] | None = None, **inputs: np.ndarray) -> Arrays:
        """As ``forward``, batch by batch over arrays of n rows.

        Returns:
            The outputs and ``blobs`` by name, each an array of n rows.

        Raises:
            UserError: no arrays, arrays of different lengths, or names that are not the net's inputs.
        """
        names, n_rows = tuple(blobs or ()), n_rows_of(inputs)
        found = [copied(self.forward(names, None, None, **batch)) for batch in self._batch(inputs)]
        if not n_rows:
            return {name: np.zeros(0, np.float32) for name in {*self.outputs, *names}}
        return joined(found, n_rows, self._batch_size())

    def forward_backward_all(self, blobs: Iterable[str] | None = None, diffs: Iterable[str] | None = None,
                             **arrays: np.ndarray) -> tuple[Arrays, Arrays]:
        """As ``forward`` and ``backward``, batch by batch over arrays of n rows.

        Args:
            blobs, diffs: names of further blobs to return, and of those whose diffs to return.
            arrays: data for each input and diffs for each output, by name.

        Returns:
            (the outputs and ``blobs``, the diffs of the inputs and of ``diffs``), by name, each an array of n rows.

        Raises:
            UserError: no arrays, arrays of different lengths, or names that are not the net's inputs and outputs.
        """
        more, n_rows, size = (tuple(blobs or ()), tuple(diffs or ())), n_rows_of(arrays), self._batch_size()
        found: tuple[list[Arrays], list[Arrays]] = [], []
        pairs = zip_longest(*(self._batch({name: arrays[name] for name in names if name in arrays})
                              for names in (self.inputs, self.outputs)), fillvalue={})
        for data, tops in pairs:
            found[0].append(copied(self.forward(more[0], None, None, **data)))
            found[1].append(copied(self.backward(more[1], None, None, **tops)))
        return joined(found[0], n_rows, size), joined(found[1], n_rows, size)

    def _forward(self, start: int, end: int, wanted: Collection[str] = ()) -> float:
        self._push()
        return self._passes.forward(start, end, wanted)

    def _backward(self, start: int, end: int) -> None:
        self._push()
        self._passes.backward(start, end)

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
        return batches(blobs, self._batch_size())

    def _batch_size(self) -> int:
        return int(next(iter(self.blobs.values())).shape[0])

    # -- contents ------------------------------------------------------------------------------------------
    def reshape(self) -> None:
        """Recompute all blobs' shapes after the inputs have been reshaped."""
        self._push()
        self._passes.reshape()

    def clear_param_diffs(self) -> None:
        """Set every parameter's diff to zero."""
        for node in self._pushed.nodes:
            for blob in node.layer.blobs:
                blob.diff_flat[:] = 0

    def copy_from(self, path: str) -> None:
        """Load a ``.caffemodel``, ``.caffemodel.h5`` or ``.safetensors``, matching layers by name. Raises UserError."""
        self._built.note_written()
        load_weights(self._pushed, path)

    def load_hdf5(self, path: str) -> None:
        """Load weights from an HDF5 file, matching layers by name. Raises UserError."""
        self._built.note_written()
        load_hdf5(self._pushed, path)

    def save(self, path: str) -> None:
        """Write all layers and their weights to a file of any kind that ``copy_from`` takes. Raises UserError."""
        save_weights(self._pushed, path)

    def save_hdf5(self, path: str) -> None:
        """Write all layers' weights to an HDF5 file. Raises UserError."""
        save_hdf5(self._pushed, path)

    def share_with(self, other: Net) -> None:
        """Share the other net's parameters, matching layers by name. Raises ValueError if shapes differ."""
        self._net.share_trained_layers(other._pushed)

    def set_input_arrays(self, data: np.ndarray, labels: np.ndarray) -> None:
        """Set the data of the MemoryData layer, which must be the net's first layer.

        Args:
            data, labels: of shape (n, channels, height, width), and n labels.

        Raises:
            UserError: the first layer is of another type, or the arrays do not fit it.
        """
        first = self._pushed.nodes[0].layer
        if not isinstance(first, MemoryData):
            raise UserError(f"set_input_arrays needs a MemoryData layer first; it is {self.layers[0].type}")
        try:
            first.load(data, labels)
        except LayerError as error:
            raise UserError(f"layer {self._layer_names[0]!r} (MemoryData): {error}") from error

    def share_input(self, name: str, array: Any) -> None:
        """Let an input's data lie in the memory of an array of any library (DLPack), whose holder may write there.
        Raises UserError unless it has the blob's shape and type, channels-last, where the net computes."""
        self._passes.share(name, array, self._pushed)

    # -- callbacks -----------------------------------------------------------------------------------------
    def before_forward(self, run: Callable[[int], Any]) -> None:
        """Call ``run(layer's index)`` before each layer's forward."""
        self._call_in(self._net.before_forward, run)

    def after_forward(self, run: Callable[[int], Any]) -> None:
        """Call ``run(layer's index)`` after each layer's forward."""
        self._call_in(self._net.after_forward, run)

    def before_backward(self, run: Callable[[int], Any]) -> None:
        """Call ``run(layer's index)`` before each layer's backward."""
        self._call_in(self._net.before_backward, run)

    def after_backward(self, run: Callable[[int], Any]) -> None:
        """Call ``run(layer's index)`` after each layer's backward."""
        self._call_in(self._net.after_backward, run)

    def _call_in(self, hooks: list[Callable[[int], Any]], run: Callable[[int], Any]) -> None:
        hooks.append(run)
        self._built.unfused = True
