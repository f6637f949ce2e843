"""Caffe's example nets made to run without their data: generated batches in place of files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from scaffe.nets import graph

READERS = ("Data", "ImageData", "HDF5Data", "WindowData", "MemoryData")
BATCH = 2


def without_data(net: Any) -> Any:
    """The net with every reader replaced by DummyData of two records, and two records in every Input."""
    for layer in net.layer:
        if layer.type in READERS:
            _generate(layer)
        for shape in layer.input_param.shape:
            shape.dim[0] = min(shape.dim[0], BATCH)
    return net


def _generate(layer: Any) -> None:
    shapes = [_record(layer), *[()] * (len(layer.top) - 1)]
    if layer.type == "WindowData":
        layer.ClearField("window_data_param")
    for name in ("data_param", "transform_param", "image_data_param", "hdf5_data_param", "memory_data_param"):
        layer.ClearField(name)
    layer.type = "DummyData"
    for index, shape in enumerate(shapes):
        layer.dummy_data_param.shape.add().dim.extend((BATCH, *shape))
        filler = layer.dummy_data_param.data_filler.add(type="gaussian" if index == 0 else "constant")
        filler.value, filler.std = float(index), 1.0


def _record(layer: Any) -> tuple[int, ...]:
    """The shape of a record, as far as the layer tells it: what it crops to, or the set's that it names."""
    crop = layer.transform_param.crop_size or layer.window_data_param.crop_size
    if layer.type == "HDF5Data":
        return (4,)
    if crop:
        return (3, crop, crop)
    if "pair" in layer.top[0]:
        return (2, 28, 28)  # the siamese example's pairs of digits
    return (1, 28, 28) if "mnist" in layer.data_param.source or "mnist" in layer.name else (3, 32, 32)


def prepared_nets(folder: Path) -> Iterator[tuple[str, int, Any]]:
    """(relative path, phase, net without data) of every net under a copy of Caffe's sources, both phases of each."""
    for part in ("examples", "models"):
        for path in sorted((folder / part).rglob("*.prototxt")):
            if "solver" not in path.name:
                message = graph.read_net(str(path))
                for phase in (0, 1):
                    yield str(path.relative_to(folder)), phase, without_data(graph.prepare(message, phase))


def solver_nets(folder: Path) -> Iterator[tuple[Any, list[tuple[int, Any]]]]:
    """(solver, phases and nets that it holds itself) of every solver file, nets without data."""
    for part in ("examples", "models"):
        for path in sorted((folder / part).rglob("*solver*.prototxt")):
            solver = graph.read_solver(path)
            states = [(0, solver.train_state), *((1, state) for state in solver.test_state)]
            yield solver, [(phase, without_data(graph.prepare(solver.net_param, phase, state.level, state.stage)))
                           for phase, state in states if solver.HasField("net_param")]
