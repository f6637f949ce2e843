"""Opens databases of Datum records; the kind of a database is recognised from its files.

The ``backend`` of a data_param is ignored: its default is LevelDB, but most databases are LMDBs.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from scaffe.data import sources
from scaffe.data.records.decode import Colour
from scaffe.data.sources.source import Source
from scaffe.errors import DataError

Opener = Callable[[str, Colour], Source]
T = TypeVar("T", bound=Opener)
DEFAULT = "lmdb"  # opens what no kind recognises, for its error message
_kinds: dict[str, tuple[Callable[[Path], bool], Opener]] = {}


def database_kind(name: str, is_one: Callable[[Path], bool]) -> Callable[[T], T]:
    """Register a ``Source`` class in this folder as the reader of a kind of database, for layers of type Data.

    Args:
        name: of the kind.
        is_one: tells whether a path is a database of this kind; must accept paths that do not exist.

    Returns:
        A decorator of the class, which is called with path and colour.

    Raises:
        ValueError: the name is taken.
    """

    def enter(opener: T) -> T:
        if name in _kinds:
            raise ValueError(f"the database kind {name!r} is registered twice")
        _kinds[name] = is_one, opener
        return opener

    return enter


def open_database(path: str, colour: Colour = Colour.AS_STORED) -> Source:
    """Open a database of any registered kind.

    Args:
        path: the folder or file.
        colour: how records that hold image files are decoded.

    Returns:
        The source of its records.

    Raises:
        DataError: there is no database at this path, or it cannot be read.
    """
    if not path:
        raise DataError("data_param needs a source, the path of a database")
    for module in pkgutil.iter_modules(sources.__path__):
        importlib.import_module(f"{sources.__name__}.{module.name}")
    for is_one, opener in _kinds.values():
        if is_one(Path(path)):
            return opener(path, colour)
    return _kinds[DEFAULT][1](path, colour)
