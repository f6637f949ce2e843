"""Which kernels compute a convolution: those that were measured to be the fastest for its geometry."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from scaffe.layers.kernels.cpu.onednn.attempt import attempt, can
from scaffe.layers.kernels.cpu.onednn.attempt import suits as suits_onednn
from scaffe.layers.kernels.cpu.onednn.library import library
from scaffe.layers.kernels.plans import InferencePlan, WeightedPlan
from scaffe.layers.kernels.specs import ConvSpec

SINGLE = np.dtype(np.float32)


def convolution(spec: ConvSpec) -> WeightedPlan:
    """A plan of a convolution. Raises LayerError for an impossible geometry."""
    spec.check()
    if suits_onednn(spec) and 1 <= len(spec.kernel) <= 3:
        from scaffe.layers.kernels.cpu import first_weights
        from scaffe.layers.kernels.cpu.image_lanes import few_inputs
        from scaffe.layers.kernels.cpu.image_lanes.plan import Convolution as InLanes
        from scaffe.layers.kernels.cpu.image_lanes.plan import suits as suits_lanes
        from scaffe.layers.kernels.cpu.onednn.convolution import Convolution as OnednnConvolution
        from scaffe.layers.kernels.cpu.onednn.pointwise import Pointwise, is_pointwise
        from scaffe.layers.kernels.cpu.onednn.winograd.plans import Training
        from scaffe.layers.kernels.cpu.onednn.winograd.tiling import is_faster_in_training
        from scaffe.layers.kernels.cpu.own_gradient import OwnGradient

        winograd = attempt(Training, spec) if spec.dtype == np.float32 and is_faster_in_training(spec) else None
        if winograd is not None:
            return winograd
        if suits_lanes(spec):
            return InLanes(spec)
        product = attempt(Pointwise, spec) if spec.dtype == np.float32 and is_pointwise(spec) else None
        if product is not None:
            return product
        made = attempt(OnednnConvolution, spec)
        if made is not None and (spec.dtype == np.float32 or can(made.build_backward)):
            if few_inputs.suits(spec):
                return OwnGradient(made, spec, few_inputs.FewInputs(spec))
            return OwnGradient(made, spec, first_weights.FirstWeights(spec)) if first_weights.suits(spec) else made
    if spec.dtype.kind == "V":
        from scaffe.layers.kernels.cpu.widened import WidenedProduct

        return WidenedProduct(convolution(replace(spec, dtype=SINGLE)))
    from scaffe.layers.kernels.cpu.portable_convolution import Convolution

    return Convolution(spec)


def inference_convolution(spec: ConvSpec, relu_slope: float | None, adds: bool) -> InferencePlan | None:
    """A plan of a convolution's forward alone, with weights turned into the kernel's layout once; else None."""
    if not suits_onednn(spec) or not 1 <= len(spec.kernel) <= 3:
        return None
    from scaffe.layers.kernels.cpu.onednn.inference import Convolution as InferenceConvolution
    from scaffe.layers.kernels.cpu.onednn.winograd.plans import Inference
    from scaffe.layers.kernels.cpu.onednn.winograd.tiling import is_faster
    from scaffe.layers.kernels.cpu.pointwise_plan import Pointwise, suits

    if library() is not None and suits(spec):
        return Pointwise(spec, relu_slope)
    made = attempt(Inference, spec, relu_slope) if spec.dtype == np.float32 and is_faster(spec) else None
    return made or attempt(InferenceConvolution, spec, relu_slope, adds)
