"""What the pretend cuDNN computes, in float64, and which norms it has no engine for: as cuDNN 9.28 for an H200."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

NORMS = ("batchnorm", "batchnorm_inference", "batchnorm_backward")
Arrays = tuple[np.ndarray, ...]


@dataclass
class Node:
    """One operation of a graph."""

    name: str
    inputs: tuple[Any, ...]  # tensors
    outputs: tuple[Any, ...]
    options: dict[str, Any]


def compute(node: Node, given: Sequence[np.ndarray], shape: Sequence[int]) -> Arrays:
    """A node's results; ``shape`` is a convolution's."""
    if node.name.startswith("conv_"):
        return (convolution(node.name, *given, shape, node.options),)
    return OPERATIONS[node.name](*given, **node.options)


def norm_refused(nodes: Sequence[Node]) -> bool:
    """Whether cuDNN has no engine for a graph with a normalisation: it lists no plan."""
    names = [node.name for node in nodes]
    patterns = (["batchnorm"], ["batchnorm", "relu"], ["batchnorm", "add", "relu"], ["batchnorm_backward"],
                ["batchnorm", "relu", "cmp_gt"], ["batchnorm", "add", "relu", "cmp_gt"],
                ["batchnorm_inference", "relu_backward", "batchnorm_backward"])
    x = nodes[0].inputs[0]
    sloped = any(node.options.get("negative_slope") for node in nodes)
    masks = [node for node in nodes if node.name == "relu_backward"]
    wrong_mask = any(node.inputs[1].uid or _type_name(node.outputs[0]) != _type_name(x) for node in masks)
    return names not in patterns or x.dim[1] * x.numpys_type.itemsize % 16 != 0 or sloped or wrong_mask


def _type_name(tensor: Any) -> str:
    """A tensor's type; that of those between operations where none is set."""
    return "FLOAT" if tensor.dtype is None else tensor.dtype.name


def _columns(x: np.ndarray) -> tuple[int, ...]:
    return (0, *range(2, x.ndim))


def _batch_norm(x: np.ndarray, scale: np.ndarray, bias: np.ndarray, eps: np.ndarray) -> Arrays:
    mean = x.mean(_columns(x), keepdims=True)
    inverse = 1 / np.sqrt(((x - mean) ** 2).mean(_columns(x), keepdims=True) + eps)
    return (x - mean) * inverse * scale + bias, mean, inverse


def _batch_norm_backward(g: np.ndarray, x: np.ndarray, scale: np.ndarray, mean: np.ndarray,
                         inverse: np.ndarray) -> Arrays:
    xn, rows = (x - mean) * inverse, x.size / x.shape[1]
    of_scale, of_bias = ((g * v).sum(_columns(x), keepdims=True) for v in (xn, 1))
    return scale * inverse * (g - of_bias / rows - xn * of_scale / rows), of_scale, of_bias


OPERATIONS: dict[str, Callable[..., Arrays]] = {
    "bias": lambda x, bias: (x + bias,),
    "add": lambda a, b: (a + b,),
    "relu": lambda x, negative_slope: (np.where(x > 0, x, negative_slope * x),),
    "relu_backward": lambda g, x, negative_slope: (np.where(x > 0, g, negative_slope * g),),
    "cmp_gt": lambda x, other: (x > other,),
    "binary_select": lambda x, other, mask: (np.where(mask > 0, x, other),),
    "batchnorm": _batch_norm,
    "batchnorm_inference": lambda x, mean, inverse, scale, bias: ((x - mean) * inverse * scale + bias,),
    "batchnorm_backward": _batch_norm_backward}


def convolution(name: str, a: np.ndarray, b: np.ndarray, shape: list[int], options: dict) -> np.ndarray:
    """Tap by tap; ``shape`` is the result's, of which padding and groups follow."""
    pad, stride, dilation = options["padding"], options["stride"], options["dilation"]
    x_shape, w_shape, y_shape = {"conv_fprop": (a.shape, b.shape, shape), "conv_dgrad": (shape, b.shape, a.shape),
                                 "conv_wgrad": (a.shape, shape, b.shape)}[name]
    padded = np.zeros((*x_shape[:2], *(n + 2 * p for n, p in zip(x_shape[2:], pad))))
    inside = (..., *(slice(p, p + n) for p, n in zip(pad, x_shape[2:])))
    if name != "conv_dgrad":
        padded[inside] = a
    y = a if name == "conv_dgrad" else b if name == "conv_wgrad" else np.zeros(y_shape)
    w = np.zeros(w_shape) if name == "conv_wgrad" else b
    n_groups, n_out = x_shape[1] // w_shape[1], w_shape[0] // (x_shape[1] // w_shape[1])
    for taps in product(*map(range, w_shape[2:])):
        places = tuple(slice(t * d, t * d + (n - 1) * s + 1, s)
                       for t, d, n, s in zip(taps, dilation, y_shape[2:], stride))
        for g in range(n_groups):
            ins, outs = slice(g * w_shape[1], (g + 1) * w_shape[1]), slice(g * n_out, (g + 1) * n_out)
            here, there, tap = (slice(None), ins, *places), (slice(None), outs), (outs, slice(None), *taps)
            if name == "conv_fprop":
                y[there] += np.einsum("nc...,oc->no...", padded[here], w[tap])
            elif name == "conv_dgrad":
                padded[here] += np.einsum("no...,oc->nc...", y[there], w[tap])
            else:
                w[tap] += _rows(y[there]).T @ _rows(padded[here])
    return {"conv_fprop": y, "conv_dgrad": padded[inside], "conv_wgrad": w}[name]


def _rows(images: np.ndarray) -> np.ndarray:
    """(places, channels)."""
    return np.moveaxis(images, 1, -1).reshape(-1, images.shape[1])
