"""A LevelDB's records into an LMDB.

An LMDB opens at once at any length; a LevelDB is read through first.
"""

from __future__ import annotations

from collections.abc import Sequence

from scaffe.data.convert.writers import write_lmdb
from scaffe.data.sources.leveldb import LevelDbSource
from scaffe.flags import Flags

GROUP = "Data"


def main(argv: Sequence[str]) -> int:
    """Run the tool on its arguments (without the program's name). Raises DataError for a user's mistake."""
    flags = Flags("convert_leveldb", __doc__ or "")
    flags.flag("force", False, "replace the output folder if it exists")
    flags.argument("INPUT_DB", "the LevelDB's folder")
    flags.argument("OUTPUT_DB", "the LMDB's folder to write")
    args = flags.parse(argv)
    n_records = write_lmdb(args.OUTPUT_DB, LevelDbSource(args.INPUT_DB).items(), args.force)
    print(f"Processed {n_records} files.")
    return 0
