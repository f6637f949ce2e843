"""Both backends, CUDA's on the pretend device too, offer what ``Backend`` and the plans' protocols say."""

from __future__ import annotations

import importlib
import inspect
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from scaffe.layers.base.random import Stream
from scaffe.layers.kernels import backend, cpu, cuda, plans
from scaffe.layers.kernels.backend import Backend, DeviceBackend, is_device
from scaffe.layers.kernels.specs import ConvSpec, LossSpec, LrnSpec, NormSpec, PoolSpec

IMAGES = (2, 4, 6, 6)
CONVOLUTION = ConvSpec(IMAGES, 3, (3, 3), (1, 1), (1, 1), (1, 1))
TO_BACK = ConvSpec((2, 3, 6, 6), 4, (3, 3), (1, 1), (1, 1), (1, 1), bias=False)
POOL = ("MAX", (2, 2), (2, 2), (0, 0))
RULE = type("Rule", (), {"name": "SGD", "n_histories": 1, "numbers": lambda self, hyper: {}, "update": print})()
ARGUMENTS: dict[str, Any] = {  # of the functions that make plans
    "convolution": (CONVOLUTION,), "deconvolution": (TO_BACK,), "inner_product": (2, 3, 4),
    "pooling": (PoolSpec(IMAGES, *POOL),), "lrn": (LrnSpec(IMAGES, 3, 1.0, 0.75, 1.0),),
    "stochastic_pooling": (PoolSpec(IMAGES, "STOCHASTIC", *POOL[1:]),),
    "batch_norm": (NormSpec(IMAGES, 1e-5, 0.9),), "softmax_loss": (LossSpec(2, 3),)}
DRAWING = ("dropout", "uniform")  # these take what ``draws`` gives
OWN_FILES = {  # more than one plan of a backend for one function: which is taken depends on the machine or the case
    "convolution": ("cpu.conv.portable.Convolution", "cpu.onednn.convolution.Convolution",
                    "cuda.products.Convolution", "cuda.cudnn.convolution.Convolution"),
    "inner_product": ("cpu.inner_product_plan.InnerProduct", "cpu.onednn.inner_product.InnerProduct"),
    "pooling": ("cpu.portable_pooling.Pooling", "cpu.onednn.primitive.Pooling"),
    "batch_norm": ("cuda.channels.BatchNorm", "cuda.cudnn.batch_norm.BatchNorm")}


@pytest.fixture(params=["cpu", "cuda"])
def kernels(request: Any) -> Any:
    """A backend that can run: CUDA's on the pretend device where there is no other."""
    if request.param == "cpu":
        return cpu
    request.getfixturevalue("cp")
    return cuda


def members(protocol: type) -> dict[str, Any]:
    """What a protocol asks for: functions and properties by name, attributes as None."""
    found: dict[str, Any] = {}
    for base in reversed(protocol.__mro__):
        if getattr(base, "_is_protocol", False):
            found |= dict.fromkeys(base.__dict__.get("__annotations__", ()))
            found |= {n: v for n, v in vars(base).items() if inspect.isfunction(v) or isinstance(v, property)}
    return {name: value for name, value in found.items() if not name.startswith("_")}


def check(thing: Any, protocol: type) -> None:
    """Every member is there, and every method can be called as the protocol says."""
    for name, wanted in members(protocol).items():
        assert hasattr(thing, name), name
        if inspect.isfunction(wanted):
            check_call(getattr(thing, name), wanted, name)


def check_call(function: Any, wanted: Any, name: str) -> None:
    """The same names in the same order, with defaults where the protocol has some; what is more is optional."""
    try:
        mine = list(inspect.signature(getattr(function, "py_func", function)).parameters.values())
    except ValueError:  # a function in C
        assert callable(function), name
        return
    theirs = list(inspect.signature(wanted).parameters.values())[1:]
    if not any(p.kind is p.POSITIONAL_ONLY for p in theirs):
        assert [p.name for p in mine[:len(theirs)]] == [p.name for p in theirs], name
    for got, asked in zip(mine, theirs, strict=False):
        assert (got.default is got.empty) <= (asked.default is asked.empty), (name, got.name)
    assert len(mine) >= len(theirs) or any(p.kind is p.VAR_POSITIONAL for p in mine), name
    assert all(p.default is not p.empty or p.kind is p.VAR_KEYWORD for p in mine[len(theirs):]), name


def plan_protocol(name: str) -> type:
    """The protocol that a function of ``Backend`` gives."""
    return getattr(plans, inspect.signature(getattr(Backend, name)).return_annotation)


def test_a_backend_offers_all_of_it(kernels: Any) -> None:
    assert is_device(kernels) == (kernels is cuda) == kernels.RECORDS
    check(kernels, DeviceBackend if kernels is cuda else Backend)
    assert set(members(Backend)) <= set(kernels.__all__)


def test_every_plan_offers_all_of_it(kernels: Any) -> None:
    draws = kernels.draws(Stream(1))
    check(draws, backend.Draws)
    check(kernels.staging(lambda: []), backend.Staging)
    for name in ARGUMENTS:
        check(getattr(kernels, name)(*ARGUMENTS[name]), plan_protocol(name))
    for name, arguments in {"dropout": ((4, 3), False, 0.5, draws), "uniform": ((4, 3), False, draws)}.items():
        check(getattr(kernels, name)(*arguments), plan_protocol(name))
    if kernels is cuda:
        check(kernels.Guard(1.0), backend.Guard)
        check(kernels.update_plan(RULE, []), plans.UpdatePlan)


def test_no_function_that_makes_plans_is_left_out() -> None:
    making = {name for name, member in members(Backend).items() if inspect.isfunction(member)
              and str(inspect.signature(member).return_annotation).endswith("Plan")}
    assert making == {*ARGUMENTS, *DRAWING}


@pytest.mark.parametrize(("name", "path"), [(name, path) for name, paths in OWN_FILES.items() for path in paths])
def test_plans_that_stand_in_for_one_another(name: str, path: str) -> None:
    module, _, plan = path.rpartition(".")
    found = getattr(importlib.import_module(f"scaffe.layers.kernels.{module}"), plan)
    for method, wanted in members(plan_protocol(name)).items():
        bound = getattr(found, method).__get__(object())
        check_call(bound, wanted, method)


def test_a_backend_that_lacks_something_is_found() -> None:
    with pytest.raises(AssertionError, match="lrn"):
        check(type("Fake", (), {name: getattr(cpu, name) for name in cpu.__all__ if name != "lrn"}), Backend)
    with pytest.raises(AssertionError, match="relu_forward"):
        check_call(lambda x, y: None, Backend.relu_forward, "relu_forward")
    with pytest.raises(AssertionError, match="relu_forward"):
        check_call(lambda x, y, slope, more: None, Backend.relu_forward, "relu_forward")


def test_elementwise_kernels_are_those_of_their_files() -> None:
    for package in (cpu, cuda):
        for family, name in (("elementwise", "relu_forward"), ("softmax", "softmax_rows"), ("channels", "scale_sums")):
            module = importlib.import_module(f"{package.__name__}.{family}")
            assert getattr(package, name) is getattr(module, name)
    np.testing.assert_array_equal(cpu.xp.ones(2), np.ones(2))


def test_no_file_has_the_name_of_something_in_a_backend() -> None:
    """An import of the file would put the module in its place."""
    for package in (cpu, cuda):
        files = {path.stem for path in Path(package.__path__[0]).glob("*.py")}
        assert not files & {*cuda.__all__, *cpu.__all__}
