"""A database folder of whatever kind: its files tell, not the message, whose default is not what people have."""

from __future__ import annotations

from pathlib import Path

from scaffe.data.errors import DataError
from scaffe.data.records.decode import Colour
from scaffe.data.sources.source import Source


def open_database(path: str, colour: Colour = Colour.AS_STORED) -> Source:
    """The source for a folder of Datum records.

    Args:
        path: the folder.
        colour: what to make of records that hold image files.

    Raises:
        DataError: there is no database that can be read.
    """
    from scaffe.data.sources.lmdb import LmdbSource

    if not path:
        raise DataError("data_param needs a source, the path of a database")
    if (Path(path) / "CURRENT").exists():
        from scaffe.data.sources.leveldb import LevelDbSource

        return LevelDbSource(path, colour)
    return LmdbSource(path, colour)
