"""The flags that ``convert_imageset`` and ``convert_annoset`` share: how listed images become records."""

from __future__ import annotations

import sys
from argparse import Namespace

from scaffe import cores
from scaffe.data.convert.imageset import ImagesetOptions
from scaffe.data.convert.writers import WRITERS
from scaffe.flags import MOST, Flags, whole

SIDE = whole(-MOST - 1)  # of an image; Caffe takes what is below 0 as 0


def add_image_flags(flags: Flags, line: str) -> None:
    """Add the flags and arguments.

    Args:
        flags: the command's.
        line: what stands in a line of the list.
    """
    flags.flag("gray", False, "one channel instead of three")
    flags.flag("shuffle", False, "in random order")
    flags.flag("seed", 1, "of the random order", kind=whole(0, 2**32 - 1))
    flags.flag("backend", "lmdb", "the kind of database", choices=tuple(WRITERS))
    flags.flag("resize_width", 0, "width to which images are resized; 0: as they are", kind=SIDE)
    flags.flag("resize_height", 0, "height to which images are resized; 0: as they are", kind=SIDE)
    flags.flag("check_size", False, "refuse images whose shape is not the first one's")
    flags.flag("encoded", False, "keep image files in the records, to be decoded by the reader")
    flags.flag("encode_type", "", "the kind of image files to keep (png, jpg, ...)")
    flags.flag("force", False, "replace the output folder if it exists")
    flags.argument("ROOTFOLDER", "what the list's paths start from, with its last slash")
    flags.argument("LISTFILE", f"a text file, {line} a line")
    flags.argument("DB_NAME", "the database's folder to write")


class LeftOut:
    """Names images that cannot be read on standard error, and counts them."""

    def __init__(self) -> None:
        self._lines: list[str] = []

    def __call__(self, line: str) -> None:
        """One more, with what is wrong about it. Any thread may call."""
        self._lines.append(line)
        print(line, file=sys.stderr)

    def say(self) -> None:
        """Say how many there were."""
        if self._lines:
            print(f"{len(self._lines)} of the listed images left out, named above", file=sys.stderr)


def image_options(args: Namespace, left_out: LeftOut) -> ImagesetOptions:
    """What these flags ask for."""
    return ImagesetOptions(
        grey=args.gray, shuffle=args.shuffle, seed=args.seed, height=max(0, args.resize_height),
        width=max(0, args.resize_width), check_shape=args.check_size, encoded=args.encoded,
        encode_type=args.encode_type, n_threads=cores.n_threads(),
        on_bad=left_out)
