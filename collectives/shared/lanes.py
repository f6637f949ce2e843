"""One vector's worth of a reduction: all sources are read before the target is written.

So the target may be one of the sources. A compiler that sees only loops over arrays has to ask whether they overlap,
and takes them number by number where they do, which an in-place sum always does.
"""

from functools import reduce

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

LANES = 16  # a cache line of float32


@intrinsic(prefer_literal=True)
def fold(typing_context, op, n_lanes, addresses, offset, target, like):
    """target = ((a op b) op c) ..., on `n_lanes` numbers that lie `offset` bytes behind the addresses and target.

    op (0 sum, 1 max, 2 min, 3 prod) and n_lanes are constants; `like`: an array of the numbers' dtype, whose
    half-precision numbers are uint16 and rounded after every operation.
    """
    operation, lanes, element = _OPS[op.literal_value], n_lanes.literal_value, like.dtype

    def generate(context, builder, signature, args):
        vector = ir.VectorType(context.get_data_type(element), lanes)

        def pointer(address):
            return builder.inttoptr(builder.add(address, args[3]), vector.as_pointer())

        firsts = [builder.extract_value(args[2], i) for i in range(len(addresses))]
        values = [builder.load(pointer(first), align=element.bitwidth // 8) for first in firsts]
        result = reduce(lambda left, right: operation(builder, element, left, right), values)
        builder.store(result, pointer(args[4]), align=element.bitwidth // 8)
        return context.get_dummy_value()

    return types.none(op, n_lanes, addresses, types.int64, types.int64, like), generate


def _arithmetic(on_floats: str, on_integers: str):
    def operation(builder: ir.IRBuilder, element: types.Type, left: ir.Value, right: ir.Value) -> ir.Value:
        if element == types.uint16:
            wide = getattr(builder, on_floats)(_widened(builder, left), _widened(builder, right))
            return builder.bitcast(builder.fptrunc(wide, _of(left, ir.HalfType())), left.type)
        return getattr(builder, on_floats if isinstance(element, types.Float) else on_integers)(left, right)

    return operation


def _choice(comparison: str):
    def operation(builder: ir.IRBuilder, element: types.Type, left: ir.Value, right: ir.Value) -> ir.Value:
        if element == types.uint16:
            keeps = builder.fcmp_ordered(comparison, _widened(builder, left), _widened(builder, right))
        elif isinstance(element, types.Float):
            keeps = builder.fcmp_ordered(comparison, left, right)
        else:
            keeps = builder.icmp_signed(comparison, left, right)
        return builder.select(keeps, left, right)

    return operation


def _widened(builder: ir.IRBuilder, halves: ir.Value) -> ir.Value:
    return builder.fpext(builder.bitcast(halves, _of(halves, ir.HalfType())), _of(halves, ir.FloatType()))


def _of(vector: ir.Value, element: ir.Type) -> ir.VectorType:
    return ir.VectorType(element, vector.type.count)


_OPS = (_arithmetic("fadd", "add"), _choice(">="), _choice("<="), _arithmetic("fmul", "mul"))
