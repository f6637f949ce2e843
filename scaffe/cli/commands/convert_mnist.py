"""Turn a folder's MNIST-style IDX archives into an LMDB of Caffe's records."""

from __future__ import annotations

from pathlib import Path

from scaffe.cli.flags import Flags
from scaffe.data.convert.mnist import convert_mnist
from scaffe.errors import UserError

STEMS = {"train": "train", "test": "t10k"}


def main(argv: list[str]) -> int:
    """``convert_mnist FOLDER train|test LMDB``: the usual four file names, gzipped or not. Returns the exit code."""
    flags = Flags("convert_mnist", __doc__ or "")
    flags.add_argument("folder", help="where the four IDX files lie")
    flags.add_argument("part", choices=tuple(STEMS))
    flags.add_argument("lmdb", help="the folder to write")
    flags.flag("force", False, "replace the output folder if it exists")
    options = flags.parse_args(argv)
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
