"""The two backends offer the same names with the same signatures."""

from __future__ import annotations

import importlib
import inspect
from pathlib import Path
from typing import Any

import pytest

from scaffe.layers.kernels import cpu

FUNCTIONS = [("elementwise", n) for n in ("relu_forward", "relu_backward", "add_relu", "mask_scale")]
FUNCTIONS += [("softmax", n) for n in ("softmax_rows", "softmax_rows_back")]
FUNCTIONS += [("channels", n) for n in ("moments", "scale_rows", "scale_sums")]
PLANS = {"pooling": "portable_pooling.Pooling pooling_plan.Pooling", "lrn": "lrn_plan.Lrn lrn_plan.Lrn",
         "convolution": "portable_convolution.Convolution products.Convolution",
         "cudnn": "portable_convolution.Convolution cudnn.convolution.Convolution",
         "inner_product": "inner_product_plan.InnerProduct inner_product_plan.InnerProduct",
         "softmax_loss": "softmax_loss_plan.SoftmaxLoss softmax_loss_plan.SoftmaxLoss",
         "batch_norm": "batch_norm_plan.BatchNorm batch_norm_plan.BatchNorm",
         "dropout": "draws_plan.Dropout draws_plan.Dropout", "uniform": "draws_plan.Uniform draws_plan.Uniform"}


def parameters(function: Any) -> list[tuple[str, Any]]:
    """Names and defaults."""
    found = inspect.signature(getattr(function, "py_func", function)).parameters.values()
    return [(p.name, p.default) for p in found]


def test_every_name_of_the_cpu(cp: Any) -> None:
    from scaffe.layers.kernels import cuda

    for name in cpu.__all__:
        mine, theirs = getattr(cpu, name), getattr(cuda, name)
        assert callable(mine) == callable(theirs), name
        if inspect.isfunction(mine) and inspect.isfunction(theirs) and name not in ("zeros", "describe"):
            assert [p[0] for p in parameters(theirs)] == [p[0] for p in parameters(mine)], name


@pytest.mark.parametrize(("family", "name"), FUNCTIONS)
def test_functions_have_the_cpus_signatures(cp: Any, family: str, name: str) -> None:
    from scaffe.layers.kernels import cuda

    assert getattr(cuda, name) is getattr(importlib.import_module(f"scaffe.layers.kernels.cuda.{family}"), name)
    assert parameters(getattr(cuda, name)) == parameters(getattr(cpu, name))


@pytest.mark.parametrize("pair", PLANS.values(), ids=PLANS)
def test_plans_have_the_cpus_methods(pair: str) -> None:
    classes = []
    for path, place in zip(pair.split(), ("scaffe.layers.kernels.cpu", "scaffe.layers.kernels.cuda")):
        module, _, name = path.rpartition(".")
        classes.append(getattr(importlib.import_module(f"{place}.{module}"), name))
    mine, theirs = classes
    for name, method in vars(mine).items():
        if inspect.isfunction(method) and not name.startswith("_"):
            assert parameters(getattr(theirs, name)) == parameters(method), name


def test_no_file_has_the_name_of_something_in_the_facade():
    """An import of the file would put the module in its place."""
    from scaffe.layers.kernels import cuda

    for backend in (cpu, cuda):
        files = {path.stem for path in Path(backend.__path__[0]).glob("*.py")}
        assert not files & {*cuda.__all__, *cpu.__all__}
