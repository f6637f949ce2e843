"""Which nets of a folder run: ``python -m tests.zoo FOLDER... [-batch N] [-side PIXELS] [-phase train|test] [-build]``.

Takes every prototxt of the folders that is a net, replaces its data layers by DummyData of the declared shape, builds
it in both phases, runs forward and backward, and prints what fails and why, then how many failed for each reason. Where
a net does not say the shape of its images and does not run with the usual one, others are tried (``OTHER_IMAGES``). The
nets are other people's, so no test runs this.
"""

from __future__ import annotations

import argparse
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from scaffe.errors import ExpectedError
from scaffe.files.repair import repair_net
from scaffe.files.upgrade import upgrade_net
from scaffe.layers.base.context import Context
from scaffe.layers.base.layer import layer_types
from scaffe.layers.base.random import Stream
from scaffe.layers.kernels import cpu
from scaffe.nets import graph
from scaffe.nets.build import build_net
from scaffe.nets.net import Net
from scaffe.proto import caffe_pb2
from scaffe.proto.text import parse_text, read_text

ENDINGS = (".prototxt", ".pt", ".pbtxt", ".prototext")
READERS = {"Data", "ImageData", "HDF5Data", "WindowData", "MemoryData", "AnnotatedData", "DenseImageData",
           "ImageSegData", "VideoData", "Python"}
IMAGE = ("data", "image", "img", "color", "hha", "depth")
SHAPES = {"im_info": (1, 3), "gt_boxes": (1, 5), "rois": (1, 5), "labels": (1,), "seg": (1, 1, 0, 0)}
LABEL_MAPS = {"DenseImageData", "ImageSegData"}  # whose second top is a label a pixel
SEGMENTED = ("voc_layers", "nyud_layers", "pascalcontext_layers", "siftflow_layers")  # labels of every pixel
BOXES = ("bbox_targets", "bbox_inside_weights", "bbox_outside_weights")
KIND_OF_LABEL = {(1, 1, 8): "label", (1, 1, 5): "yolo"}  # by its shape, of AnnotatedData
OTHER_IMAGES = ((3, 360, 480), (1, 28, 28), (2, 28, 28))  # channels, height, width: SegNet's, MNIST's, pairs of those
PHASES = {"train": 0, "test": 1}


def nets(folders: list[str]) -> Iterator[tuple[Path, str]]:
    """Every file that looks like a net, with its text."""
    for path in sorted(path for folder in folders for path in Path(folder).rglob("*") if path.name.endswith(ENDINGS)):
        try:
            text = read_text(path)
        except ExpectedError:
            continue
        if re.search(r"^\s*(layers?|input)\s*[:{]", text, re.M) and not re.search(r"^\s*base_lr\s*:", text, re.M):
            yield path, text


def with_dummy_data(net: Any, batch: int, image: tuple[int, int, int]) -> Any:
    """A copy whose readers are DummyData, and whose inputs hold at most ``batch`` items.

    Args:
        net: the net's message.
        batch: items.
        image: channels, height and width of images whose net says none.
    """
    new = upgrade_net(net)
    for layer in new.layer:
        if layer.type in READERS and not layer.bottom:
            _make_dummy(layer, batch, image)
        elif layer.type == "Input":
            _fill_input(layer, batch)
        elif layer.type == "DummyData":
            for shape in layer.dummy_data_param.shape:
                shape.dim[0] = min(shape.dim[0], batch) if shape.dim else 1
        if layer.HasField("detection_evaluate_param"):
            layer.detection_evaluate_param.ClearField("name_size_file")  # files that only their authors have
        if layer.HasField("detection_output_param"):
            layer.detection_output_param.ClearField("save_output_param")
    return new


def _make_dummy(layer: Any, batch: int, image: tuple[int, int, int]) -> None:
    transform = layer.transform_param
    resized = max(transform.resize_param, key=lambda r: r.height).height if transform.resize_param else 0
    side = transform.crop_size or resized or layer.memory_data_param.height
    height, width = (side, side) if side else image[1:]
    channels = 1 if transform.force_gray else layer.memory_data_param.channels or image[0]
    frames = [layer.video_data_param.new_length] if layer.type == "VideoData" else []
    classes = re.search(r"'num_classes': *(\d+)", layer.python_param.param_str)
    known_shapes = SHAPES | dict.fromkeys(BOXES, (1, 4 * int(classes[1]) if classes else 84))
    if layer.type == "AnnotatedData":
        known_shapes["label"] = (batch, 1, 1, 5) if layer.annotated_data_param.yolo_data_type else (1, 1, 1, 8)
    if layer.python_param.module in SEGMENTED:
        known_shapes |= dict.fromkeys(("label", "sem", "geo"), (1, 1, 0, 0))
    data = layer.dummy_data_param
    for index, top in enumerate(layer.top):
        is_image = index == 0 or any(word in top for word in IMAGE)
        others = (batch, 1, height, width) if layer.type in LABEL_MAPS else (batch,)
        shape = (batch, channels, *frames, height, width) if is_image else others
        known = known_shapes.get(top)
        data.shape.add().dim.extend([*known[:-2], height, width] if known and not known[-1] else known or shape)
        data.data_filler.add(type="gaussian" if is_image and not known else "constant")
    layer.type = "DummyData"


def _fill_input(layer: Any, batch: int) -> None:
    """As DummyData, so that backward has numbers to work on."""
    if not layer.input_param.shape:
        return
    for shape in layer.input_param.shape:
        dims = list(shape.dim)
        if len(dims) > 1:
            dims[0] = min(dims[0], batch)
        layer.dummy_data_param.shape.add().dim.extend(dims)
        layer.dummy_data_param.data_filler.add(type="gaussian" if len(dims) == 4 else "constant")
    layer.type = "DummyData"
    layer.ClearField("input_param")


def run(net: Any, phase: int, passes: bool = True) -> None:
    """Build, then forward and backward where ``passes`` is set. Raises what goes wrong."""
    built = build_net(graph.prepare(net, phase), Context(phase, cpu, rng=Stream(1)))
    try:
        if passes:
            _fill_boxes(built)
            built.forward()
            built.backward()
    finally:
        built.close()


def _fill_boxes(net: Net) -> None:
    """What R-CNN's data layers give beside the image: its size and scale, a true box, a region."""
    height, width = net.blobs["data"].shape[-2:] if "data" in net.blobs else (1, 1)
    given = {"im_info": (height, width, 1, 1), "gt_boxes": (width / 8, height / 8, width / 2, height / 2, 1),
             "rois": (0, width / 8, height / 8, width / 2, height / 2),
             "label": (0, 1, 0, 0.2, 0.2, 0.6, 0.6, 0), "yolo": (1, 0.4, 0.4, 0.3, 0.3)}
    for node in net.nodes:
        for name, blob in zip(node.top_names, node.tops, strict=True):
            kind = KIND_OF_LABEL.get(blob.shape[1:]) if name == "label" else name
            if node.is_source and kind in given:
                blob.data[...] = np.resize(given[kind], blob.shape[-1])


def reason(error: Exception) -> str:
    """What is common to all errors of one kind."""
    said = f"{type(error).__name__}: {error}" if not isinstance(error, ExpectedError) else str(error)
    said = re.sub(r"layer '[^']*'", "layer", re.sub(r"^[^ ]*:\d+:\d+: ", "", said))
    return re.sub(r"\(in layer .*?\)|'[^']*/[^']*'|\d+", "#", said)[:160]


def main() -> None:
    """Run every net; print failures, then reasons."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", nargs="+")
    parser.add_argument("-batch", type=int, default=1)
    parser.add_argument("-side", type=int, default=224)
    parser.add_argument("-phase", choices=PHASES)
    parser.add_argument("-build", action="store_true", help="build the nets only")
    options = parser.parse_args()
    reasons: Counter[str] = Counter()
    n_nets = n_failed = 0
    for path, text in nets(options.folders):
        n_nets += 1
        for name in [options.phase] if options.phase else PHASES:
            error = _attempt(text, PHASES[name], options)
            if error is not None:
                n_failed += 1
                reasons[reason(error)] += 1
                print(f"{path} ({name}): {error}", flush=True)
    print(f"\n{n_nets} nets, {n_failed} failures")
    for said, count in reasons.most_common():
        print(f"{count:5d}  {said}")


def _attempt(text: str, phase: int, options: argparse.Namespace) -> Exception | None:
    try:
        mended, _ = repair_net(text, layer_types.names())
        net = parse_text(mended, caffe_pb2.NetParameter)
        _run_with_some_image(net, phase, options)
    except Exception as error:  # whatever a stranger's net or its layers in Python raise
        return error
    return None


def _run_with_some_image(net: Any, phase: int, options: argparse.Namespace) -> None:
    """Run it with the first image that it builds with. Raises the first error where it does with none."""
    usual = 3, options.side, options.side
    first: ExpectedError | None = None
    for image in (usual, *OTHER_IMAGES):
        try:
            run(with_dummy_data(net, options.batch, image), phase, passes=False)
        except ExpectedError as error:
            first = first or error
            continue
        if not options.build:
            run(with_dummy_data(net, options.batch, image), phase)
        return
    if first is not None:
        raise first


if __name__ == "__main__":
    main()
