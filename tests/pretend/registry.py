"""What is alive, by its address, listed safely while other threads add to it."""

from __future__ import annotations

from typing import TypeVar
from weakref import WeakValueDictionary

T = TypeVar("T")


class Registry(WeakValueDictionary[int, T]):
    """Objects by address, until they are collected.

    ``WeakValueDictionary.values`` walks its dictionary between other threads' insertions and then ends with "changed
    size during iteration"; ``valuerefs`` copies it in one step.
    """

    def alive(self) -> list[T]:
        """All that are alive at one moment."""
        return [found for ref in self.valuerefs() if (found := ref()) is not None]
