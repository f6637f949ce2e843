"""Reads prototxt files, and prepares the message that a net is built from."""

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
from scaffe.proto.byte_text import path_of, text_of_path
from scaffe.proto.text import ProtoError, read_message


def prepare(message: Any, phase: int, level: int | None = None, stages: Sequence[str] = ()) -> Any:
    """A new NetParameter for one state: upgraded, filtered, with Split layers, and with every layer's phase set.

    Args:
        message: a NetParameter of any generation; left as it is.
        phase, level, stages: the state. The stages of the net's own ``state`` are added; its level is used if
            ``level`` is None.

    Raises:
        UserError: a layer has both include and exclude rules, or the net has layers of two generations.
    """
    net = upgrade_net(message)
    state = caffe_pb2.NetState(phase=phase, level=net.state.level if level is None else level,
                                stage=[*net.state.stage, *map(text_of_path, stages)])  # may be bytes
    net = insert_splits(filter_net(net, state))
    net.state.CopyFrom(state)
    for layer in net.layer:
        if not layer.HasField("phase"):
            layer.phase = phase
    return net


def read_net(path: str | Path) -> Any:
    """The NetParameter of a prototxt, not upgraded (``prepare`` does that). Raises UserError."""
    return _read(path, caffe_pb2.NetParameter)


def read_solver_as_written(path: str | Path) -> Any:
    """The SolverParameter of a prototxt, unchanged. Raises UserError."""
    return _read(path, caffe_pb2.SolverParameter)


def upgraded(message: Any, source: str | Path) -> Any:
    """A new NetParameter or SolverParameter in Caffe's newest form.

    Args:
        message: of any generation; left as it is.
        source: its file, for error messages.

    Raises:
        UserError: one line that names the source.
    """
    change = upgrade_solver if message.DESCRIPTOR.name == "SolverParameter" else upgrade_net
    try:
        return change(message)
    except UserError as error:
        raise UserError(f"{source}: {error}") from error


def read_solver(path: str | Path) -> Any:
    """The SolverParameter of a prototxt, upgraded.

    Net files are looked up from the working directory, as in Caffe, and then from the solver file's folder. The
    snapshot prefix defaults to the solver file's path without its ending; if a folder is given as prefix, the file's
    name is added.

    Raises:
        UserError: one line with file, line and column of the error.
    """
    solver = upgraded(read_solver_as_written(path), path)
    folder = Path(path).parent
    for field in ("net", "train_net"):
        if solver.HasField(field):
            setattr(solver, field, _locate(getattr(solver, field), folder))
    solver.test_net[:] = [_locate(name, folder) for name in solver.test_net]
    if not solver.HasField("snapshot_prefix"):
        solver.snapshot_prefix = text_of_path(Path(path).with_suffix(""))
    elif there(path_of(solver.snapshot_prefix)) and Path(path_of(solver.snapshot_prefix)).is_dir():
        solver.snapshot_prefix = text_of_path(Path(path_of(solver.snapshot_prefix)) / Path(path).stem)
    return solver


def _read(path: str | Path, kind: type) -> Any:
    try:
        return read_message(path, kind)
    except ProtoError as error:
        raise UserError(str(error)) from error


def _locate(name: str, folder: Path) -> str:
    """A file's name as given, or else in the solver's folder: under the same path, or by its name alone."""
    given = Path(path_of(name))
    others = (folder / given, folder / given.name)
    return name if there(given) else next((text_of_path(place) for place in others if there(place)), name)
