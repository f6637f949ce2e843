"""Gradient cases of C3D's layers."""

from __future__ import annotations

from tests.layers.gradient_check import Case, spread

CLIP = (2, 2, 3, 4, 3)
FILL = 'weight_filler { type: "xavier" } bias_filler { type: "uniform" }'

CASES: dict[str, list[Case]] = {
    "Convolution3D": [
        Case(f'type: "Convolution3D" convolution3d_param {{ {options} {FILL} }}', (CLIP,), label=options)
        for options in (
            "num_output: 2 kernel_size: 2 kernel_depth: 1",
            "num_output: 4 kernel_size: 3 kernel_depth: 2 pad: 1 temporal_pad: 1 stride: 2 temporal_stride: 2 "
            "filter_group: 2 group: 1 bias_term: false")],
    "NdConvolution": [
        Case(f'type: "NdConvolution" convolution_param {{ num_output: 2 {options} {FILL} }}', (CLIP,), label=options)
        for options in ("kernel_shape { dim: 2 dim: 2 dim: 1 }",
                        "kernel_shape { dim: 2 dim: 3 dim: 2 } stride_shape { dim: 1 dim: 2 dim: 2 } group: 2 "
                        "pad_shape { dim: 1 dim: 1 dim: 0 } bias_term: false dilation: 1")],
    "NdPooling": [
        Case(f'type: "NdPooling" pooling_param {{ kernel_shape {{ dim: 2 dim: 2 dim: 3 }} {options} }}',
             (spread((2, 2, 3, 4, 5)),), label=options)
        for options in ("", "pool: AVE stride_shape { dim: 1 dim: 2 dim: 2 } pad_shape { dim: 1 dim: 0 dim: 1 }",
                        "global_pooling: true")],
    "Pooling": [
        Case(f'type: "Pooling" pooling_param {{ {options} }}', (spread((2, 2, 3, 4, 5)),), label=f"clips {options}")
        for options in ("kernel_size: 2 stride: 2", "pool: AVE kernel_size: 3 stride: 2 pad: 1",
                        "global_pooling: true")],
    "Pooling3D": [
        Case(f'type: "Pooling3D" pooling3d_param {{ {options} }}', (spread((2, 2, 3, 4, 5)),), label=options)
        for options in ("kernel_size: 2 kernel_depth: 1 stride: 2", "kernel_size: 3 kernel_depth: 2 temporal_stride: 2",
                        "pool: AVE kernel_size: 3 kernel_depth: 2 stride: 2 pad: 1 temporal_stride: 2")],
}

NO_GRADIENT: dict[str, str] = {}
