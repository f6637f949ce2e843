"""Formulas of several numbers applied to many columns at once, by instructions on vectors.

LLVM makes vectors of a loop only if it can see that what is written is not read, which it gives up for loops that read
and write many rows. ``in_lanes`` makes them whatever the loop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir
from numba import types

from scaffe.jit.brain import Definition, intrinsic
from scaffe.jit.registers import LANES


class Lanes:
    """A vector in code that is being built, with the operators of a number.

    Args:
        builder: appends instructions.
        value: the vector.
    """

    __array_ufunc__ = None  # NumPy's numbers leave their operators to these

    def __init__(self, builder: ir.IRBuilder, value: ir.Value) -> None:
        self.builder, self.value = builder, value

    def __add__(self, other: Lanes) -> Lanes:
        return Lanes(self.builder, self.builder.fadd(self.value, other.value))

    def __sub__(self, other: Lanes) -> Lanes:
        return Lanes(self.builder, self.builder.fsub(self.value, other.value))

    def __rmul__(self, factor: float) -> Lanes:
        kind = self.value.type
        constant = ir.Constant(kind, [ir.Constant(kind.element, float(factor))] * kind.count)
        return Lanes(self.builder, self.builder.fmul(constant, self.value))

    def __neg__(self) -> Lanes:
        return Lanes(self.builder, self.builder.fneg(self.value))


def in_lanes(formula: Callable[..., tuple[Any, ...]], n_inputs: int, n_lanes: int = LANES) -> Callable[..., None]:
    """A function for compiled code that applies a formula to ``n_lanes`` columns at once.

    Args:
        formula: from ``n_inputs`` numbers to some, by sums, differences, negation and products with constants.
        n_inputs: how many numbers it takes.
        n_lanes: how many columns.

    Returns:
        (x, at, step, y, to, stride) → None, on flat contiguous arrays of float32: of each column c, numbers
        x[at + c + i step] become y[to + c + j stride]. All are read before one is written. Indices are not checked.
    """

    def apply(typing_context: Any, x: Any, at: Any, step: Any, y: Any, to: Any, stride: Any) -> Definition:
        def build(context: Any, builder: ir.IRBuilder, signature: Any, args: Sequence[ir.Value]) -> ir.Value:
            def place(number: int, index: int, first: ir.Value, step: ir.Value) -> ir.Value:
                array = context.make_array(signature.args[number])(context, builder, args[number])
                offset = builder.add(first, builder.mul(step, ir.Constant(step.type, index)))
                return builder.bitcast(builder.gep(array.data, [offset]), vector.as_pointer())

            vector = ir.VectorType(ir.FloatType(), n_lanes)
            inputs = [Lanes(builder, builder.load(place(0, i, args[1], args[2]), align=4)) for i in range(n_inputs)]
            for j, result in enumerate(formula(*inputs)):
                builder.store(result.value, place(3, j, args[4], args[5]), align=4)
            return context.get_dummy_value()

        return types.void(x, types.int64, types.int64, y, types.int64, types.int64), build

    result: Callable[..., None] = intrinsic(apply)
    return result
