"""Databases of Datum records and their like: which kind one is, its own files tell.

The ``backend`` of a data_param is not asked: its default, LevelDB, is not what people have.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from scaffe.data import sources
from scaffe.data.errors import DataError
from scaffe.data.records.decode import Colour
from scaffe.data.sources.source import Source

Opener = Callable[[str, Colour], Source]
T = TypeVar("T", bound=Opener)
DEFAULT = "lmdb"  # opens what no kind knows, to say what is missing
_kinds: dict[str, tuple[Callable[[Path], bool], Opener]] = {}


def database_kind(name: str, is_one: Callable[[Path], bool]) -> Callable[[T], T]:
    """Decorator of a ``Source`` class in this folder: layers of type Data then read that kind of database.

    Args:
        name: of the kind.
        is_one: whether a path is a database of this kind; the path may not exist.

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
    """The source for a database of whatever kind.

    Args:
        path: the folder or file.
        colour: what to make of records that hold image files.

    Raises:
        DataError: there is no database that can be read.
    """
    if not path:
        raise DataError("data_param needs a source, the path of a database")
    for module in pkgutil.iter_modules(sources.__path__):
        importlib.import_module(f"{sources.__name__}.{module.name}")
    for is_one, opener in _kinds.values():
        if is_one(Path(path)):
            return opener(path, colour)
    return _kinds[DEFAULT][1](path, colour)
