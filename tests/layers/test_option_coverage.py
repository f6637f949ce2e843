"""Every option that changes a layer's arithmetic has a gradient case: each value of an enum, both of a bool.

Which layer reads which message is read off its classes; what it need not have a case for stands below, with the reason.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Iterator
from functools import cache

import pytest

from scaffe.layers.base.layer import Layer, layer_types
from scaffe.proto import caffe_pb2
from tests.layers.gradient_check import load_cases
from tests.layers.rig import layer_parameter

CASES, NO_GRADIENT = load_cases()
MESSAGES = {f.name: f.message_type for f in caffe_pb2.LayerParameter.DESCRIPTOR.fields if f.name.endswith("_param")}
ELSEWHERE = {  # message.option -> where it is tested, or why it has nothing to test
    "engine": "chooses a library, not the arithmetic",
    "filler": "tests/layers/test_fillers.py", "weight_filler": "tests/layers/test_fillers.py",
    "bias_filler": "tests/layers/test_fillers.py", "scale_filler": "tests/layers/test_fillers.py",
    "infogain_loss_param.source": "tests/layers/test_losses.py reads the matrix from a file",
    "recurrent_param.debug_info": "logs, does not compute",
    "python_param": "tests/layers/test_python.py",
    "hdf5_output_param": "tests/layers/test_hdf5_output.py: no gradient",
    "memory_data_param": "tests/layers/test_memory_data.py: no gradient",
    "batch_norm_param.moving_average_fraction": "changes the statistics, not the top: tests/layers/test_common.py",
    **{f"{kind}.loss_param.{name}": "SoftmaxWithLoss's" for kind in (
        "InfogainLoss", "MultiBoxLoss", "SigmoidCrossEntropyLoss", "SmoothL1Loss", "SmoothL1LossOHEM",
        "SoftmaxWithLossOHEM") for name in ("weight_by_label_freqs", "class_weighting")},
    "pooling_param.ceil_mode": "becomes round_mode: tests/scaffe/nets/test_graph.py",
    "batch_norm_param.scale_bias": "becomes a Scale layer: tests/scaffe/nets/test_nvidia_norm.py",
    "mvn_param.eps": "Caffe's gradient takes it for nothing beside the deviation: tests/layers/test_against_caffe.py",
    **{f"{message}.{name}": "C3D's, refused elsewhere: tests/layers/refusals.py" for message in (
        "convolution_param", "pooling_param") for name in ("kernel_depth", "temporal_stride", "temporal_pad",
                                                           "filter_group")},
    **{f"{message}.{name}": "video-caffe's, of NdConvolution and NdPooling: tests/layers/test_video.py" for message in (
        "convolution_param", "pooling_param") for name in ("kernel_shape", "stride_shape", "pad_shape")},
    **{f"NdConvolution.convolution_param.{name}": "shapes instead, or as for Convolution" for name in (
        "pad", "kernel_size", "stride", "pad_h", "pad_w", "kernel_h", "kernel_w", "stride_h", "stride_w", "axis",
        "force_nd_im2col")},
    **{f"NdPooling.pooling_param.{name}": "shapes instead; STOCHASTIC is refused" for name in (
        "pool", "pad", "kernel_size", "stride", "pad_h", "pad_w", "kernel_h", "kernel_w", "stride_h", "stride_w",
        "round_mode")},
    "Convolution3D.convolution_param": "what the layer makes of convolution3d_param",
    "pooling3d_param.pool": "STOCHASTIC is refused, as by C3D: tests/layers/test_video.py",
    "bn_param.momentum": "changes the averages, not the top: tests/layers/test_segmentation.py",
    **{f"WarpCTCLoss.ctc_loss_param.{name}": "unread, as in caffe_ocr; or CtcLoss's" for name in (
        "output_delay", "preprocess_collapse_repeated", "ctc_merge_repeated", "loss_calculation_t", "alphabet_size",
        "time_step", "blank_label")},
    **{f"CtcLoss.ctc_loss_param.{name}": "WarpCTCLoss's" for name in (
        "output_delay", "blank_index", "preprocess_collapse_repeated", "ctc_merge_repeated", "loss_calculation_t")},
    "center_filler": "tests/layers/test_fillers.py",
    "slope_filler": "tests/layers/test_fillers.py", "shift_filler": "tests/layers/test_fillers.py",
    "Transpose.permute_param": "what Permute reads",
    "SPP.pooling_param": "what the layer gives to the poolings that it is made of",
    **{f"Im2col.convolution_param.{name}": "no weights, no groups" for name in ("num_output", "bias_term", "group")},
    **{f"{kind}.loss_param.ignore_label": "no labels" for kind in ("SmoothL1Loss", "SmoothL1LossOHEM")},
    "multibox_loss_param.encode_variance_in_target": "SSD leaves the variances out: tests/layers/test_ssd.py",
    "MultiBoxLoss.loss_param.ignore_label": "SSD's loss has none",
    "InfogainLoss.loss_param.normalize": "refused, as by Caffe: tests/layers/refusals.py",
}


@cache
def source(layer_class: type[Layer]) -> str:
    """Its text; Python reads a whole file for each class."""
    return inspect.getsource(layer_class)


def read_by(layer_type: str) -> set[str]:
    """The parameter messages that a layer's own classes name."""
    classes = [c for c in layer_types.get(layer_type).__mro__ if c not in (Layer, object)]
    words = set(re.findall(r"\b\w+_param\b", "\n".join(source(c) for c in classes)))
    return words & set(MESSAGES)


def wanted() -> Iterator[tuple[str, str, object]]:
    """(layer type, message, option) of all that needs a case."""
    for layer_type in layer_types.names():
        if layer_type in NO_GRADIENT:
            continue
        for message in sorted(read_by(layer_type)):
            for option in MESSAGES[message].fields:
                names = {option.name, message, f"{message}.{option.name}"}
                if not (names | {f"{layer_type}.{name}" for name in names}) & set(ELSEWHERE):
                    yield layer_type, message, option


WANTED = list(wanted())


def values(layer_type: str, message: str, option: object) -> set:
    """What the layer's cases give for an option; a number once given is "given"."""
    found = set()
    for case in CASES[layer_type]:
        part = getattr(layer_parameter(case.prototxt), message)
        value = getattr(part, option.name)
        if option.enum_type is not None or option.type == option.TYPE_BOOL:
            found.update(value if isinstance(value, Iterable) else [value])
        elif len(value) if hasattr(value, "__len__") else part.HasField(option.name):
            found.add("given")
    return found


@pytest.mark.parametrize(("layer_type", "message", "option"), WANTED, ids=[f"{t}-{m}.{o.name}" for t, m, o in WANTED])
def test_every_option_has_a_case(layer_type: str, message: str, option: object) -> None:
    if option.enum_type is not None:
        every = {value.number for value in option.enum_type.values}
    else:
        every = {True, False} if option.type == option.TYPE_BOOL else {"given"}
    missing = every - values(layer_type, message, option)
    assert not missing, f"no case of {layer_type} in tests/layers/cases_*.py has {message}.{option.name} {missing}"
