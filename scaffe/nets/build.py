"""Builds a net from a NetParameter: makes and connects layers, shares parameters, plans backward."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from scaffe.errors import ExpectedError, LayerError, UserError, users_line
from scaffe.layers.base.blob import Blob
from scaffe.layers.base.context import Context
from scaffe.layers.base.layer import Layer, layer_types
from scaffe.nets import graph
from scaffe.nets.caffe_alias import install_as_caffe
from scaffe.nets.flat_params import FlatParams, Param
from scaffe.nets.fusion import fuse_in_place
from scaffe.nets.net import Net
from scaffe.nets.net_layer import Node, Parts
from scaffe.proto.forks import fork_of_type

MULTIPLIERS = ("lr_mult", "decay_mult")
AUTOMATIC = "(automatic)"


def build_net(message: Any, context: Context, trained: Net | None = None, parts: Parts | None = None) -> Net:
    """Build a net. Raises UserError, one line that names the layer.

    Args:
        message: a NetParameter as ``graph.prepare`` returns it (upgraded, filtered, with splits).
        trained: for a test net, the net whose parameters it uses in layers of the same name.
        parts: where ranks share the layers, which part of them this rank makes; None: it makes the whole net.
    """
    blobs: dict[str, Blob] = {}
    exact = graph.exact_blobs(message.layer, _exactness)
    nodes = [_make_node(param, context, blobs, exact, parts) for param in message.layer]
    params = _find_params(nodes)
    _plan_backward(nodes, params, message.force_backward)
    fuse_in_place(nodes)
    memory = None if trained else context.param_memory
    flat = FlatParams(params if context.fills and not trained else [], context.param_dtype, context.kernels.zeros,
                      memory)
    net = Net(message.name, context, nodes, blobs, flat)
    net.parts = parts
    if trained:
        net.sharers = [(blob, param.blob) for param in params for blob in param.sharers]
        net.share_trained_layers(trained)
        net.own_blobs = _own_blobs(net, trained)
    return net


def _exactness(layer_type: str) -> graph.Exactness:
    if layer_type not in layer_types.names():
        return graph.Exactness()
    found = layer_types.get(layer_type)
    return graph.Exactness(found.exact_bottoms, found.integer_tops, found.host_only)


def _make_node(param: Any, context: Context, blobs: dict[str, Blob], exact: Collection[str],
               parts: Parts | None) -> Node:
    try:
        bottoms = _bottoms(param, blobs)
        part = parts.layer(param, context, bottoms) if parts is not None else None  # of this rank
        layer = _make_layer(param, context, bottoms) if part is None else part
        node = Node(layer, param, param.name, bottoms, [], list(param.bottom), list(param.top))
        node.tops = _tops(node, context, blobs, exact)
        layer.check_counts(len(node.bottoms), len(node.tops))
        node.loss_weights = _loss_weights(param, layer, len(node.tops))
        layer.setup(node.bottoms, node.tops)
        if parts is not None:
            parts.fill(param, layer)
        node.reshape()
    except ValueError as error:
        line = users_line(error)
        if not line and not isinstance(error, ExpectedError):
            raise  # a defect keeps its traceback
        raise UserError(line or f"layer {param.name!r} ({param.type}): {error}") from error
    except MemoryError as error:
        raise UserError(f"layer {param.name!r} ({param.type}): not enough memory: {error}") from error
    return node


def _make_layer(param: Any, context: Context, bottom: Sequence[Blob]) -> Layer:
    if param.HasField("phase") and param.phase != context.phase:
        context = replace(context, phase=param.phase)  # a layer may have a phase of its own
    if param.type == "Python":
        install_as_caffe()  # the user's module says `import caffe`
    try:
        layer_type = layer_types.get(param.type).form(param, bottom)
        made: Layer = context.kernels.maker(layer_type, param, bottom, context.dtype)(param, context)
        return made
    except KeyError as error:
        said, fork = str(error.args[0]), fork_of_type(param.type)
        raise LayerError(f"{said.partition(';')[0]}{fork}" if fork else said) from error


def _bottoms(param: Any, blobs: dict[str, Blob]) -> list[Blob]:
    for name in param.bottom:
        if name not in blobs:
            known = ", ".join(blobs) or "none"
            raise LayerError(f"bottom {name!r} is not the top of any layer before it (there are: {known})")
    if param.propagate_down and len(param.propagate_down) != len(param.bottom):
        raise LayerError(f"propagate_down is given {len(param.propagate_down)} times for {len(param.bottom)} bottoms")
    return [blobs[name] for name in param.bottom]


def _tops(node: Node, context: Context, blobs: dict[str, Blob], exact: Collection[str]) -> list[Blob]:
    names = node.top_names
    if node.layer.auto_tops:
        automatic = AUTOMATIC if AUTOMATIC not in blobs else f"{AUTOMATIC} {node.name}"  # Caffe's name for the first
        names += [automatic] * (max(node.layer.n_tops[0], 1) - len(names))
    tops = []
    for index, name in enumerate(names):
        in_place = index < len(node.bottom_names) and node.bottom_names[index] == name
        if name in blobs and not in_place:
            raise LayerError(f"top {name!r} is made by an earlier layer already")
        if not in_place:
            is_wide = (name in exact or index in node.layer.exact_tops
                       or (index == 0 and node.layer.default_loss_weight))
            blobs[name] = context.blob(dtype=context.param_dtype if is_wide else None)
        tops.append(blobs[name])
    return tops


def _loss_weights(param: Any, layer: Layer, n_tops: int) -> list[float]:
    given = list(param.loss_weight)
    if given and len(given) != n_tops:
        raise LayerError(f"loss_weight is given {len(given)} times for {n_tops} tops")
    return given or [layer.default_loss_weight if i == 0 else 0.0 for i in range(n_tops)]


@dataclass
class _Found:
    """A learnable blob, from which a Param will be made, with the multipliers that the prototxt gives."""

    layer_index: int
    blob: Blob
    given: dict[str, float]
    sharers: list[Blob] = field(default_factory=list)


def _find_params(nodes: list[Node]) -> list[Param]:
    found: list[_Found] = []
    named: dict[str, int] = {}
    for layer_index, node in enumerate(nodes):
        if len(node.param.param) > len(node.layer.blobs):
            raise UserError(f"layer {node.name!r} ({node.param.type}): param is given {len(node.param.param)} times "
                            f"for {len(node.layer.blobs)} parameters")
        for i, blob in enumerate(node.layer.blobs):
            spec = node.param.param[i] if i < len(node.param.param) else None
            if spec is not None and spec.name and spec.name in named:
                _share(found[named[spec.name]], nodes, node, i, spec)
                continue
            if spec is not None and spec.name:
                named[spec.name] = len(found)
            found.append(_Found(layer_index, blob, {m: getattr(spec, m) for m in MULTIPLIERS
                                                   if spec is not None and spec.HasField(m)}))
    return [Param(f.layer_index, f.blob, sharers=tuple(f.sharers), **f.given) for f in found]


def _share(owner: _Found, nodes: list[Node], node: Node, i: int, spec: Any) -> None:
    blob = node.layer.blobs[i]
    fits = blob.n_elems == owner.blob.n_elems if spec.share_mode == spec.PERMISSIVE else blob.shape == owner.blob.shape
    where = f"layer {node.name!r}: parameter {spec.name!r} is shared with layer {nodes[owner.layer_index].name!r}"
    if not fits:
        raise UserError(f"{where}, but has shape {blob.shape} against {owner.blob.shape}")
    for name in MULTIPLIERS:
        if spec.HasField(name) and owner.given.setdefault(name, getattr(spec, name)) != getattr(spec, name):
            raise UserError(f"{where}, but has {name} {getattr(spec, name):g} against {owner.given[name]:g}")
    owner.sharers.append(blob)
    blob.writes = owner.blob.writes
    node.shared.add(i)


def _own_blobs(net: Net, trained: Net) -> list[Blob]:
    shared = {id(blob) for blob, _ in net.sharers}
    n_theirs = {node.name: len(node.layer.blobs) for node in trained.nodes}
    return [blob for node in net.nodes for blob in node.layer.blobs[n_theirs.get(node.name, 0):]
            if id(blob) not in shared]


def _plan_backward(nodes: list[Node], params: list[Param], force: bool) -> None:
    rates = {id(blob): p.lr_mult for p in params for blob in (p.blob, *p.sharers)}
    specs = []
    for node in nodes:
        node.layer.param_propagate_down = [force or rates[id(b)] != 0 for b in node.layer.blobs]
        specs.append(graph.BackwardSpec(
            bottoms=tuple(node.bottom_names), tops=tuple(node.top_names),
            propagate_down=tuple(node.param.propagate_down), loss=tuple(w != 0 for w in node.loss_weights),
            learns=any(rates[id(b)] != 0 for b in node.layer.blobs),
            allows_force=tuple(node.layer.allow_force_backward(i) for i in range(len(node.bottoms)))))
    for node, plan in zip(nodes, graph.plan_backward(specs, force), strict=True):
        node.needs_backward, node.propagate_down = plan.needs_backward, list(plan.propagate_down)
