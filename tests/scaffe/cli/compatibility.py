"""Makes docs/compatibility.md and docs/layers.md: every layer type, option, solver field and file kind.

Their text stands in the folder pages; tables come from the schema and the code. An option works if the code reads it
and a test names it together with its message; what is accepted without effect, or has another effect than in Caffe,
stands in ``DIFFERS``. ``python -m tests.scaffe.cli.compatibility`` writes both pages.
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
DOCS, TEXTS, NAMES = ROOT / "docs", Path(__file__).parent / "pages", ("compatibility", "layers")
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
    "DetectionOutput": "as OpenCV's dnn, but for `nms_param`'s `eta`: below 1 it lowers the overlap that suppresses a "
                       "box after each box that stays, as in SSD's fork",
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


def page(name: str) -> str:
    """A page of docs/: its text in the folder pages, with the tables in their places."""
    tables = {"counts": _counts, "types": _types, "layer_notes": _layer_notes, "forks": _forks, "files": _files,
              "differing_options": _differing_options, "options": _options}
    text = (TEXTS / f"{name}.md").read_text()
    return re.sub(r"\{\{ (\w+) \}\}", lambda place: "\n".join(tables[place[1]]()), text)


def _known() -> tuple[list[str], list[str]]:
    """The types that work, in alphabetical order: Caffe's and those of forks."""
    known = set(layer_types.names())
    caffes, forks = (sorted(types, key=str.lower) for types in (known & set(CAFFE_TYPES), known - set(CAFFE_TYPES)))
    return caffes, forks


def _counts() -> Iterator[str]:
    caffes, forks = _known()
    yield f"Of Caffe 1.0's {len(CAFFE_TYPES)} layer types {len(caffes)} work, and {len(forks)} of forks"


def _types() -> Iterator[str]:
    caffes, forks = _known()
    yield f"- Of Caffe 1.0's {len(CAFFE_TYPES)} types, {len(caffes)} work: {', '.join(caffes)}."
    if missing := sorted(set(CAFFE_TYPES) - set(caffes)):
        yield f"- **Missing**: {', '.join(missing)}."
    yield f"- {len(forks)} types of forks work: {', '.join(forks)}."


def _layer_notes() -> Iterator[str]:
    yield from ("| type | |", "| --- | --- |")
    names: dict[str, list[str]] = {}
    for name in sorted(LAYER_NOTES, key=str.lower):
        names.setdefault(LAYER_NOTES[name], []).append(name)
    for note, about in names.items():
        yield f"| {', '.join(about)} | {note} |"


def _files() -> Iterator[str]:
    yield from ("| kind | read | written | test |", "| --- | --- | --- | --- |")
    for kind, read, written, test in FILES:
        yield f"| {kind} | {read} | {written} | tests/{test} |"


def _forks() -> Iterator[str]:
    yield from ("| nets | forks | there | missing |", "| --- | --- | --- | --- |")
    known = set(layer_types.names())
    for fork in (fork for fork in FORKS if fork.types):
        there, missing = ([name for name in fork.types if (name in known) == wanted] for wanted in (True, False))
        yield f"| {fork.nets} | {', '.join(fork.repositories)} | {', '.join(there)} | {', '.join(missing)} |"


def _options() -> Iterator[str]:
    """A row a message: its options that work."""
    yield from ("| of | options |", "| --- | --- |")
    for name, options in _by_state()[WORKS].items():
        yield f"| {name} | {', '.join(options)} |"


def _differing_options() -> Iterator[str]:
    """A row a statement: the messages and options that it is about."""
    yield from ("| option | |", "| --- | --- |")
    for said, options_of in _by_state().items():
        messages: dict[str, list[str]] = {}  # options -> messages that have these
        for name, options in options_of.items():
            messages.setdefault(", ".join(options), []).append(name)
        if said != WORKS:
            about = (f"{', '.join(names)}: {options}" for options, names in messages.items())
            yield f"| {'; '.join(about)} | {said} |"


def _by_state() -> dict[str, dict[str, list[str]]]:
    """State -> message -> options."""
    messages = [("solver", caffe_pb2.SolverParameter.DESCRIPTOR)]
    messages += [(field.name, field.message_type) for field in caffe_pb2.LayerParameter.DESCRIPTOR.fields
                 if field.name.endswith("_param")]
    states: dict[str, dict[str, list[str]]] = {}
    for name, message in messages:
        for option in message.fields:
            said = state(name, option.name)
            shown = _with_default(option) if said == WORKS else option.name
            states.setdefault(said, {}).setdefault(name, []).append(shown)
    return states


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
    for name in NAMES:
        (DOCS / f"{name}.md").write_text(page(name))
