"""``convert_mnist_data [-force] images labels lmdb``: MNIST's archives into a database."""

from __future__ import annotations

from collections.abc import Sequence

from scaffe.cli.tool_flags import Flags
from scaffe.data.convert.mnist import convert_mnist


def main(argv: Sequence[str]) -> int:
    """Run the tool on its arguments (without the program's name). Raises DataError for a user's mistake."""
    flags = Flags("convert_mnist_data", "Writes MNIST's images and labels files (IDX, gzipped or not) as a database.")
    flags.flag("backend", "lmdb", "the kind of database: lmdb or leveldb")
    flags.flag("force", False, "replace the output folder if it exists")
    for name in ("input_image_file", "input_label_file", "output_db_file"):
        flags.add_argument(name)
    args = flags.parse(argv)
    n_records = convert_mnist(args.input_image_file, args.input_label_file, args.output_db_file, args.force,
                              args.backend)
    print(f"Processed {n_records} files.")
    return 0
