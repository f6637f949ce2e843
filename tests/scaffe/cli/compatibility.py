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
DIFFERS = {
    "engine": TOOLKIT,
    "convolution_param.force_nd_im2col": "accepted; the same convolution for any number of axes",
    "python_param.share_in_parallel": "accepted; each rank has a layer of its own",
    "recurrent_param.debug_info": "accepted; no log of the unrolled net",
    "data_param.rand_skip": "accepted without effect, as in Caffe 1.0",
    "data_param.force_encoded_color": "accepted; transform_param's force_color decides",
    **{f"{reader}_param.{name}": OLD for reader in ("data", "image_data", "window_data")
       for name in ("scale", "mean_file", "crop_size", "mirror") if (reader, name) != ("window_data", "scale")},
    "solver.solver_mode": "accepted; the command line chooses the device",
    "solver.device_id": "accepted; each rank takes its own device",
    "solver.layer_wise_reduce": "accepted; the strategy decides when gradients are reduced",
}
IN_PLACE = "in place its gradient is the right one; Caffe takes the values already overwritten"
ADDS_UP = "its gradients add up over passes where Caffe's overwrite: "
LAYER_NOTES = {  # where a layer does otherwise than Caffe 1.0, found by running both on the same random nets
    "BNLL": IN_PLACE, "Log": IN_PLACE, "Power": IN_PLACE, "Clip": IN_PLACE,
    "ReLU": f"with a negative slope below 0, {IN_PLACE}", "ELU": f"with alpha below 0, {IN_PLACE}",
    "Parameter": f"{ADDS_UP}always", "Scale": f"{ADDS_UP}one item, or a scale of the bottom's whole shape",
    "SoftmaxWithLoss": "its second top works; Caffe aborts over the loss weights",
    "Convolution": "a window larger than the padded bottom is refused, whatever the stride",
    "Pooling": "a last window behind the bottom is refused; Caffe reads outside its memory",
    "PReLU": "bottoms of more than 4 axes work", "EuclideanLoss": "bottoms of more than 4 axes work",
    "BatchNorm": "bottoms of one axis work", "Input": "tops without a shape are empty, not an end of the program",
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
    ("LevelDB of Datum records", "yes", "no", "data/test_leveldb.py"),
    ("image lists", "yes", "no", "data/test_images.py"),
    ("HDF5 data and lists of such files", "yes", "yes", "data/test_hdf5.py"),
    ("window files", "yes", "no", "data/test_windows.py"),
    ("MNIST's IDX archives", "yes", "no", "data/test_idx.py"),
]


def page() -> str:
    """The whole page."""
    parts = ["# What of Caffe 1.0 works", "",
             "Made by `python -m tests.scaffe.cli.compatibility` from the schema, the code and the tests; a test sees "
             "to it that it claims nothing untrue. *works*: the code reads it and a test names it. *differs*: how.", "",
             "## Layers", "", "| type | |", "| --- | --- |", *_layer_rows(), "", "## Options", ""]
    for field in caffe_pb2.LayerParameter.DESCRIPTOR.fields:
        if field.name.endswith("_param"):
            parts += [f"### {field.name}", "", *_option_rows(field.name, field.message_type), ""]
    parts += ["## Solver", "", *_option_rows("solver", caffe_pb2.SolverParameter.DESCRIPTOR), "", "## Files", "",
              "| kind | read | written | test |", "| --- | --- | --- | --- |"]
    parts += [f"| {kind} | {read} | {written} | tests/{test} |" for kind, read, written, test in FILES]
    return "\n".join(parts) + "\n"


def _layer_rows() -> Iterator[str]:
    known = layer_types.names()
    for name in sorted({*known, *CAFFE_TYPES}, key=str.lower):
        origin = "" if name in CAFFE_TYPES else " (from forks)"
        note = f"; {LAYER_NOTES[name]}" if name in LAYER_NOTES else ""
        yield f"| {name} | {'works' if name in known else '**missing**'}{origin}{note} |"


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
