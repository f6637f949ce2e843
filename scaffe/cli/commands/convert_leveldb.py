"""``convert_leveldb [-force] INPUT_DB OUTPUT_DB``: a LevelDB's records into an LMDB, as they are."""

from __future__ import annotations

from collections.abc import Sequence

from scaffe.cli.tool_flags import Flags
from scaffe.data.convert.lmdb_writer import write_lmdb
from scaffe.data.sources.leveldb import LevelDbSource


def main(argv: Sequence[str]) -> int:
    """Run the tool on its arguments (without the program's name). Raises DataError for a user's mistake."""
    flags = Flags("convert_leveldb", "Writes the records of a LevelDB as an LMDB, which opens at once at any length.")
    flags.flag("force", False, "replace the output folder if it exists")
    for name in ("INPUT_DB", "OUTPUT_DB"):
        flags.add_argument(name)
    args = flags.parse(argv)
    n_records = write_lmdb(args.OUTPUT_DB, LevelDbSource(args.INPUT_DB).items(), args.force)
    print(f"Processed {n_records} files.")
    return 0
