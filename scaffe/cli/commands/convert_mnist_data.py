"""MNIST's images and labels files into a database.

With the arguments of Caffe's convert_mnist_data.
"""

from __future__ import annotations

from collections.abc import Sequence

from scaffe.data.convert.archives import convert_mnist
from scaffe.data.convert.writers import WRITERS
from scaffe.flags import Flags

GROUP = "Data"


def main(argv: Sequence[str]) -> int:
    """Run the tool on its arguments (without the program's name). Raises DataError for a user's mistake."""
    flags = Flags("convert_mnist_data", __doc__ or "")
    flags.flag("backend", "lmdb", "the kind of database", choices=tuple(WRITERS))
    flags.flag("force", False, "replace the output folder if it exists")
    flags.argument("input_image_file", "the images, an IDX file, gzipped or not")
    flags.argument("input_label_file", "their labels, an IDX file")
    flags.argument("output_db_file", "the database's folder to write")
    args = flags.parse(argv)
    n_records = convert_mnist(args.input_image_file, args.input_label_file, args.output_db_file, args.force,
                              args.backend)
    print(f"Processed {n_records} files.")
    return 0
