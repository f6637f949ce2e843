"""Upgrades old nets and solvers to today's form. Facts: BVLC Caffe 1.0, util/upgrade_proto."""

from __future__ import annotations

from typing import Any

from scaffe.errors import UserError
from scaffe.files.upgrade_forks import TRANSFORM, split_norms, upgrade_c3d
from scaffe.files.upgrade_old import upgrade_v0, upgrade_v1
from scaffe.log import warning
from scaffe.proto import caffe_pb2

READERS = {"Data": "data_param", "ImageData": "image_data_param", "WindowData": "window_data_param"}
SOLVER_TYPES = {"SGD": "SGD", "NESTEROV": "Nesterov", "ADAGRAD": "AdaGrad", "RMSPROP": "RMSProp",
                "ADADELTA": "AdaDelta", "ADAM": "Adam"}


def upgrade_net(net: Any) -> Any:
    """A copy of a NetParameter in today's form.

    Raises:
        UserError: the net has a layer of unknown type, or inputs without shapes.
    """
    new = type(net)()
    new.CopyFrom(net)
    if new.layers and new.layer:
        warning(f"net {net.name!r}: {len(new.layer)} 'layer' beside {len(new.layers)} of the old 'layers' are ignored, "
                "as Caffe does; use one kind")
        new.ClearField("layer")
    if any(layer.HasField("layer") for layer in new.layers):
        new = upgrade_v0(new)
    if new.layers:
        new = upgrade_v1(new)
        for layer in new.layer:  # in today's nets these fields say nothing, but for WindowData's scale
            _move_transform(layer)
    for layer in new.layer:
        upgrade_c3d(layer)
        _name_rounding(layer)
        if layer.type == "BatchNorm" and len(layer.param) == 3:
            for spec in layer.param:  # statistics, not weights: old files said so by hand, some wrongly
                spec.lr_mult = spec.decay_mult = 0
    split_norms(new)
    _inputs_to_layer(new)
    return new


def _name_rounding(layer: Any) -> None:
    """Forks' ceil_mode becomes BVLC Caffe's round_mode."""
    options = layer.pooling_param
    if options.HasField("ceil_mode"):
        options.round_mode = options.CEIL if options.ceil_mode else options.FLOOR
        options.ClearField("ceil_mode")


def _move_transform(layer: Any) -> None:
    """Move options of transformations from the readers' messages to ``transform_param``."""
    field = READERS.get(layer.type)
    if field is None or not layer.HasField(field):
        return
    reader = getattr(layer, field)
    for name in TRANSFORM:
        if reader.HasField(name):
            setattr(layer.transform_param, name, getattr(reader, name))
            reader.ClearField(name)


def _inputs_to_layer(net: Any) -> None:
    """Turn ``input`` with ``input_shape`` or ``input_dim`` into one Input layer in front; without a shape, as in old
    trained nets, it is removed."""
    if net.input and (net.input_shape or net.input_dim):
        layer = caffe_pb2.LayerParameter(name="input", type="Input", top=list(net.input))
        for dims in _input_shapes(net):
            layer.input_param.shape.add().dim.extend(dims)
        rest = list(net.layer)
        del net.layer[:]
        net.layer.extend([layer, *rest])
    for field in ("input", "input_shape", "input_dim"):
        net.ClearField(field)


def _input_shapes(net: Any) -> list[list[int]]:
    wanted = len(net.input)
    if net.input_shape:
        shapes, said = [list(shape.dim) for shape in net.input_shape], f"{len(net.input_shape)} input_shape"
    else:
        shapes = [list(net.input_dim[at:at + 4]) for at in range(0, len(net.input_dim), 4)]
        said = f"{len(net.input_dim)} input_dim (4 an input)"
    if len(shapes) < wanted or len(shapes[wanted - 1]) != len(shapes[0]) and not net.input_shape:
        raise UserError(f"net {net.name!r} has {wanted} input but {said}")
    return shapes[:wanted]


def upgrade_solver(solver: Any) -> Any:
    """A copy of a SolverParameter with the type as a name, not the old number. Raises UserError if both are given."""
    new = type(solver)()
    new.CopyFrom(solver)
    if new.HasField("solver_type"):
        if new.HasField("type"):
            raise UserError("the solver gives both type and the old solver_type; keep type")
        old = new.DESCRIPTOR.fields_by_name["solver_type"].enum_type.values_by_number[new.solver_type].name
        new.type = SOLVER_TYPES[old]
        new.ClearField("solver_type")
    return new
