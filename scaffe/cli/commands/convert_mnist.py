"""A folder of MNIST's four IDX files into an LMDB.

Their names are the usual four, gzipped or not.
"""

from __future__ import annotations

from pathlib import Path

from scaffe.data.convert.archives import convert_mnist
from scaffe.errors import UserError
from scaffe.flags import Flags

GROUP = "Data"
STEMS = {"train": "train", "test": "t10k"}


def main(argv: list[str]) -> int:
    """``convert_mnist FOLDER train|test LMDB``: the usual four file names, gzipped or not. Returns the exit code."""
    flags = Flags("convert_mnist", __doc__ or "")
    flags.argument("folder", "where the four IDX files lie")
    flags.argument("part", "which of its two sets", choices=tuple(STEMS))
    flags.argument("lmdb", "the folder to write")
    flags.flag("force", False, "replace the output folder if it exists")
    options = flags.parse(argv)
    stem = STEMS[options.part]
    images, labels = (_find(Path(options.folder), f"{stem}-{what}") for what in ("images-idx3-ubyte",
                                                                                 "labels-idx1-ubyte"))
    n_records = convert_mnist(str(images), str(labels), options.lmdb, options.force)
    print(f"{options.lmdb}: {n_records} records")
    return 0


def _find(folder: Path, name: str) -> Path:
    for path in (folder / f"{name}.gz", folder / name):
        if path.exists():
            return path
    raise UserError(f"{folder}: there is no {name} or {name}.gz")
