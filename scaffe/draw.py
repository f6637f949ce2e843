"""Caffe's ``caffe.draw``: a NetParameter as a picture, without Graphviz, or as pydot's graph."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from scaffe.atomic_files import write_whole
from scaffe.errors import UserError
from scaffe.files.upgrade import upgrade_net
from scaffe.pictures.drawing.graphviz import (
    BLOB_STYLE,
    LAYER_STYLE_DEFAULT,
    NEURON_LAYER_STYLE,
    choose_color_by_layertype,
    get_edge_label,
    get_layer_label,
    get_layer_lr_mult,
    get_pooling_types_dict,
    get_pydot_graph,
)
from scaffe.pictures.layout import DIRECTIONS
from scaffe.pictures.net_picture import net_picture, to_png, to_svg

__all__ = ["BLOB_STYLE", "LAYER_STYLE_DEFAULT", "NEURON_LAYER_STYLE", "choose_color_by_layertype", "draw_net",
           "draw_net_to_file", "get_edge_label", "get_layer_label", "get_layer_lr_mult", "get_pooling_types_dict",
           "get_pydot_graph"]

WRITERS = {"svg": to_svg, "png": to_png}


def draw_net(caffe_net: Any, rankdir: str = "LR", ext: str = "png", phase: int | None = None,
             display_lrm: bool = False) -> bytes:
    """Draw a net.

    Args:
        caffe_net: a NetParameter, in today's or an older form.
        rankdir: the direction of data flow: LR, RL, TB or BT; TB for any other, as in Graphviz.
        ext: svg, or png (which needs OpenCV).
        phase: TRAIN or TEST; None draws the layers of both.
        display_lrm: show the learning rate multipliers.

    Returns:
        The content of the picture file.

    Raises:
        ValueError: an unknown ext, or png without OpenCV.
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
