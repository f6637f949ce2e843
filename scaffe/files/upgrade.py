"""Upgrades old nets, solvers and layers of forks to today's form. Facts: BVLC Caffe 1.0, util/upgrade_proto; C3D and
NVIDIA/caffe."""

from __future__ import annotations

from typing import Any

from scaffe.errors import UserError
from scaffe.files.upgrade_old import put, upgrade_v0, upgrade_v1
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


CONVOLUTION = ("num_output", "bias_term", "pad", "kernel_size", "group", "kernel_depth", "stride", "temporal_stride",
               "weight_filler", "bias_filler", "filter_group", "temporal_pad")
POOLING = ("pool", "kernel_size", "stride", "pad", "kernel_depth", "temporal_stride")
VIDEO = ("source", "batch_size", "rand_skip", "shuffle", "new_height", "new_width", "new_length", "show_data",
         "use_image", "use_temporal_jitter", "sampling_rate", "root_folder")
TRANSFORM = ("scale", "mean_file", "crop_size", "mirror")
MOVES = {"Convolution3D": ("convolution_param", "convolution3d_param", CONVOLUTION),
         "Pooling3D": ("pooling_param", "pooling3d_param", POOLING),
         "VideoData": ("image_data_param", "video_data_param", VIDEO)}


def upgrade_c3d(layer: Any) -> None:
    """Move the options that old nets give in the messages of other layers; changes the LayerParameter.

    Raises:
        UserError: an option is given more than once.
    """
    old_name, new_name, names = MOVES.get(layer.type, ("", "", ()))
    if not old_name or not layer.HasField(old_name) or layer.HasField(new_name):
        return
    old, new = getattr(layer, old_name), getattr(layer, new_name)
    for name in names:
        _move(old, new, name, layer.name)
    if layer.type == "VideoData":
        for name in TRANSFORM:
            _move(old, layer.transform_param, name, layer.name)
        if old.HasField("mean_value") and not old.HasField("mean_file"):
            layer.transform_param.mean_value.append(old.mean_value)
    layer.ClearField(old_name)


def _move(old: Any, new: Any, name: str, layer_name: str) -> None:
    value = getattr(old, name)
    if hasattr(value, "append"):
        if len(value) > 1:
            raise UserError(f"layer {layer_name!r}: {name} is given {len(value)} times, C3D's layers take it once")
        if value:
            put(new, name, value[0])
    elif old.HasField(name):
        put(new, name, value)


SCALES = ("scale_bias", "scale_filler", "bias_filler")
N_STATISTICS = 3  # the blobs that do not learn: mean, variance, and their divisor


def split_norms(net: Any) -> None:
    """Give each BatchNorm of today's form with scale_bias, scale_filler or bias_filler a Scale of its own, in place.

    The Scale is called NAME_scale and has the fourth and fifth blob and ``param``, which are scale and bias; a trained
    net is split likewise, so that its weights match. ``use_global_stats: false`` is removed, since that fork always
    takes the running averages in testing.
    """
    layers: list[Any] = []
    for layer in net.layer:
        layers.append(layer)
        if scales_too(layer):
            layers.append(_scale_of(layer))
    if len(layers) > len(net.layer):
        del net.layer[:]
        net.layer.extend(layers)


def scales_too(layer: Any) -> bool:
    """Whether a LayerParameter is a BatchNorm that also scales and shifts."""
    options = layer.batch_norm_param
    return bool(layer.type == "BatchNorm" and (options.scale_bias or options.HasField("scale_filler")
                                               or options.HasField("bias_filler")))


def _scale_of(layer: Any) -> Any:
    """A Scale layer to which the scale and bias of ``layer`` are moved."""
    options = layer.batch_norm_param
    scale = caffe_pb2.LayerParameter(name=f"{layer.name}_scale", type="Scale", bottom=layer.top, top=layer.top,
                                     param=layer.param[N_STATISTICS:], blobs=layer.blobs[N_STATISTICS:],
                                     include=layer.include, exclude=layer.exclude)
    if layer.HasField("phase"):
        scale.phase = layer.phase
    scale.scale_param.bias_term = True
    for ours, theirs in (("filler", "scale_filler"), ("bias_filler", "bias_filler")):
        if options.HasField(theirs):
            getattr(scale.scale_param, ours).CopyFrom(getattr(options, theirs))
    del layer.param[N_STATISTICS:], layer.blobs[N_STATISTICS:]
    for spec in layer.param:
        spec.lr_mult = spec.decay_mult = 0
    for name in SCALES:
        options.ClearField(name)
    if not options.use_global_stats:
        options.ClearField("use_global_stats")
    return scale
