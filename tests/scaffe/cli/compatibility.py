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
WORKS = "works"
TOOLKIT = "accepted without effect: each device has one backend"
OLD = "in old nets (of `layers`) moved to transform_param; in today's without effect, as in Caffe"
C3D = "for C3D's nets (of `layers`) alone: moved to the options of its 3D layers"
UNREAD = "accepted without effect, as in the fork"
DIFFERS = {
    "engine": TOOLKIT,
    "convolution_param.engine": "CAFFE: direct convolution, never by Winograd's filtering; other values have no effect",
    "convolution_param.force_nd_im2col": "accepted without effect: one convolution for any number of axes",
    "bbox_reg_param.cls_aware": "accepted without effect: it is for layers that learn boxes, which are missing",
    "python_param.share_in_parallel": "accepted without effect: each rank has a layer of its own",
    "recurrent_param.debug_info": "accepted without effect: the unrolled net is not logged",
    "data_param.rand_skip": "accepted without effect, as in Caffe 1.0",
    "data_param.force_encoded_color": "accepted without effect: transform_param's force_color decides",
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
    "detectnet_groundtruth_param.coverage_type": "accepted without effect: there is one type, RECTANGULAR",
    **{f"annotated_data_param.{name}": "accepted without effect: for MobileNet-YOLO's segmentation, which is missing"
       for name in ("single_class", "seg_scales", "seg_resize_width", "seg_resize_height")},
    "seg_accuracy_param.metric": f"{UNREAD}: the top has all three",
    **{f"region_loss_param.{name}": UNREAD for name in ("side", "softmax", "jitter", "absolute", "random",
                                                        "softmax_tree", "class_map")},
    **{f"yolo_detection_output_param.{name}": UNREAD for name in ("side", "coords", "label_map_file")},
    **{f"yolov3_param.{name}": UNREAD for name in ("side", "noobject_scale")},
    "solver.warmup_iter": "as jolibrain/caffe's; intel/caffe also scales the momentum by the rates, which is not done",
    "solver.solver_mode": "GPU takes a GPU if there is one, and else the CPU; `-gpu` overrules it",
    "solver.device_id": "accepted without effect: `-gpu` names the devices, and each rank takes its own",
    "solver.layer_wise_reduce": "accepted without effect: `-strategy` decides when gradients are reduced",
    "annotated_data_param.label_map_file": "accepted without effect, as in SSD",
    "annotated_data_param.anno_type": "BBOX is the only kind; records count as such, whatever they say",
    "detection_output_param.visualize": "accepted without effect: nothing is shown",
    "detection_output_param.visualize_threshold": "accepted without effect: nothing is shown",
    "detection_output_param.save_file": "accepted without effect: nothing is shown",
    "detection_output_param.save_output_param": "works on one rank; several save nothing, and say so",
}
IN_PLACE = "in place its gradient is right; Caffe computes it from values that are overwritten by then"
ADDS_UP = "its gradients add up over passes where Caffe's overwrite: "
LAYER_NOTES = {  # where a layer does otherwise than Caffe 1.0, found by running both on the same random nets
    "BNLL": IN_PLACE, "Log": IN_PLACE, "Power": IN_PLACE, "Clip": IN_PLACE,
    "ReLU": f"with a negative slope below 0, {IN_PLACE}", "ELU": f"with alpha below 0, {IN_PLACE}",
    "Parameter": f"{ADDS_UP}always", "Scale": f"{ADDS_UP}one item, or a scale of the bottom's whole shape",
    "SoftmaxWithLoss": "a second top works; Caffe aborts",
    "Convolution": "a window larger than the padded bottom is refused, whatever the stride",
    "Pooling": "a last window that lies outside of the bottom is refused; Caffe reads outside of its memory. Five axes "
               "work, as in yjxiong/caffe",
    "BN": "the gradient in testing is that of the averages, which were used; PSPNet's takes it for the batch's",
    "CenterLoss": "as in ydwen/caffe-face; happynear/caffe-windows counts each item's share of a centre's gradient "
                  "several times",
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
    "Input": "tops without a shape are empty; Caffe aborts",
}
FILES = [  # kind, read, written, the test
    ("net prototxt, today's, of `layers` (2014) and the first ones", "yes", "today's", "scaffe/nets/test_graph.py"),
    ("solver prototxt, old ones with solver_type too", "yes", "today's", "scaffe/cli/test_upgrade_commands.py"),
    (".caffemodel, of all three generations", "yes", "today's", "scaffe/files/test_files.py"),
    (".caffemodel.h5", "yes", "yes", "scaffe/files/test_files.py"),
    (".safetensors: weights", "yes", "yes", "scaffe/files/test_safetensors.py"),
    (".solverstate", "yes", "yes, with random streams and checksums that Caffe passes over",
     "scaffe/files/test_files.py"),
    (".solverstate.h5", "yes", "yes", "scaffe/files/test_files.py"),
    (".binaryproto means", "yes", "yes", "scaffe/files/test_files.py"),
    ("LMDB of Datum records", "yes", "yes", "data/test_lmdb.py"),
    ("LMDB and LevelDB of AnnotatedDatum records (SSD)", "yes", "yes", "data/test_annoset.py"),
    ("annotations of PASCAL VOC, ILSVRC and MS COCO; label maps", "yes", "label maps", "data/test_annoset.py"),
    ("LevelDB of Datum records", "yes", "yes", "data/test_leveldb_writer.py"),
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
BATCH_NORM_WORDS = """Batch norm over few numbers multiplies rounding errors. With one or two items in a batch, \
gradients therefore differ from BVLC Caffe's by more than elsewhere. Which of the two is nearer to the exact result?

The reference is Caffe's formula in float64, for every BatchNorm layer from its own bottom and top gradient. Beside it \
stand our results, and those of the formula in float32 in the order of BVLC Caffe's code. The table has the largest \
error over all layers, relative to the largest number, and in how many layers ours is as near or *nearer*. In the \
first column stands the number of items.

- We sum up to 32 numbers a channel in float64.
- With one number a channel the top is 0, and so is the gradient.
- The loss is the last layer's sum of squares. Behind a batch norm without ReLU, as in the ResNets of 50 and more \
layers, hardly any gradient comes of it: hence errors of 1e-3."""
ZOO = """`python -m tests.zoo FOLDER` runs all nets below a folder, in both phases, batch 1, forward and backward, on \
data of made-up shapes. On 2026-11-22 it ran 775 distinct nets of 48 public repositories of forks (AMD EPYC, 2 cores, \
busy; at most 6 GB and 60 s a net and phase):

| nets | what became of them |
| --- | --- |
| 417 | run whole, in each phase that has data |
| 115 | have layers that are missing here, most of them named above |
| 113 | call their authors' own Python modules |
| 92 | want other data than the made-up (a label for every pixel, three segments a clip), or options of a fork that is \
not followed |
| 12 | took more than 60 s |
| 11 | are templates or not in the text format |
| 9 | have a layer without its bottom in either phase |
| 6 | need more than 6 GB |

Since then eight of the missing layers have been added; all 19 deploy nets of Cascade R-CNN build with them. On \
2026-11-23, 99 nets that had wanted other data, other options or a bottom were gone through one by one, and 58 of them \
build: with images and labels of the shapes that they want, with Pooling over five axes, or with `enable` read as \
`include`. 30 want more (segments of clips, pairs of images, masks, labels of a length) or follow a fork that is not \
followed, 9 have a layer without its bottom, 2 one that is missing. Of the 775, 540 were built again, and 329 of these \
build whole; all have not been run again."""
NOTES = (
    "The text format is read as protoc reads it: of 17,500 random messages, all were read or refused as by protoc "
    "7.36; of 700 of them, 698 as by 3.21, which does not know the escape `\\X`.",
    "Strings need not be UTF-8. Names in trained nets and names of files may hold any bytes, raw or as `\\xff`, "
    "and are written as they were read. In Python such a byte is one character from U+EF80 to U+EFFF.",
    "DetectionOutput is compared with OpenCV's dnn, but for `nms_param`'s `eta`: below 1 it lowers the overlap that "
    "suppresses a box after each box that stays, as in SSD's fork.",
)


TOOLS = (
    "`train -stage` and `-level` are the training net's alone, and `-level`, 0 where it is not given, takes the place "
    "of `train_state`'s and of the net's own: as in Caffe's tool.",
    "A run that goes on from a snapshot gives layers that only a test net has their pretrained weights (`weights`, "
    "`-weights`) once more; Caffe leaves them at their fillers.",
    "`convert_imageset` and lists of images: a label that is no whole number (2.7) is refused; Caffe takes the whole "
    "number that it begins with (2), or 0. Blanks in front of a label are no part of the file's name, nor is a "
    "byte order mark in front of the first name.",
    "Of several layers with parameters and one name, the first in a file is for the first in the net, and so on; Caffe "
    "copies all to the first. HDF5 has one of a name: such a net is refused before it is trained.",
    "`parse_log` counts seconds from the line `Solving` or, in a log without one (py-faster-rcnn's, or of a script "
    "that calls `step`), from the first iteration's; Caffe's wants such a line.",
)


def page() -> str:
    """The whole page."""
    sections = {
        "Layers": _layers(),
        "Forks": ["Layer types that forks of Caffe add to BVLC's. Nets of a fork run whole where nothing is missing.",
                  "", "| nets | forks | there | missing |", "| --- | --- | --- | --- |", *_fork_rows(), "", ZOO],
        "Options": _options(),
        "Files": ["| kind | read | written | test |", "| --- | --- | --- | --- |",
                  *(f"| {kind} | {read} | {written} | tests/{test} |" for kind, read, written, test in FILES)],
        "Solvers and tools": [f"- {note}" for note in TOOLS],
        "Text": [f"- {note}" for note in NOTES],
        "Where rounding decides": [BATCH_NORM_WORDS, "", BATCH_NORMS],
    }
    parts = ["# What is the same as in Caffe, and what is not", "",
             "Every layer type, option, solver field and file kind of Caffe 1.0, and those of forks. The page is made "
             "from the schema, the code and the tests by `python -m tests.scaffe.cli.compatibility`. *Works* means: "
             "the code reads it, and a test names it."]
    for heading, lines in sections.items():
        parts += ["", f"## {heading}", "", *lines]
    return "\n".join(parts) + "\n"


def _layers() -> list[str]:
    known = set(layer_types.names())
    missing = sorted(set(CAFFE_TYPES) - known)
    caffes, forks = (sorted(types, key=str.lower) for types in (known & set(CAFFE_TYPES), known - set(CAFFE_TYPES)))
    return [f"- Of Caffe 1.0's {len(CAFFE_TYPES)} types, {len(caffes)} work: {', '.join(caffes)}.",
            *[f"- **Missing**: {', '.join(missing)}."] * bool(missing),
            f"- {len(forks)} types of forks work: {', '.join(forks)}.", "",
            "Where a layer does otherwise than Caffe, or forks differ:", "", "| type | |", "| --- | --- |",
            *(f"| {name} | {note} |" for name, note in sorted(LAYER_NOTES.items(), key=lambda one: one[0].lower()))]


def _fork_rows() -> Iterator[str]:
    known = set(layer_types.names())
    for fork in (fork for fork in FORKS if fork.types):
        there, missing = ([name for name in fork.types if (name in known) == wanted] for wanted in (True, False))
        yield f"| {fork.nets} | {', '.join(fork.repositories)} | {', '.join(there)} | {', '.join(missing)} |"


def _options() -> list[str]:
    messages = [("solver", caffe_pb2.SolverParameter.DESCRIPTOR)]
    messages += [(field.name, field.message_type) for field in caffe_pb2.LayerParameter.DESCRIPTOR.fields
                 if field.name.endswith("_param")]
    states: dict[str, dict[str, list[str]]] = {}  # message -> state -> options
    for name, message in messages:
        for option in message.fields:
            said = state(name, option.name)
            shown = _with_default(option) if said == WORKS else option.name
            states.setdefault(name, {}).setdefault(said, []).append(shown)
    return ["All options do what they do in Caffe, but for these:", "", "| of | options | |", "| --- | --- | --- |",
            *(f"| {name} | {', '.join(options)} | {said} |" for name, said_of in states.items()
              for said, options in said_of.items() if said != WORKS),
            "", "These work; in brackets stands the default:", "", "| of | options |", "| --- | --- |",
            *(f"| {name} | {', '.join(said_of[WORKS])} |" for name, said_of in states.items() if WORKS in said_of)]


def state(prefix: str, option: str) -> str:
    """WORKS, how it differs, or what is wrong with it."""
    note = DIFFERS.get(f"{prefix}.{option}") or DIFFERS.get(option)
    if note:
        return note
    rooms = ("scaffe", "data") if prefix == "solver" else ("layers", "data", "scaffe")
    if not any(option in _names_read(room) for room in rooms):
        return "**not read**"
    return WORKS if option in _words_of_tests(prefix) else "read; no test names it"


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


def _with_default(option: Any) -> str:
    if isinstance(option.default_value, list) or not option.has_default_value or option.default_value == "":
        return str(option.name)
    value = option.default_value
    if option.enum_type is not None:
        value = option.enum_type.values_by_number[value].name
    elif isinstance(value, float):
        value = f"{value:.7g}"
    return f"{option.name} ({str(value).lower() if isinstance(value, bool) else value})"


if __name__ == "__main__":
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(page())
