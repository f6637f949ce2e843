"""Listed images into a database.

With the arguments of Caffe's convert_imageset.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from scaffe.data.convert.imageset import ImagesetOptions, convert_imageset
from scaffe.data.convert.writers import WRITERS
from scaffe.flags import Flags

GROUP = "Data"


def main(argv: Sequence[str]) -> int:
    """Run the tool on its arguments (without the program's name). Raises DataError for a user's mistake."""
    args = _flags().parse(argv)
    options = ImagesetOptions(
        grey=args.gray, shuffle=args.shuffle, seed=args.seed, height=max(0, args.resize_height),
        width=max(0, args.resize_width), check_shape=args.check_size, encoded=args.encoded,
        encode_type=args.encode_type, n_threads=len(os.sched_getaffinity(0)),
        on_bad=lambda line: print(line, file=sys.stderr))
    n_records = convert_imageset(args.ROOTFOLDER, args.LISTFILE, args.DB_NAME, options, args.force, args.backend)
    print(f"Processed {n_records} files.")
    return 0


def _flags() -> Flags:
    flags = Flags("convert_imageset", __doc__ or "")
    flags.flag("gray", False, "one channel instead of three")
    flags.flag("shuffle", False, "in random order")
    flags.flag("seed", 1, "of the random order")
    flags.flag("backend", "lmdb", "the kind of database", choices=tuple(WRITERS))
    flags.flag("resize_width", 0, "width to which images are resized; 0: as they are")
    flags.flag("resize_height", 0, "height to which images are resized; 0: as they are")
    flags.flag("check_size", False, "refuse images whose shape is not the first one's")
    flags.flag("encoded", False, "keep image files in the records, to be decoded by the reader")
    flags.flag("encode_type", "", "the kind of image files to keep (png, jpg, ...)")
    flags.flag("force", False, "replace the output folder if it exists")
    flags.argument("ROOTFOLDER", "what the list's paths start from, with its last slash")
    flags.argument("LISTFILE", "a text file, 'path label' a line")
    flags.argument("DB_NAME", "the database's folder to write")
    return flags
