"""Commands that convert lists of images: to databases, with annotations of objects, to label maps and sizes.

Each takes its arguments without the program's name, and returns the exit code.
"""

from __future__ import annotations

import re
import sys
from argparse import Namespace
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from google.protobuf import text_format

from scaffe import threads
from scaffe.atomic_files import refuse_input, write_whole
from scaffe.data.convert import annoset, imageset
from scaffe.data.convert.annotations import READERS, read_label_map
from scaffe.data.convert.writers import WRITERS
from scaffe.data.records.decode import Colour, read_image
from scaffe.errors import UsageError, UserError
from scaffe.flags import MOST, Flags, whole
from scaffe.input_files import read_text_input
from scaffe.proto import caffe_pb2

SCALED = "decode JPEGs that are made smaller at 1/2, 1/4 or 1/8"
SIDE = whole(-MOST - 1)  # of an image; Caffe takes what is below 0 as 0
KINDS = ("classification", "detection")
BACKGROUND = ("none_of_the_above", "background")


def _add_image_flags(flags: Flags, line: str) -> None:
    """Add the flags that ``convert_imageset`` and ``convert_annoset`` share; ``line``: what a line of the list has."""
    flags.flag("gray", False, "one channel instead of three")
    flags.flag("shuffle", False, "in random order")
    flags.flag("seed", 1, "seed of the random order", kind=whole(0, 2**32 - 1))
    flags.flag("backend", "lmdb", "the kind of database", choices=tuple(WRITERS))
    flags.flag("resize_width", 0, "width to which images are resized; 0: as they are", kind=SIDE)
    flags.flag("resize_height", 0, "height to which images are resized; 0: as they are", kind=SIDE)
    flags.flag("check_size", False, "refuse images whose shape is not the first one's")
    flags.flag("encoded", False, "keep image files in the records, to be decoded by the reader")
    flags.flag("encode_type", "", "the kind of image files to keep (png, jpg, ...)")
    flags.flag("force", False, "replace the output folder if it exists")
    flags.argument("ROOTFOLDER", "the folder of the list's paths, with its last slash")
    flags.argument("LISTFILE", f"a text file, {line} a line")
    flags.argument("DB_NAME", "the database's folder to write")


def _convert(args: Namespace, convert: Callable[..., int],
             more: Callable[[imageset.ImagesetOptions], Any] = lambda options: options) -> int:
    """Convert a list; images that cannot be read are named on standard error, and counted. Returns the exit code.

    ``more`` makes the converter's options from those that the shared flags give.
    """
    left_out: list[str] = []

    def on_bad(line: str) -> None:  # any thread may call
        left_out.append(line)
        print(line, file=sys.stderr)

    options = more(imageset.ImagesetOptions(
        grey=args.gray, shuffle=args.shuffle, seed=args.seed, height=max(0, args.resize_height),
        width=max(0, args.resize_width), scaled=vars(args).get("scaled_decode", False),
        check_shape=args.check_size, encoded=args.encoded, encode_type=args.encode_type,
        n_threads=threads.n_threads(), on_bad=on_bad))
    n_records = convert(args.ROOTFOLDER, args.LISTFILE, args.DB_NAME, options, args.force, args.backend)
    print(f"Processed {n_records} files.")
    if left_out:
        print(f"{len(left_out)} of the listed images left out, named above", file=sys.stderr)
    return 0


def convert_imageset(argv: Sequence[str]) -> int:
    """Convert listed images into a database.

    With the arguments of Caffe's convert_imageset.
    """
    flags = Flags.of(convert_imageset)
    _add_image_flags(flags, "'path label'")
    flags.flag("scaled_decode", False, SCALED)
    return _convert(flags.parse(argv), imageset.convert_imageset)


def convert_annoset(argv: Sequence[str]) -> int:
    """Convert images and their objects into a database.

    With the arguments of convert_annoset of SSD's fork of Caffe.
    """
    args = _annoset_flags().parse(argv)
    detection = args.anno_type == "detection"
    if detection and not args.label_map_file:
        raise UsageError("-anno_type detection wants -label_map_file")
    labels = read_label_map(args.label_map_file, args.check_label) if detection else {}
    return _convert(args, annoset.convert_annoset, lambda options: annoset.AnnosetOptions(
        options, detection, args.label_type, labels, args.min_dim, args.max_dim))


def _annoset_flags() -> Flags:
    flags = Flags.of(convert_annoset)
    flags.flag("anno_type", "classification", "what the list's second column is: labels or files of annotations",
               choices=KINDS)
    flags.flag("label_type", "xml", "the kind of those files", choices=tuple(READERS))
    flags.flag("label_map_file", "", "a LabelMap prototxt with the classes' labels", metavar="FILE")
    flags.flag("check_label", False, "refuse a label map with a name twice")
    flags.flag("min_dim", 0, "enlarge smaller images until their shorter side has so many pixels", kind=SIDE)
    flags.flag("max_dim", 0, "shrink larger images until their longer side has at most so many pixels",
               kind=SIDE)
    _add_image_flags(flags, "'image annotations' or 'image label'")
    return flags


def create_label_map(argv: Sequence[str]) -> int:
    """Convert names of classes into a LabelMap prototxt.

    With the arguments of create_label_map of SSD's fork of Caffe.
    """
    flags = Flags.of(create_label_map)
    flags.flag("include_background", False, "begin with the class none_of_the_above, label 0")
    flags.flag("delimiter", " ", "the characters that separate a line's fields")
    flags.argument("MAPFILE", "a text file, 'name [label [display name]]' a line")
    flags.argument("OUTFILE", "the prototxt to write")
    args = flags.parse(argv)
    refuse_input(args.OUTFILE, [args.MAPFILE], UserError)
    made = label_map(_lines(args.MAPFILE, "replace"), args.delimiter, args.include_background, args.MAPFILE)
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
        fields = re.split(f"[{re.escape(delimiters)}]", line) if delimiters else [line]
        n_fields = n_fields or len(fields)
        if len(fields) != n_fields or n_fields > 3:
            raise UserError(f"{source}:{number}: expected {min(n_fields, 3)} field(s), found {len(fields)}")
        label = fields[1] if n_fields > 1 else str(len(made.item))
        if not label.lstrip("-").isdecimal() or abs(int(label)) >= 1 << 31:
            raise UserError(f"{source}:{number}: the label {label[:80]!r} is not a whole number of 32 bits")
        made.item.add(name=fields[0], label=int(label), display_name=fields[2 if n_fields == 3 else 0])
    return made


def _lines(path: str, errors: str) -> list[str]:
    try:
        return read_text_input(path, errors).splitlines()
    except OSError as error:
        raise UserError(f"{path}: {error.strerror or error}") from None


def get_image_size(argv: Sequence[str]) -> int:
    """Write names, heights and widths of listed images.

    For the name_size_file of SSD's layers; with the arguments of get_image_size of
    SSD's fork of Caffe.
    """
    flags = Flags.of(get_image_size)
    flags.flag("name_id_file", "", "a text file, 'name id' a line: ids instead of names are written", metavar="FILE")
    flags.argument("ROOTFOLDER", "the folder of the list's paths")
    flags.argument("LISTFILE", "a text file, 'image annotations' a line")
    flags.argument("OUTFILE", "the text file to write, 'name height width' a line")
    args = flags.parse(argv)
    refuse_input(args.OUTFILE, [args.LISTFILE, args.name_id_file], UserError)
    ids = dict(_pairs(args.name_id_file)) if args.name_id_file else None
    lines = [_size_line(Path(args.ROOTFOLDER) / image, ids, args.name_id_file) for image, _ in _pairs(args.LISTFILE)]
    write_whole(args.OUTFILE, "".join(lines).encode(errors="surrogateescape"), UserError)
    print(f"Processed {len(lines)} files.")
    return 0


def _pairs(path: str) -> list[tuple[str, str]]:
    """The two words of each line. Raises UserError for a line of more or fewer."""
    pairs = []
    for number, line in enumerate(_lines(path, "surrogateescape"), 1):
        words = line.rsplit(maxsplit=1)
        if len(words) == 1:
            raise UserError(f"{path}:{number}: expected two words, found {line[:80]!r}")
        if words:
            pairs.append((words[0], words[1]))
    return pairs


def _size_line(image: Path, ids: dict[str, str] | None, source: str) -> str:
    height, width = read_image(str(image), Colour.BGR).shape[:2]
    if ids is not None and image.stem not in ids:
        raise UserError(f"{source}: has no id of {image.stem!r}")
    return f"{image.stem if ids is None else ids[image.stem]} {height} {width}\n"
