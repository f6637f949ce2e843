"""``convert_mnist_data [-force] images labels lmdb``: MNIST's archives into an LMDB."""

from __future__ import annotations

from collections.abc import Sequence

from data.convert.mnist import convert_mnist
from data.errors import DataError
from data.tools.flags import Flags


def main(argv: Sequence[str]) -> int:
    """Run the tool on its arguments (without the program's name). Raises DataError for a user's mistake."""
    flags = Flags("convert_mnist_data", "Writes MNIST's images and labels files (IDX, gzipped or not) as an LMDB.")
    flags.flag("backend", "lmdb", "the kind of database; only lmdb is written")
    flags.flag("force", False, "replace the output folder if it exists")
    for name in ("input_image_file", "input_label_file", "output_db_file"):
        flags.add_argument(name)
    args = flags.parse(argv)
    if args.backend != "lmdb":
        raise DataError(f"convert_mnist_data: -backend must be lmdb, got {args.backend!r}")
    n_records = convert_mnist(args.input_image_file, args.input_label_file, args.output_db_file, args.force)
    print(f"Processed {n_records} files.")
    return 0
