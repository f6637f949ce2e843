"""Repairs the text of nets that today's parser refuses: spellings and options of old versions and of forks."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from google.protobuf.descriptor import FieldDescriptor as Field

from scaffe.files.upgrade_old import V1_TYPES
from scaffe.proto import caffe_pb2
from scaffe.proto.forks import fork_of_field
from scaffe.proto.raw_strings import is_repeated
from scaffe.proto.tokens import MARK
from scaffe.proto.tree import Entry, read_tree, unquoted, write_tree

SHAPES = {"kernel_size": "kernel_shape", "stride": "stride_shape", "pad": "pad_shape"}
CLIP_AXES = 3


def mend_clip_pooling(layer: Entry, changes: list[str]) -> None:
    """Turn a Pooling with three kernel_size, one an axis (video-caffe's first version), into an NdPooling, in place; a
    single stride or pad holds for all axes. ``changes`` gets a line for each change.
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


INTEGERS = {Field.TYPE_INT32, Field.TYPE_INT64, Field.TYPE_UINT32, Field.TYPE_UINT64}
TRUTHS = {"true": "true", "1": "true", "yes": "true", "on": "true", "false": "false", "0": "false", "no": "false",
          "off": "false"}
TAKEN_TRUTHS = {"true", "false", "True", "False", "t", "f", "1", "0"}
OLD_OPTIONS = {  # message, option, value → what says the same today
    ("PoolingParameter", "ceil_mode", "false"): ("round_mode", "FLOOR"),  # SegNet's and other forks'
    ("PoolingParameter", "ceil_mode", "true"): ("round_mode", "CEIL")}
OLD_NAMES = {"enable": "include"}  # of a layer, in jeffdonahue/caffe
V1_OPTIONS = {"param": "name", "blob_share_mode": "share_mode", "blobs_lr": "lr_mult", "weight_decay": "decay_mult"}


def repair_net(text: str, known_types: Collection[str]) -> tuple[str, list[str]]:
    """The text of a NetParameter, repaired where its meaning is clear.

    Args:
        text: a net of any generation.
        known_types: the layer types that exist.

    Returns:
        the text, unchanged if it needed no repair; and for each change a line that begins with its place.

    Raises:
        TokenError: it is not the text format.
    """
    changes = ["line 1: left out the byte-order mark"] * text.startswith(MARK)
    entries = read_tree(text.removeprefix(MARK))
    types = {_plain(name): name for name in (*V1_TYPES.values(), *known_types) if name}
    types |= {_plain(old): new for old, new in V1_TYPES.items() if new}
    types |= {name: name for name in known_types}  # two may differ in capitals alone
    _mend_generations(entries, types, changes)
    for entry in entries:
        if entry.name == "layer":
            _mend_type(entry, types, changes)
            mend_clip_pooling(entry, changes)
    _mend(entries, caffe_pb2.NetParameter.DESCRIPTOR, "", changes)
    return (write_tree(entries) if changes else text), changes


def _plain(name: str) -> str:
    return name.replace("_", "").replace("-", "").lower()


def _mend_generations(entries: list[Entry], types: dict[str, str], changes: list[str]) -> None:
    """Turn ``layers`` into ``layer`` if a type is a string or a fork's; else spell the types as in 2014."""
    layers = [entry for entry in entries if entry.name == "layers" and entry.is_message]
    names = {_plain(old): old for old in V1_TYPES}
    written = [field for entry in layers for field in entry.fields if field.name == "type"]
    if any(field.value[:1] in ("'", '"') or _plain(field.value) in types.keys() - names.keys() for field in written):
        for entry in layers:
            changes.append(f"line {entry.line}: 'layers' {entry.first('name')!r} became 'layer'")
            entry.name = "layer"
            _mend_params(entry)
        return
    for field in written:
        if field.value not in V1_TYPES and _plain(field.value) in names:
            changes.append(f"line {field.line}: type {field.value} became {names[_plain(field.value)]}")
            field.value = names[_plain(field.value)]


def _mend_params(layer: Entry) -> None:
    """Turn the lists of 2014 (names, share modes, rates, decays) into one ``param`` for each blob."""
    params: list[Entry] = []
    for old, new in V1_OPTIONS.items():
        for index, field in enumerate([field for field in layer.fields if field.name == old and not field.is_message]):
            if index == len(params):
                params.append(Entry("param", field.line, is_message=True))
            params[index].fields.append(Entry(new, field.line, field.value))
    layer.fields = [field for field in layer.fields if field.is_message or field.name not in V1_OPTIONS] + params


def _mend_type(layer: Entry, types: dict[str, str], changes: list[str]) -> None:
    """Give a layer's type today's spelling, in quotes."""
    for field in layer.fields:
        if field.name == "type":
            written = unquoted(field.value)
            new = types.get(written) or types.get(_plain(written), written)
            if f'"{new}"' != field.value.replace("'", '"'):
                changes.append(f"line {field.line}: type {field.value} became \"{new}\"")
                field.value = f'"{new}"'


def _mend(entries: list[Entry], message: Any, where: str, changes: list[str]) -> None:
    """Repair names, values and repetitions of one message's fields, and of the messages in it."""
    last: dict[str, Entry] = {}
    for entry in list(entries):
        place = f"line {entry.line}: {where}"
        field = _mend_name(entry, message, place, changes)
        if field is None or _has_unknown_name(entry, field, place, changes):
            entries.remove(entry)
            continue
        before = None if is_repeated(field) else last.get(entry.name)
        if before is not None:
            changes.append(f"{place}{entry.name} is given twice; the last one, {entry.value or '{...}'}, counts")
            entries.remove(before)
        last[entry.name] = entry
        if entry.is_message and field.message_type is not None:
            _mend(entry.fields, field.message_type, _inside(entry, where), changes)
        elif not entry.is_message and field.message_type is None:
            new = _value(entry.value, field)
            if new != entry.value:
                changes.append(f"{place}{entry.name}: {entry.value} became {new}")
                entry.value = new


def _mend_name(entry: Entry, message: Any, place: str, changes: list[str]) -> Any:
    """The field that an entry means, whose name the entry then gets; None if there is none."""
    if (message.name, entry.name, entry.value) in OLD_OPTIONS:
        new, value = OLD_OPTIONS[message.name, entry.name, entry.value]
        changes.append(f"{place}{entry.name}: {entry.value} became {new}: {value}")
        entry.name, entry.value = new, value
    if entry.name not in message.fields_by_name:
        known = {_plain(name): name for name in message.fields_by_name}
        known |= {old: new for old, new in OLD_NAMES.items() if new in known}
        if _plain(entry.name) not in known:
            changes.append(f"{place}{entry.name} left out: {message.name} has no such field{fork_of_field(entry.name)}")
            return None
        changes.append(f"{place}{entry.name} became {known[_plain(entry.name)]}")
        entry.name = known[_plain(entry.name)]
    return message.fields_by_name[entry.name]


def _has_unknown_name(entry: Entry, field: Any, place: str, changes: list[str]) -> bool:
    """Whether an option's value is an unknown name, such as another fork's engine. Layer types are not options."""
    if field.enum_type is None or entry.name == "type" or entry.value.isdigit():
        return False
    if _plain(unquoted(entry.value)) in {_plain(name) for name in field.enum_type.values_by_name}:
        return False
    changes.append(f"{place}{entry.name} left out: there is no {unquoted(entry.value)}, but "
                   f"{', '.join(field.enum_type.values_by_name)}")
    return True


def _inside(entry: Entry, where: str) -> str:
    name = entry.first("name")
    return f"layer {name!r}: " if entry.name in ("layer", "layers") and name else where


def _value(value: str, field: Any) -> str:
    """A value in the spelling that its field takes, or unchanged."""
    bare = unquoted(value)
    if field.enum_type is not None:
        names = {_plain(name): name for name in field.enum_type.values_by_name}
        return value if value in names.values() else names.get(_plain(bare), value)
    if field.type == Field.TYPE_STRING:
        return value if value[:1] in ("'", '"') else f'"{value}"'
    if field.type == Field.TYPE_BOOL:
        return value if value in TAKEN_TRUTHS else TRUTHS.get(bare.lower(), value)
    return _whole(bare, value) if field.type in INTEGERS and (bare != value or "." in bare) else bare


def _whole(bare: str, value: str) -> str:
    try:
        return str(int(float(bare))) if float(bare) == int(float(bare)) else value
    except (ValueError, OverflowError):
        return value
