"""Names, heights and widths of listed images.

For the name_size_file of SSD's layers; with the arguments of get_image_size of
SSD's fork of Caffe.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from scaffe.atomic_files import refuse_input, write_whole
from scaffe.data.records.decode import Colour, read_image
from scaffe.errors import UserError
from scaffe.flags import Flags
from scaffe.input_files import read_text_input

GROUP = "Data"


def main(argv: Sequence[str]) -> int:
    """Run the tool on its arguments (without the program's name). Raises UserError or DataError for a mistake."""
    flags = Flags("get_image_size", __doc__ or "")
    flags.flag("name_id_file", "", "a text file, 'name id' a line: ids instead of names are written", metavar="FILE")
    flags.argument("ROOTFOLDER", "what the list's paths start from")
    flags.argument("LISTFILE", "a text file, 'image annotations' a line")
    flags.argument("OUTFILE", "the text file to write, 'name height width' a line")
    args = flags.parse(argv)
    refuse_input(args.OUTFILE, [args.LISTFILE, args.name_id_file], UserError)
    ids = dict(_pairs(args.name_id_file)) if args.name_id_file else None
    lines = [_line(Path(args.ROOTFOLDER) / image, ids, args.name_id_file) for image, _ in _pairs(args.LISTFILE)]
    write_whole(args.OUTFILE, "".join(lines).encode(errors="surrogateescape"), UserError)
    print(f"Processed {len(lines)} files.")
    return 0


def _pairs(path: str) -> list[tuple[str, str]]:
    """The two words of each line. Raises UserError for a line of more or fewer."""
    try:
        lines = read_text_input(path, "surrogateescape").splitlines()
    except OSError as error:
        raise UserError(f"{path}: {error.strerror or error}") from None
    pairs = []
    for number, line in enumerate(lines, 1):
        words = line.rsplit(maxsplit=1)
        if len(words) == 1:
            raise UserError(f"{path}:{number}: expected two words, found {line[:80]!r}")
        if words:
            pairs.append((words[0], words[1]))
    return pairs


def _line(image: Path, ids: dict[str, str] | None, source: str) -> str:
    height, width = read_image(str(image), Colour.BGR).shape[:2]
    if ids is not None and image.stem not in ids:
        raise UserError(f"{source}: has no id of {image.stem!r}")
    return f"{image.stem if ids is None else ids[image.stem]} {height} {width}\n"
