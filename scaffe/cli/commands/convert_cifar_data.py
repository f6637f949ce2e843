"""``convert_cifar_data [-force] input_folder output_folder db_type``: CIFAR-10's binary archives into two databases."""

from __future__ import annotations

from collections.abc import Sequence

from scaffe.cli.tool_flags import Flags
from scaffe.data.convert.cifar import convert_cifar


def main(argv: Sequence[str]) -> int:
    """Run the tool on its arguments (without the program's name). Raises DataError for a user's mistake."""
    flags = Flags("convert_cifar_data", "Writes CIFAR-10 (data_batch_1.bin ... test_batch.bin) as two databases.")
    flags.flag("force", False, "replace the databases if they exist")
    flags.add_argument("input_folder")
    flags.add_argument("output_folder")
    flags.add_argument("db_type", nargs="?", default="lmdb")
    args = flags.parse(argv)
    for part, n_records in convert_cifar(args.input_folder, args.output_folder, args.force, args.db_type).items():
        print(f"cifar10_{part}_{args.db_type}: {n_records} records")
    return 0
