"""The names of classes into a LabelMap prototxt.

With the arguments of create_label_map of SSD's fork of Caffe.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from google.protobuf import text_format

from scaffe.atomic_files import refuse_input, write_whole
from scaffe.errors import UserError
from scaffe.flags import Flags
from scaffe.input_files import read_text_input
from scaffe.proto import caffe_pb2

GROUP = "Data"
BACKGROUND = ("none_of_the_above", "background")


def main(argv: Sequence[str]) -> int:
    """Run the tool on its arguments (without the program's name). Raises UserError for a user's mistake."""
    flags = Flags("create_label_map", __doc__ or "")
    flags.flag("include_background", False, "begin with the class none_of_the_above, label 0")
    flags.flag("delimiter", " ", "what parts a line's fields: any one of these characters")
    flags.argument("MAPFILE", "a text file, 'name [label [display name]]' a line")
    flags.argument("OUTFILE", "the prototxt to write")
    args = flags.parse(argv)
    refuse_input(args.OUTFILE, [args.MAPFILE], UserError)
    try:
        lines = read_text_input(args.MAPFILE, "replace").splitlines()
    except OSError as error:
        raise UserError(f"{args.MAPFILE}: {error.strerror or error}") from None
    made = label_map(lines, args.delimiter, args.include_background, args.MAPFILE)
    write_whole(args.OUTFILE, text_format.MessageToString(made).encode(), UserError)
    return 0


def label_map(lines: Sequence[str], delimiters: str, background: bool, source: str) -> Any:
    """A LabelMap message. Without labels in the lines, they are counted from 0, or from 1 behind the background's.

    Args:
        lines: ``name``, ``name label`` or ``name label display_name``, all alike.
        delimiters: characters that part fields.
        background: begin with the class of everything else.
        source: what error messages call the lines' file.

    Raises:
        UserError: a line has other fields than the first, or a label is no whole number.
    """
    made = caffe_pb2.LabelMap()
    if background:
        made.item.add(name=BACKGROUND[0], label=0, display_name=BACKGROUND[1])
    n_fields = 0
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        fields = _split(line, delimiters)
        n_fields = n_fields or len(fields)
        if len(fields) != n_fields or n_fields > 3:
            raise UserError(f"{source}:{number}: expected {min(n_fields, 3)} field(s), found {len(fields)}")
        label = fields[1] if n_fields > 1 else str(len(made.item))
        if not label.lstrip("-").isdecimal() or abs(int(label)) >= 1 << 31:
            raise UserError(f"{source}:{number}: the label {label[:80]!r} is not a whole number of 32 bits")
        made.item.add(name=fields[0], label=int(label), display_name=fields[2 if n_fields == 3 else 0])
    return made


def _split(line: str, delimiters: str) -> list[str]:
    """The fields of a line, between any one of some characters each."""
    for other in delimiters[1:]:
        line = line.replace(other, delimiters[0])
    return line.split(delimiters[0]) if delimiters else [line]
