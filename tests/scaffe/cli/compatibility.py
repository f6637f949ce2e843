"""Makes docs/compatibility.md: every layer type, option, solver field and file kind, from the schema and the code.

An option works if the code reads it and a test names it together with its message; what is accepted without effect,
or has another effect than in Caffe, stands in ``DIFFERS``.
``python -m tests.scaffe.cli.compatibility`` writes the page.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from scaffe.layers.base.layer import layer_types
from scaffe.proto import caffe_pb2
from scaffe.proto.forks import FORKS

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "compatibility.md"
CAFFE_TYPES = [
    "AbsVal", "Accuracy", "ArgMax", "BNLL", "BatchNorm", "BatchReindex", "Bias", "Clip", "Concat", "ContrastiveLoss",
    "Convolution", "Crop", "Data", "Deconvolution", "Dropout", "DummyData", "ELU", "Eltwise", "Embed",
    "EuclideanLoss", "Exp", "Filter", "Flatten", "HDF5Data", "HDF5Output", "HingeLoss", "Im2col", "ImageData",
    "InfogainLoss", "InnerProduct", "Input", "LRN", "LSTM", "LSTMUnit", "Log", "MVN", "MemoryData",
    "MultinomialLogisticLoss", "PReLU", "Parameter", "Pooling", "Power", "Python", "RNN", "ReLU", "Reduction",
    "Reshape", "SPP", "Scale", "Sigmoid", "SigmoidCrossEntropyLoss", "Silence", "Slice", "Softmax", "SoftmaxWithLoss",
    "Split", "Swish", "TanH", "Threshold", "Tile", "WindowData",
]
TOOLKIT = "accepted; one backend a device, so nothing to choose"
OLD = "moved to transform_param in nets of `layers`; says nothing in today's nets, as in Caffe"
C3D = "C3D's, of nets of `layers`; moved to the messages of its own layers"
UNREAD = "accepted without effect, as in the fork"
DIFFERS = {
    "engine": TOOLKIT,
    "convolution_param.engine": "CAFFE computes the definition's sums, never Winograd's; otherwise nothing to choose",
    "convolution_param.force_nd_im2col": "accepted; the same convolution for any number of axes",
    "bbox_reg_param.cls_aware": "accepted; of the layers that learn boxes, which are not there",
    "python_param.share_in_parallel": "accepted; each rank has a layer of its own",
    "recurrent_param.debug_info": "accepted; no log of the unrolled net",
    "data_param.rand_skip": "accepted without effect, as in Caffe 1.0",
    "data_param.force_encoded_color": "accepted; transform_param's force_color decides",
    **{f"{reader}_param.{name}": OLD for reader in ("data", "image_data", "window_data")
       for name in ("scale", "mean_file", "crop_size", "mirror") if (reader, name) != ("window_data", "scale")},
    **{f"{message}_param.{name}": C3D for message, names in {
        "convolution": ("kernel_depth", "temporal_stride", "filter_group", "temporal_pad"),
        "pooling": ("kernel_depth", "temporal_stride"),
        "image_data": ("new_length", "show_data", "use_image", "sampling_rate", "use_temporal_jitter", "mean_value"),
    }.items() for name in names},
    "image_data_param.use_label": "accepted without effect, as in C3D",
    **{f"video_data_param.{name}": UNREAD for name in ("scale", "mean_file", "crop_size", "mirror", "is_color")},
    "dense_image_data_param.mean_file": f"{UNREAD}; transform_param's is read",
    **{f"ctc_loss_param.{name}": UNREAD for name in ("output_delay", "preprocess_collapse_repeated",
                                                     "loss_calculation_t")},
    "detectnet_groundtruth_param.coverage_type": "accepted; there is one type, RECTANGULAR",
    **{f"annotated_data_param.{name}": "accepted; for segmentation in MobileNet-YOLO, which is not there" for name in (
        "single_class", "seg_scales", "seg_resize_width", "seg_resize_height")},
    "seg_accuracy_param.metric": f"{UNREAD}: the top has all three",
    **{f"region_loss_param.{name}": UNREAD for name in ("side", "softmax", "jitter", "absolute", "random",
                                                        "softmax_tree", "class_map")},
    **{f"yolo_detection_output_param.{name}": UNREAD for name in ("side", "coords", "label_map_file")},
    **{f"yolov3_param.{name}": UNREAD for name in ("side", "noobject_scale")},
    "solver.warmup_iter": "as jolibrain/caffe's; intel/caffe also scales the momentum by the rates, which is not done",
    "solver.solver_mode": "accepted; the command line chooses the device",
    "solver.device_id": "accepted; each rank takes its own device",
    "solver.layer_wise_reduce": "accepted; the strategy decides when gradients are reduced",
    "annotated_data_param.label_map_file": "accepted; not read, as in SSD",
    "annotated_data_param.anno_type": "records then have objects, whatever they say; BBOX is the only kind",
    "detection_output_param.visualize": "accepted; nothing is shown",
    "detection_output_param.visualize_threshold": "accepted; nothing is shown",
    "detection_output_param.save_file": "accepted; nothing is shown",
    "detection_output_param.save_output_param": "works on one rank; several say that they save nothing",
}
IN_PLACE = "in place its gradient is the right one; Caffe takes the values already overwritten"
ADDS_UP = "its gradients add up over passes where Caffe's overwrite: "
LAYER_NOTES = {  # where a layer does otherwise than Caffe 1.0, found by running both on the same random nets
    "BNLL": IN_PLACE, "Log": IN_PLACE, "Power": IN_PLACE, "Clip": IN_PLACE,
    "ReLU": f"with a negative slope below 0, {IN_PLACE}", "ELU": f"with alpha below 0, {IN_PLACE}",
    "Parameter": f"{ADDS_UP}always", "Scale": f"{ADDS_UP}one item, or a scale of the bottom's whole shape",
    "SoftmaxWithLoss": "its second top works; Caffe aborts over the loss weights",
    "Convolution": "a window larger than the padded bottom is refused, whatever the stride",
    "Pooling": "a last window behind the bottom is refused; Caffe reads outside its memory; five axes work, as in "
               "yjxiong/caffe",
    "BN": "the gradient in testing is that of the averages, which were used; PSPNet's takes it for the batch's",
    "CenterLoss": "as ydwen/caffe-face; happynear/caffe-windows counts each item's share of a centre's gradient again",
    "Interp": "zoom_factor gives (n - 1) zoom_factor + 1 as in DeepLab; OpenVINO's two segmentation nets want n times "
              "zoom_factor, as a height and width",
    "Lstm": "the gradient of W_h leaves out steps at which a sequence begins; caffe-lstm counts them",
    "MultiBoxLoss": "LOGISTIC without mining marks each item's own boxes; SSD's fork, from the second item on, others'",
    "Normalize": "the gradient is exact; SSD's leaves a term unscaled where channels have scales of their own",
    "Upsample": "scale: 1 without a mask too, as in YOLO's forks",
    "PReLU": "bottoms of more than 4 axes work", "EuclideanLoss": "bottoms of more than 4 axes work",
    "SmoothL1Loss": "2 or 4 bottoms as Fast R-CNN's, 3 as SSD's; with a loss_param it is divided as R-FCN's",
    "ROIAlign": "with roi_align_param as Detectron's, with roi_pooling_param as Cascade R-CNN's; the samples of "
                "jasjeetIM/Mask-RCNN, which leave regions out, are not followed",
    "Proposal": "as PVANet's, with scale in units of base_size (happynear/caffe-windows: pixels); "
                "a user's rpn.proposal_layer in Python runs too",
    "SoftmaxWithLossOHEM": "losses of ignored positions are 0, on the CPU too",
    "BatchNorm": "bottoms of one axis work; NVIDIA's scale_bias, scale_filler and bias_filler become a Scale layer",
    "Input": "tops without a shape are empty, not an end of the program",
}
FILES = [  # kind, read, written, the test
    ("net prototxt, today's, of `layers` (2014) and the first ones", "yes", "today's", "scaffe/nets/test_graph.py"),
    ("solver prototxt, old ones with solver_type too", "yes", "today's", "scaffe/cli/test_upgrade_commands.py"),
    (".caffemodel, of all three generations", "yes", "today's", "scaffe/files/test_files.py"),
    (".caffemodel.h5", "yes", "yes", "scaffe/files/test_files.py"),
    (".solverstate", "yes", "yes, with random streams and checksums that Caffe passes over",
     "scaffe/files/test_files.py"),
    (".solverstate.h5", "yes", "yes", "scaffe/files/test_files.py"),
    (".binaryproto means", "yes", "yes", "scaffe/files/test_files.py"),
    ("LMDB of Datum records", "yes", "yes", "data/test_lmdb.py"),
    ("LMDB and LevelDB of AnnotatedDatum records (SSD)", "yes", "yes", "data/test_annoset.py"),
    ("annotations of PASCAL VOC, ILSVRC and MS COCO; label maps", "yes", "label maps", "data/test_annoset.py"),
    ("LevelDB of Datum records", "yes", "no", "data/test_leveldb.py"),
    ("image lists", "yes", "no", "data/test_images.py"),
    ("HDF5 data and lists of such files", "yes", "yes", "data/test_hdf5.py"),
    (".caffemodel and means of C3D's first version", "yes", "today's", "scaffe/files/test_c3d_files.py"),
    ("window files", "yes", "no", "data/test_windows.py"),
    ("MNIST's IDX archives", "yes", "no", "data/test_idx.py"),
]

# `python -m tests.batch_norms` on the repositories' files; layers of at most 200 numbers a channel, LeNet's all.
BATCH_NORMS = """| net, items | layers | sums over | top: ours | Caffe's | nearer | gradient: ours | Caffe's | nearer |
| --- | --- | --- | --- | --- | --- | --- | --- | --- |
| LeNet with batch norm, 1 | 3 | 1-576 | 9.2e-08 | 1.0e-07 | 3 | 0 | 0 | 3 |
| LeNet with batch norm, 2 | 3 | 2-1152 | 8.7e-08 | 6.4e-06 | 3 | 8.6e-08 | 2.1e-05 | 3 |
| ResNet-34 (DeepDetect's SSD), 1 | 7 | 25-100 | 9.0e-08 | 1.2e-07 | 7 | 8.6e-08 | 2.7e-07 | 7 |
| ResNet-34 (DeepDetect's SSD), 2 | 7 | 50-200 | 1.0e-07 | 1.2e-07 | 7 | 2.7e-07 | 3.5e-07 | 7 |
| ResNet-50, 1 | 29 | 49-196 | 1.2e-07 | 1.6e-07 | 27 | 2.8e-03 | 5.7e-03 | 26 |
| ResNet-50, 2 | 10 | 98-98 | 1.0e-07 | 1.3e-07 | 9 | 5.3e-03 | 9.0e-03 | 9 |
| ResNet-101, 1 | 80 | 49-196 | 1.3e-07 | 1.9e-07 | 77 | 4.7e-03 | 7.3e-03 | 71 |
| ResNet-101, 2 | 10 | 98-98 | 1.1e-07 | 1.5e-07 | 10 | 7.2e-03 | 9.9e-03 | 8 |
| ResNet-152, 1 | 119 | 49-196 | 1.2e-07 | 2.1e-07 | 109 | 4.3e-03 | 6.6e-03 | 106 |
| ResNet-152, 2 | 10 | 98-98 | 1.2e-07 | 1.4e-07 | 10 | 6.0e-03 | 9.6e-03 | 9 |
| ResNet-18, 1 | 10 | 49-196 | 1.3e-07 | 1.3e-07 | 8 | 5.4e-03 | 7.7e-03 | 9 |
| ResNet-18, 2 | 5 | 98-98 | 1.0e-07 | 1.3e-07 | 5 | 5.1e-03 | 1.0e-02 | 5 |
| GoogLeNet-BN, 1 | 49 | 49-196 | 1.1e-07 | 2.0e-07 | 49 | 2.9e-07 | 4.1e-07 | 45 |
| GoogLeNet-BN, 2 | 16 | 98-98 | 1.1e-07 | 1.6e-07 | 16 | 2.2e-07 | 5.8e-07 | 15 |
| VGG19 with batch norm, fc6 and fc7 too, 1 | 6 | 1-196 | 1.1e-07 | 1.4e-07 | 6 | 0 | 0 | 6 |
| VGG19 with batch norm, fc6 and fc7 too, 2 | 2 | 2-2 | 3.0e-08 | 6.6e-05 | 2 | 3.8e-08 | 4.4e-05 | 2 |
| Inception v3, 1 | 20 | 64-64 | 1.1e-07 | 1.8e-07 | 19 | 2.4e-07 | 4.1e-07 | 20 |
| Inception v3, 2 | 20 | 128-128 | 1.1e-07 | 1.5e-07 | 20 | 2.2e-07 | 3.9e-07 | 19 |
| PVANet with fc6, fc7, 1 | 62 | 1-144 | 1.2e-07 | 2.3e-07 | 59 | 0 | 0 | 62 |
| PVANet with fc6, fc7, 2 | 32 | 2-72 | 1.1e-07 | 3.5e-05 | 30 | 1.5e-07 | 1.9e-05 | 25 |"""
BATCH_NORM_WORDS = (
    "Gradients of nets with batch norm on one or two items differ from BVLC Caffe's by more than others, since "
    "rounding is multiplied there. For every such layer's own bottom and top gradient, Caffe's formula in float64 says "
    "how near ours is, and how near the same formula in float32 in BVLC Caffe's order: the largest error over the "
    "layers, relative to the largest number, and in how many layers ours is as near or nearer. (Up to 32 numbers a "
    "channel are summed in float64. With one number a channel the top is 0, and so is what comes back through it. The "
    "loss is the last layer's sum of squares, which has hardly a gradient behind a batch norm without ReLU, as in the "
    "ResNets of 50 and more layers.)")
ZOO = (
    "On 2026-11-22 `python -m tests.zoo` ran 775 distinct nets of 48 public repositories of forks, both phases, batch"
    " 1, forward and backward, with data of made-up shapes (AMD EPYC, 2 cores, busy; at most 6 GB and 60 s a net and "
    "phase). 417 run whole, in each phase that has data. 115 have layers that are missing here, most of them named "
    "above. 113 call their authors' own Python modules. 92 want other data than the made-up (a label for every pixel,"
    " three segments a clip) or options of a fork that is not followed. 11 are templates or no text format, 9 have a "
    "layer without its bottom in either phase, 6 need more than 6 GB, 12 took more than 60 s. Three things were at "
    "fault here and are mended: non-maximum suppression of YOLO's boxes took 20 s where a net is not trained, and "
    "takes 1 s; NumPy warned of such nets; `upgrade_net_proto_text` lost two of three `kernel_size` of Pooling over "
    "clips. Eight of the layers that were missing have been added since, and all 19 deploy nets of Cascade R-CNN build "
    "with them. On 2026-11-23 the 99 nets of the run that wanted other data, other options or a bottom were gone "
    "through one by one: 58 build, with images and labels of the shapes that they want, with Pooling over five axes, "
    "or with `enable` read as `include`; 30 want more (segments of clips, pairs of images, masks, labels of a length) "
    "or follow a fork that is not followed; 9 have a layer without its bottom, 2 one that is missing. The whole was "
    "not run again; 540 of the 775, as far as time went, were built again: 329 whole.")
NOTES = (
    "The text format is protoc's: 17,500 random messages were read or refused as by protoc 7.36, and of 700 of them "
    "698 as by 3.21, which does not know the escape `\\X`. Strings may have bytes that are no UTF-8, raw or as "
    "`\\xff`: names in trained nets and the names of files have them again; in Python such a byte is one character "
    "from U+EF80 to U+EFFF.",
    "`nms_param`'s `eta` below 1 lowers the overlap that suppresses a box after each box that stays, as in SSD's fork; "
    "OpenCV's dnn is the reference for the rest of DetectionOutput, not for this option.",
)


def page() -> str:
    """The whole page."""
    parts = ["# What of Caffe 1.0 works", "",
             "Made by `python -m tests.scaffe.cli.compatibility` from the schema, the code and the tests; a test sees "
             "to it that it claims nothing untrue. *works*: the code reads it and a test names it. *differs*: how.", "",
             "## Layers", "", "| type | |", "| --- | --- |", *_layer_rows(), "", "## Forks", "",
             "Nets of these forks of Caffe, by the layer types that they add to BVLC's. Whole nets of a fork run where "
             "nothing is missing.", "", "| nets | forks | there | missing |", "| --- | --- | --- | --- |",
             *_fork_rows(), "", ZOO, "", "## Where rounding decides", "", BATCH_NORM_WORDS, "", BATCH_NORMS, "",
             "## Also different", "", *(f"- {note}" for note in NOTES), "", "## Options", ""]
    for field in caffe_pb2.LayerParameter.DESCRIPTOR.fields:
        if field.name.endswith("_param"):
            parts += [f"### {field.name}", "", *_option_rows(field.name, field.message_type), ""]
    parts += ["## Solver", "", *_option_rows("solver", caffe_pb2.SolverParameter.DESCRIPTOR), "", "## Files", "",
              "| kind | read | written | test |", "| --- | --- | --- | --- |"]
    parts += [f"| {kind} | {read} | {written} | tests/{test} |" for kind, read, written, test in FILES]
    return "\n".join(parts) + "\n"


def _layer_rows() -> Iterator[str]:
    known = layer_types.names()
    for name in sorted({*known, *CAFFE_TYPES}, key=lambda name: (name.lower(), name)):
        origin = "" if name in CAFFE_TYPES else " (from forks)"
        note = f"; {LAYER_NOTES[name]}" if name in LAYER_NOTES else ""
        yield f"| {name} | {'works' if name in known else '**missing**'}{origin}{note} |"


def _fork_rows() -> Iterator[str]:
    known = set(layer_types.names())
    for fork in (fork for fork in FORKS if fork.types):
        there, missing = ([name for name in fork.types if (name in known) == wanted] for wanted in (True, False))
        yield f"| {fork.nets} | {', '.join(fork.repositories)} | {', '.join(there)} | {', '.join(missing)} |"


def _option_rows(prefix: str, message: Any) -> Iterator[str]:
    yield "| option | default | |"
    yield "| --- | --- | --- |"
    for option in message.fields:
        yield f"| {option.name} | {_default(option)} | {state(prefix, option.name)} |"


def state(prefix: str, option: str) -> str:
    """"works", "differs: ...", or what is wrong with it."""
    note = DIFFERS.get(f"{prefix}.{option}") or DIFFERS.get(option)
    if note:
        return f"differs: {note}"
    rooms = ("scaffe", "data") if prefix == "solver" else ("layers", "data", "scaffe")
    if not any(option in _names_read(room) for room in rooms):
        return "**not read**"
    return "works" if option in _words_of_tests(prefix) else "read; no test names it"


@cache
def _names_read(room: str) -> set[str]:
    source = "\n".join(path.read_text() for path in (ROOT / room).rglob("*.py"))
    return set(re.findall(r"""(?<=[."'])[a-z]\w*""", source))


@cache
def _words_of_tests(prefix: str) -> set[str]:
    """All words of the test files that name the message."""
    message = "Solver" if prefix == "solver" else prefix.removesuffix("_param").replace("_", "")
    words: set[str] = set()
    for path in (ROOT / "tests").rglob("*.py"):
        text = path.read_text()
        if path.name != Path(__file__).name and (prefix in text or f"{message}parameter" in text.lower()):
            words |= set(re.findall(r"[a-z]\w*", text))
    return words


def _default(option: Any) -> str:
    if isinstance(option.default_value, list):
        return "none"
    if not option.has_default_value:
        return ""
    value = option.default_value
    if option.enum_type is not None:
        return str(option.enum_type.values_by_number[value].name)
    return f"{value:.7g}" if isinstance(value, float) else str(value).lower() if isinstance(value, bool) else str(value)


if __name__ == "__main__":
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(page())
