"""Chooses the kernels of a convolution: those that were measured to be the fastest for its geometry."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from scaffe.layers.kernels.cpu.onednn.library import attempt, can, library
from scaffe.layers.kernels.cpu.onednn.library import supports as supported_by_onednn
from scaffe.layers.kernels.plans import InferencePlan, WeightedPlan
from scaffe.layers.kernels.specs import ConvSpec

SINGLE = np.dtype(np.float32)


def convolution(spec: ConvSpec) -> WeightedPlan:
    """A plan of a convolution. Raises LayerError for an impossible geometry."""
    spec.check()
    if supported_by_onednn(spec) and 1 <= len(spec.kernel) <= 3:
        from scaffe.layers.kernels.cpu.conv import few_inputs, first_weights
        from scaffe.layers.kernels.cpu.conv.image_lanes import Convolution as InLanes
        from scaffe.layers.kernels.cpu.conv.image_lanes import supports as supported_by_image_lanes
        from scaffe.layers.kernels.cpu.conv.weight_gradients import SeparateWeightGradient
        from scaffe.layers.kernels.cpu.onednn.convolution import Convolution as OnednnConvolution
        from scaffe.layers.kernels.cpu.onednn.convolution import Pointwise, is_pointwise
        from scaffe.layers.kernels.cpu.onednn.winograd.plans import Training
        from scaffe.layers.kernels.cpu.onednn.winograd.tiling import is_faster_in_training

        winograd = attempt(Training, spec) if spec.dtype == np.float32 and is_faster_in_training(spec) else None
        if winograd is not None:
            return winograd
        if supported_by_image_lanes(spec):
            return InLanes(spec)
        product = attempt(Pointwise, spec) if spec.dtype == np.float32 and is_pointwise(spec) else None
        if product is not None:
            return product
        made = attempt(OnednnConvolution, spec)
        if made is not None and (spec.dtype == np.float32 or can(made.build_backward)):
            if few_inputs.supports(spec):
                return SeparateWeightGradient(made, spec, few_inputs.FewInputs(spec))
            if first_weights.supports(spec):
                return SeparateWeightGradient(made, spec, first_weights.FirstWeights(spec))
            return made
    if spec.dtype.kind == "V":
        from scaffe.layers.kernels.cpu.widened import WidenedProduct

        return WidenedProduct(convolution(replace(spec, dtype=SINGLE)))
    from scaffe.layers.kernels.cpu.conv.portable import Convolution

    return Convolution(spec)


def inference_convolution(spec: ConvSpec, relu_slope: float | None, adds: bool) -> InferencePlan | None:
    """A plan of a convolution's forward for inference, which lays weights out once; None if no kernel has one."""
    if not supported_by_onednn(spec) or not 1 <= len(spec.kernel) <= 3:
        return None
    from scaffe.layers.kernels.cpu.conv.panels import Pointwise, supports
    from scaffe.layers.kernels.cpu.onednn.convolution import InferenceConvolution
    from scaffe.layers.kernels.cpu.onednn.winograd.plans import Inference
    from scaffe.layers.kernels.cpu.onednn.winograd.tiling import is_faster

    if library() is not None and supports(spec):
        return Pointwise(spec, relu_slope)
    made = attempt(Inference, spec, relu_slope) if spec.dtype == np.float32 and is_faster(spec) else None
    return made or attempt(InferenceConvolution, spec, relu_slope, adds)
