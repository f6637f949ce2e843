"""Caffe's ``caffe.draw``: a NetParameter as a picture, without Graphviz, or as pydot's graph.

Blobs have nodes of their own in pydot's graph, unlike in our pictures.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from scaffe.atomic_files import write_whole
from scaffe.errors import UserError
from scaffe.files.upgrade import upgrade_net
from scaffe.pictures.layout import DIRECTIONS
from scaffe.pictures.net_boxes import LEARNING, has_phase
from scaffe.pictures.net_picture import net_picture, to_png, to_svg
from scaffe.proto import caffe_pb2

WRITERS = {"svg": to_svg, "png": to_png}
CONVOLUTIONS = ("Convolution", "Deconvolution")
COLOURS = {**dict.fromkeys(CONVOLUTIONS, "#FF5050"), "Pooling": "#FF9900", "InnerProduct": "#CC33FF"}
PLAIN = "#6495ED"
LAYER_STYLE_DEFAULT = {"shape": "record", "fillcolor": PLAIN, "style": "filled"}
NEURON_LAYER_STYLE = {"shape": "record", "fillcolor": "#90EE90", "style": "filled"}
BLOB_STYLE = {"shape": "octagon", "fillcolor": "#E0E0E0", "style": "filled"}
NO_LABEL, BLOB = '""', "_blob"


def draw_net(caffe_net: Any, rankdir: str = "LR", ext: str = "png", phase: int | None = None,
             display_lrm: bool = False) -> bytes:
    """Draw a net.

    Args:
        caffe_net: a NetParameter, in today's or an older form.
        rankdir: the direction of data flow: LR, RL, TB or BT; TB for any other, as in Graphviz.
        ext: svg, or png (which needs resvg-py).
        phase: TRAIN or TEST; None draws the layers of both.
        display_lrm: show the learning rate multipliers.

    Returns:
        The content of the picture file.

    Raises:
        ValueError: an unknown ext, or png without resvg-py.
    """
    if ext not in WRITERS:
        raise UserError(f"cannot draw .{ext}; the picture's file must end in .svg or .png")
    rankdir = rankdir if rankdir in DIRECTIONS else "TB"
    return WRITERS[ext](net_picture(upgrade_net(caffe_net), rankdir, phase, display_lrm))


def draw_net_to_file(caffe_net: Any, filename: str, rankdir: str = "LR", phase: int | None = None,
                     display_lrm: bool = False) -> None:
    """Write a net's picture to a ``.svg`` or ``.png`` file; see ``draw_net``. Raises ValueError."""
    content = draw_net(caffe_net, rankdir, Path(filename).suffix[1:].lower(), phase, display_lrm)
    write_whole(filename, content, UserError)


def get_pooling_types_dict() -> dict[int, str]:
    """From the number of a pooling method to its name: {0: "MAX", ...}."""
    return {number: name for name, number in caffe_pb2.PoolingParameter.PoolMethod.items()}


def get_edge_label(layer: Any) -> str:
    """The label of an edge from a layer to its top: the batch or the number of outputs."""
    if layer.type == "Data":
        return f"Batch {layer.data_param.batch_size}"
    if layer.type in CONVOLUTIONS:
        return str(layer.convolution_param.num_output)
    return str(layer.inner_product_param.num_output) if layer.type == "InnerProduct" else NO_LABEL


def get_layer_lr_mult(layer: Any) -> tuple[float, float]:
    """The learning rates' multipliers of a layer's weights and biases.

    Raises:
        ValueError: a layer of a type that has no weights, or with more than two multipliers.
    """
    if layer.type not in LEARNING:
        raise UserError(f"{layer.type} layers have no learning rate multipliers")
    rates = [spec.lr_mult for spec in layer.param]
    if len(rates) > 2:
        raise UserError(f"layer {layer.name!r}: expected at most two learning rate multipliers, got {len(rates)}")
    weights, biases = (*rates, 1.0, 1.0)[:2]
    return weights, biases


def get_layer_label(layer: Any, rankdir: str, display_lrm: bool = False) -> str:
    """The label of a layer's node, in quotes: name, type, geometry, and with display_lrm the rates' multipliers.

    Args:
        layer: the LayerParameter message.
        rankdir: TB or BT, where words are beside one another; any other puts them below one another.
        display_lrm: show the multipliers.
    """
    kind = layer.type
    if kind == "Pooling":
        kind += f" {get_pooling_types_dict()[layer.pooling_param.pool]}"
    words = [layer.name, f"({kind})", *_geometry(layer)]
    if display_lrm and layer.type in LEARNING and any(rates := get_layer_lr_mult(layer)):
        words.append("lr mult: {:.1f}, {:.1f}".format(*rates))
    return '"' + (" " if rankdir in ("TB", "BT") else r"\n").join(words) + '"'


def choose_color_by_layertype(layertype: str) -> str:
    """The fill colour of a layer's node."""
    return COLOURS.get(layertype, PLAIN)


def get_pydot_graph(caffe_net: Any, rankdir: str, label_edges: bool = True, phase: int | None = None,
                    display_lrm: bool = False) -> Any:
    """A net as a ``pydot.Dot``, with a node for each layer and for each blob.

    Args:
        caffe_net: a NetParameter in today's form.
        rankdir: the direction of data flow: LR, RL, TB or BT.
        label_edges: whether edges say how many outputs there are.
        phase: TRAIN or TEST; None takes the layers of both.
        display_lrm: show the learning rate multipliers.

    Raises:
        ValueError: neither pydotplus nor pydot is installed; a layer with both include and exclude rules.
    """
    pydot = _pydot()
    graph = pydot.Dot(caffe_net.name or "Net", graph_type="digraph", rankdir=rankdir)
    nodes: dict[str, Any] = {}
    edges = []
    for layer in caffe_net.layer:
        if phase is None or has_phase(layer, phase):
            name = f"{layer.name}_{layer.type}"
            nodes[name] = pydot.Node(get_layer_label(layer, rankdir, display_lrm), **_style(layer))
            for start, end, label in _edges(layer, name, label_edges):
                blob = end if start == name else start
                nodes.setdefault(blob, pydot.Node(blob.removesuffix(BLOB), **BLOB_STYLE))
                edges.append((start, end, label))
    for node in nodes.values():
        graph.add_node(node)
    for start, end, label in edges:
        graph.add_edge(pydot.Edge(nodes[start], nodes[end], label=label))
    return graph


def _edges(layer: Any, name: str, label_edges: bool) -> Iterator[tuple[str, str, str]]:
    for bottom in layer.bottom:
        yield bottom + BLOB, name, NO_LABEL
    for top in layer.top:
        yield name, top + BLOB, get_edge_label(layer) if label_edges else NO_LABEL


def _style(layer: Any) -> dict[str, str]:
    if len(layer.bottom) == 1 and list(layer.bottom) == list(layer.top):
        return NEURON_LAYER_STYLE
    return {**LAYER_STYLE_DEFAULT, "fillcolor": choose_color_by_layertype(layer.type)}


def _geometry(layer: Any) -> list[str]:
    """Kernel, stride and padding of a convolution or pooling layer, along its first axis."""
    if layer.type == "Pooling":
        p = layer.pooling_param
        kernel, stride, pad = p.kernel_size or p.kernel_h, p.stride_h or p.stride, p.pad_h or p.pad
    elif layer.type in CONVOLUTIONS:
        c = layer.convolution_param
        kernel, stride, pad = (next(iter(given), side or default) for given, side, default in (
            (c.kernel_size, c.kernel_h, 1), (c.stride, c.stride_h, 1), (c.pad, c.pad_h, 0)))
    else:
        return []
    return [f"kernel size: {kernel}", f"stride: {stride}", f"pad: {pad}"]


def _pydot() -> ModuleType:
    for name in ("pydotplus", "pydot"):
        try:
            return importlib.import_module(name)
        except ImportError:
            continue
    raise UserError("get_pydot_graph needs pydot: pip install pydot; draw_net and draw_net_to_file need nothing more")
