"""Pooling over clips as video-caffe's first version writes it, in that of its NdPooling."""

from __future__ import annotations

from scaffe.proto.tree import Entry, unquoted

SHAPES = {"kernel_size": "kernel_shape", "stride": "stride_shape", "pad": "pad_shape"}
CLIP_AXES = 3


def mend_clip_pooling(layer: Entry, changes: list[str]) -> None:
    """A Pooling with three kernel_size, one an axis, becomes an NdPooling; one stride or pad is that of all axes.

    Args:
        layer: changed in place.
        changes: gets a line for each change.
    """
    kind = next((f for f in layer.fields if f.name == "type" and unquoted(f.value) == "Pooling"), None)
    options = next((f for f in layer.fields if f.name == "pooling_param" and f.is_message), None)
    if kind is None or options is None or _count(options, "kernel_size") != CLIP_AXES:
        return
    if any(_count(options, name) not in (0, 1, CLIP_AXES) for name in SHAPES):
        return
    kind.value = '"NdPooling"'
    changes.append(f"line {kind.line}: layer {layer.first('name')!r}: Pooling over three axes became NdPooling")
    for name, shape in SHAPES.items():
        given = [field for field in options.fields if field.name == name]
        if given:
            dims = [Entry("dim", field.line, field.value) for field in given * (CLIP_AXES // len(given))]
            options.fields = [field for field in options.fields if field.name != name]
            options.fields.append(Entry(shape, given[0].line, fields=dims, is_message=True))


def _count(options: Entry, name: str) -> int:
    return sum(field.name == name for field in options.fields)
