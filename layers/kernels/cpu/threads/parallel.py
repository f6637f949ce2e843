"""Runs a compiled function in parts on native threads, without the interpreter (like an OpenMP parallel loop)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from types import FunctionType
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils

from scaffe.jit import checks_bounds, compiled
from scaffe.jit.bfloat16 import Definition, array_at, intrinsic
from scaffe.signal_mask import ASYNCHRONOUS, call_blocked

INTEGER = ir.IntType(64)
NEXT, N_PARTS, LENGTH, UNIT, N, N_FAILED = range(6)
"""Indices in a region's head: the next part, the number of parts, the units they share, the elements of a unit, all
elements, the parts that ended with an error."""
ROOM_BYTES = 2048  # enough for a head and any kernel's arguments
ON_STACK = 0  # in place of the address of such memory: the head is on the stack
Arguments = Callable[[Any, ir.IRBuilder, Sequence[ir.Value], ir.Value, ir.Value], list[ir.Value]]


@cache
def lay_for(n_sliced: int) -> Any:
    """Make a function that writes a region's head and arguments to ``room``, and returns the addresses of the function
    that each thread calls and of the head. A part gets its rows of the first ``n_sliced`` arguments, which are arrays,
    or for 0 start and stop before all arguments."""
    ends = () if n_sliced else (types.int64,) * 2

    @intrinsic
    def lay(typing_context: Any, kernel: Any, room: Any, n_parts: Any, length: Any, unit: Any, n: Any,
            args: Any) -> Definition:
        given = *ends, *args.types

        def arguments(context: Any, builder: ir.IRBuilder, values: Sequence[ir.Value], start: ir.Value,
                      stop: ir.Value) -> list[ir.Value]:
            own = [_borrowed(context, builder, given, value) for given, value in zip(args.types, values, strict=True)]
            own[:n_sliced] = [_rows(context, builder, given, value, start, stop)
                              for given, value in zip(args.types, own[:n_sliced], strict=False)]
            return [start, stop, *own] if ends else own

        def generate(context: Any, builder: ir.IRBuilder, signature: Any, numbers: Sequence[ir.Value]) -> ir.Value:
            head = ir.ArrayType(INTEGER, N_FAILED + 1)
            kind = ir.LiteralStructType([head, context.get_value_type(args)])
            if context.get_abi_sizeof(kind) > ROOM_BYTES:
                raise TypeError(f"a kernel's arguments need more than {ROOM_BYTES} bytes: {args}")
            stack = cgutils.alloca_once(builder, kind)  # type: ignore[no-untyped-call]
            given_room, zero = numbers[1], INTEGER(0)
            is_on_stack = builder.icmp_signed("==", given_room, INTEGER(ON_STACK))
            room = builder.select(is_on_stack, stack, builder.inttoptr(given_room, kind.as_pointer()))
            first = [zero, *numbers[2:6], zero]
            for at, number in enumerate(first):
                builder.store(number, cgutils.gep_inbounds(builder, room, 0, 0, at))  # type: ignore[no-untyped-call]
            builder.store(numbers[6], cgutils.gep_inbounds(builder, room, 0, 1))  # type: ignore[no-untyped-call]
            entry = _entry(context, builder, kernel, given, kind, len(args.types), arguments)
            return context.make_tuple(builder, signature.return_type, [
                builder.ptrtoint(entry, INTEGER), builder.ptrtoint(room, INTEGER)])

        pair = types.UniTuple(types.int64, 2)  # type: ignore[no-untyped-call]
        return pair(kernel, *[types.int64] * 5, args), generate

    return lay


def _entry(context: Any, builder: ir.IRBuilder, kernel: Any, given: tuple[Any, ...], kind: ir.Type, n_args: int,
           arguments: Arguments) -> ir.Function:
    """The C function that each thread of a region calls with the head's address: it runs parts until none is left."""
    kernel.dispatcher.compile(given)
    made = kernel.dispatcher.overloads[given]
    context.active_code_library.add_linking_library(made.library)
    entry = ir.Function(builder.module, ir.FunctionType(ir.VoidType(), [kind.as_pointer()]),
                        f"{made.fndesc.mangled_name}.part")
    entry.linkage = "internal"
    inside = ir.IRBuilder(entry.append_basic_block())

    def place(*at: int) -> ir.Value:
        return cgutils.gep_inbounds(inside, entry.args[0], 0, *at)  # type: ignore[no-untyped-call]

    n_parts, length, unit, n = (inside.load(place(0, number)) for number in (N_PARTS, LENGTH, UNIT, N))
    packed = inside.load(place(1))
    values = [inside.extract_value(packed, number) for number in range(n_args)]
    take, do, end = (entry.append_basic_block() for _ in range(3))
    inside.branch(take)
    inside.position_at_end(take)
    part = inside.atomic_rmw("add", place(0, NEXT), INTEGER(1), "monotonic")
    inside.cbranch(inside.icmp_signed("<", part, n_parts), do, end)
    inside.position_at_end(do)
    start, stop = (inside.mul(unit, inside.udiv(inside.mul(length, number), n_parts))
                   for number in (part, inside.add(part, INTEGER(1))))
    stop = inside.select(inside.icmp_unsigned("<", stop, n), stop, n)
    status, _ = context.call_internal_no_propagate(inside, made.fndesc, made.signature,
                                                   arguments(context, inside, values, start, stop))
    failed = inside.zext(status.is_error, INTEGER)
    inside.atomic_rmw("add", place(0, N_FAILED), failed, "monotonic")
    inside.branch(take)
    inside.position_at_end(end)
    inside.ret_void()
    return entry


def _borrowed(context: Any, builder: ir.IRBuilder, kind: Any, value: ir.Value) -> ir.Value:
    """An argument without reference counts for its arrays: threads that count in one place wait for each other, and a
    prepared call may outlive the counter."""
    if isinstance(kind, types.BaseTuple):
        for number, each in enumerate(kind.types):  # type: ignore[attr-defined]
            own = _borrowed(context, builder, each, builder.extract_value(value, number))
            value = builder.insert_value(value, own, number)
        return value
    if not isinstance(kind, types.Array):
        if context.data_model_manager[kind].contains_nrt_meminfo():
            raise TypeError(f"threads cannot share a {kind}")
        return value
    array = context.make_array(kind)(context, builder, value)
    array.meminfo = array.meminfo.type(None)
    return array._getvalue()


def _rows(context: Any, builder: ir.IRBuilder, kind: Any, value: ir.Value, start: ir.Value, stop: ir.Value) -> ir.Value:
    """Rows [start, stop) of an array, as a view."""
    array = context.make_array(kind)(context, builder, value)
    rows = builder.sub(stop, start)
    lengths, strides = (cgutils.unpack_tuple(builder, numbers) for numbers in (  # type: ignore[no-untyped-call]
        array.shape, array.strides))
    at = builder.add(builder.ptrtoint(array.data, INTEGER), builder.mul(start, strides[0]))
    n_elems = rows
    for length in lengths[1:]:
        n_elems = builder.mul(n_elems, length)
    array.data = builder.inttoptr(at, array.data.type)
    array.shape = cgutils.pack_array(builder, [rows, *lengths[1:]])  # type: ignore[no-untyped-call]
    array.nitems = n_elems
    return array._getvalue()


def can_be_parallel(kernel: Any) -> bool:
    """Whether native threads can run a function: it is compiled, and bounds checks, which raise, are off."""
    return hasattr(kernel, "py_func") and not checks_bounds()


def run(team: tuple[int, int], kernel: Any, n_parts: int, length: int, unit: int, n: int, *args: Any) -> None:
    """Call ``kernel(start, stop, *args)``, compiled, for ``n_parts`` parts of [0, n), several at once. ``team`` is the
    address of OpenMP's function that begins a parallel region, and the number of threads; ``length`` units of ``unit``
    elements, the last of perhaps fewer, are shared out evenly. Raises MemoryError if a part could not get memory."""
    _wrapper(kernel, 0)(ASYNCHRONOUS, *team, ON_STACK, n_parts, length, unit, n, *args)


def run_sliced(team: tuple[int, int], kernel: Any, n_parts: int, arrays: Sequence[Any], *args: Any) -> None:
    """Call ``kernel(*(a[start:stop] for a in arrays), *args)`` for parts of the arrays' first axis; see ``run``."""
    n = len(arrays[0])
    _wrapper(kernel, len(arrays))(ASYNCHRONOUS, *team, ON_STACK, n_parts, n, 1, n, *arrays, *args)


def lay_out(kernel: Any, n_sliced: int, place: int, n_parts: int, length: int, unit: int, n: int, *args: Any) -> int:
    """Write the head and arguments of ``run``, or ``run_sliced`` if ``n_sliced`` is not 0, to ROOM_BYTES of memory at
    the address ``place``, aligned to 8 bytes, for many runs on arrays that keep theirs. Returns the address of the C
    function that each thread must call with ``place``, after the head's NEXT is set to 0."""
    entry: int = _wrapper(kernel, n_sliced)(ASYNCHRONOUS, 0, 0, place, n_parts, length, unit, n, *args)
    return entry


@cache
def _wrapper(kernel: Any, n_sliced: int) -> Any:
    """The compiled wrapper that runs a kernel in a parallel region, cached on disk beside the kernel."""
    of = kernel.py_func
    name = f"{of.__qualname__}.parallel_{n_sliced}"
    code = _region.__code__.replace(co_filename=of.__code__.co_filename, co_name=name, co_qualname=name)
    made = FunctionType(code, {**globals(), "kernel": kernel, "lay": lay_for(n_sliced)}, name)
    made.__module__, made.__qualname__ = of.__module__, name
    return compiled(made)


def _region(mask: int, begin: int, n_threads: int, room: int, n_parts: int, length: int, unit: int, n: int,
            *args: Any) -> int:
    """The body of a wrapper; ``kernel`` and ``lay`` are its own globals."""
    entry, place = lay(kernel, room, n_parts, length, unit, n, args)  # type: ignore[name-defined]  # noqa: F821
    if room == ON_STACK:
        call_blocked(mask, begin, entry, place, n_threads, 0)
        if array_at(place, N_FAILED + 1, types.int64)[N_FAILED]:
            raise MemoryError("a kernel's working memory cannot be had")
    return entry  # type: ignore[no-any-return]
