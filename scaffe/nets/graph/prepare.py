"""From a file to the message that a net is built from."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from scaffe.errors import UserError
from scaffe.files.upgrade import upgrade_net, upgrade_solver
from scaffe.input_files import there
from scaffe.nets.graph.filter import filter_net
from scaffe.nets.graph.splits import insert_splits
from scaffe.proto import caffe_pb2
from scaffe.proto.text import ProtoError, read_message


def prepare(message: Any, phase: int, level: int = 0, stages: Sequence[str] = ()) -> Any:
    """The net of one state: a new NetParameter, upgraded, filtered, with splits and every layer's phase set.

    The net's own ``state`` adds its stages, and its level where none is given.

    Raises:
        UserError: a layer with both include and exclude rules, layers of two generations in one net.
    """
    net = upgrade_net(message)
    state = caffe_pb2.NetState(phase=phase, level=level or net.state.level, stage=[*net.state.stage, *stages])
    net = insert_splits(filter_net(net, state))
    net.state.CopyFrom(state)
    for layer in net.layer:
        if not layer.HasField("phase"):
            layer.phase = phase
    return net


def read_net(path: str | Path) -> Any:
    """The NetParameter of a prototxt, of whatever generation (``prepare`` upgrades). Raises UserError."""
    return _read(path, caffe_pb2.NetParameter)


def read_solver_as_written(path: str | Path) -> Any:
    """The SolverParameter of a prototxt with nothing changed. Raises UserError."""
    return _read(path, caffe_pb2.SolverParameter)


def upgraded(message: Any, source: str | Path) -> Any:
    """A new NetParameter or SolverParameter in today's form. Raises UserError that names the source (the file)."""
    change = upgrade_solver if message.DESCRIPTOR.name == "SolverParameter" else upgrade_net
    try:
        return change(message)
    except UserError as error:
        raise UserError(f"{source}: {error}") from error


def read_solver(path: str | Path) -> Any:
    """The SolverParameter of a prototxt, upgraded.

    Net files are looked for from the working directory, as Caffe does, and beside the solver file where they are
    not there. The snapshot prefix defaults to the solver file's name, in the folder given if it is one.

    Raises:
        UserError: file, line and column of the mistake.
    """
    solver = upgraded(read_solver_as_written(path), path)
    folder = Path(path).parent
    for field in ("net", "train_net"):
        if solver.HasField(field):
            setattr(solver, field, _locate(getattr(solver, field), folder))
    solver.test_net[:] = [_locate(name, folder) for name in solver.test_net]
    if not solver.HasField("snapshot_prefix"):
        solver.snapshot_prefix = str(Path(path).with_suffix(""))
    elif there(solver.snapshot_prefix) and Path(solver.snapshot_prefix).is_dir():
        solver.snapshot_prefix = str(Path(solver.snapshot_prefix) / Path(path).stem)
    return solver


def _read(path: str | Path, kind: type) -> Any:
    try:
        return read_message(path, kind)
    except ProtoError as error:
        raise UserError(str(error)) from error


def _locate(name: str, folder: Path) -> str:
    """A file as named, or else beside the solver: under the same path, or under its bare name."""
    places = (Path(name), folder / name, folder / Path(name).name)
    return next((str(place) if index else name for index, place in enumerate(places) if there(place)), name)
