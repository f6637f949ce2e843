"""CIFAR-10's binary archives into two databases.

With the arguments of Caffe's convert_cifar_data.
"""

from __future__ import annotations

from collections.abc import Sequence

from scaffe.data.convert.archives import convert_cifar
from scaffe.data.convert.writers import WRITERS
from scaffe.flags import Flags

GROUP = "Data"


def main(argv: Sequence[str]) -> int:
    """Run the tool on its arguments (without the program's name). Raises DataError for a user's mistake."""
    flags = Flags("convert_cifar_data", __doc__ or "")
    flags.flag("force", False, "replace the databases if they exist")
    flags.argument("input_folder", "where data_batch_1.bin ... test_batch.bin lie")
    flags.argument("output_folder", "the folder for cifar10_train_* and cifar10_test_*")
    flags.argument("db_type", "the kind of database", default="lmdb", choices=tuple(WRITERS))
    args = flags.parse(argv)
    for part, n_records in convert_cifar(args.input_folder, args.output_folder, args.force, args.db_type).items():
        print(f"cifar10_{part}_{args.db_type}: {n_records} records")
    return 0
