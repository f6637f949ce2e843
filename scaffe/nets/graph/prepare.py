"""Reads prototxt files and prepares a NetParameter: upgraded, filtered for a NetState, with Split layers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from scaffe.errors import UserError
from scaffe.files.upgrade import upgrade_net, upgrade_solver
from scaffe.input_files import there
from scaffe.proto import caffe_pb2
from scaffe.proto.byte_text import path_of, text_of_path
from scaffe.proto.text import ProtoError, read_message


def filter_net(net: Any, state: Any) -> Any:
    """A new NetParameter with only the layers that belong to the state (phase, level, stages), in order.

    A layer with ``include`` rules belongs if the state meets one of them; a layer with ``exclude`` rules, if it meets
    none of them; a layer without rules always. Raises UserError if a layer has rules of both kinds."""
    kept = type(net)()
    kept.CopyFrom(net)
    del kept.layer[:]
    kept.layer.extend(layer for layer in net.layer if _belongs(layer, state))
    return kept


def _belongs(layer: Any, state: Any) -> bool:
    if layer.include and layer.exclude:
        raise UserError(f"layer {layer.name!r}: give include rules or exclude rules, not both")
    if layer.include:
        return any(meets(state, rule) for rule in layer.include)
    return not any(meets(state, rule) for rule in layer.exclude)


def meets(state: Any, rule: Any) -> bool:
    """Whether a NetState meets every condition of a NetStateRule."""
    stages = set(state.stage)
    return not ((rule.HasField("phase") and rule.phase != state.phase)
                or (rule.HasField("min_level") and state.level < rule.min_level)
                or (rule.HasField("max_level") and state.level > rule.max_level)
                or not stages.issuperset(rule.stage)
                or not stages.isdisjoint(rule.not_stage))


Top = tuple[int, int]  # layer index, top index


def insert_splits(net: Any) -> Any:
    """A new NetParameter with a Split layer after every top that is used several times, named as in Caffe.

    The split of top ``t``, number i of layer ``l``, is named ``t_l_i_split``. Its tops, ``t_l_i_split_0`` and so on, go
    to the uses in order. An explicit loss weight counts as the first use, and moves to the split's first top.
    """
    sources, uses, weights = _survey(net)
    split = type(net)()
    split.CopyFrom(net)
    del split.layer[:]
    handed_out: Counter[Top] = Counter()
    for index, original in enumerate(net.layer):
        layer = split.layer.add()
        layer.CopyFrom(original)
        for position, name in enumerate(original.bottom):
            top = sources.get((index, position))
            if top is not None and uses[top] > 1:
                layer.bottom[position] = f"{_split_name(net, top, name)}_{handed_out[top]}"
                handed_out[top] += 1
        for position, name in enumerate(original.top):
            top = (index, position)
            if uses[top] > 1:
                split.layer.append(_make_split(_split_name(net, top, name), name, uses[top], weights.get(top, 0.0)))
                if weights.get(top):
                    layer.ClearField("loss_weight")
                    handed_out[top] += 1
    return split


def _survey(net: Any) -> tuple[dict[Top, Top], Counter[Top], dict[Top, float]]:
    """The top that each bottom reads; how often each top is used; the tops' explicit loss weights."""
    newest: dict[str, Top] = {}
    sources: dict[Top, Top] = {}
    uses: Counter[Top] = Counter()
    weights: dict[Top, float] = {}
    for index, layer in enumerate(net.layer):
        for position, name in enumerate(layer.bottom):
            if name in newest:
                sources[index, position] = newest[name]
                uses[newest[name]] += 1
        for position, name in enumerate(layer.top):
            newest[name] = (index, position)
        for position, weight in enumerate(layer.loss_weight[: len(layer.top)]):
            weights[newest[layer.top[position]]] = weight
            uses[newest[layer.top[position]]] += weight != 0
    return sources, uses, weights


def _split_name(net: Any, top: Top, blob: str) -> str:
    return f"{blob}_{net.layer[top[0]].name}_{top[1]}_split"


def _make_split(name: str, bottom: str, n_tops: int, weight: float) -> Any:
    layer = caffe_pb2.LayerParameter(name=name, type="Split", bottom=[bottom])
    layer.top.extend(f"{name}_{k}" for k in range(n_tops))
    if weight:
        layer.loss_weight.extend(weight if k == 0 else 0.0 for k in range(n_tops))
    return layer


def prepare(message: Any, phase: int, level: int | None = None, stages: Sequence[str] = ()) -> Any:
    """A new NetParameter for one state: upgraded, filtered, with Split layers, and with every layer's phase set. Raises
    UserError if a layer has both include and exclude rules, or the net has layers of two generations.

    Args:
        message: a NetParameter of any generation; left as it is.
        phase, level, stages: the state. The stages of the net's own ``state`` are added; its level is used if
            ``level`` is None.
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
    """A new NetParameter or SolverParameter in Caffe's newest form. Raises UserError, one line that names the source.

    Args:
        message: of any generation; left as it is.
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
    name is added. Raises UserError, one line with file, line and column of the error."""
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
