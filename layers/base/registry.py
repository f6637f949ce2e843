"""Names to classes: a unit registers itself in its own file and is found by being in the folder."""

from __future__ import annotations

import difflib
import importlib
import pkgutil
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Registry(Generic[T]):
    """The units of one kind (layers, update rules, strategies), by name.

    Args:
        kind: what a unit is called in messages ("layer type").
        package: dotted name of the package whose modules register units; they are imported on first look-up.
    """

    def __init__(self, kind: str, package: str) -> None:
        self.kind, self.package = kind, package
        self._units: dict[str, T] = {}
        self._loaded = False

    def register(self, *names: str) -> Callable[[T], T]:
        """Decorator: enter a unit under its names; a name taken twice is refused with ValueError."""

        def enter(unit: T) -> T:
            for name in names:
                if name in self._units:
                    raise ValueError(f"{self.kind} {name!r} is registered twice")
                self._units[name] = unit
            return unit

        return enter

    def get(self, name: str) -> T:
        """The unit of that name. Raises KeyError with the nearest known names."""
        self._load()
        if name not in self._units:
            lower = {known.lower(): known for known in self._units}
            near = difflib.get_close_matches(name.lower(), lower, 1, 0.5)
            hint = f"did you mean {lower[near[0]]!r}?" if near else "known: " + ", ".join(sorted(self._units))
            raise KeyError(f"unknown {self.kind} {name!r}; {hint}")
        return self._units[name]

    def names(self) -> list[str]:
        """All names, sorted."""
        self._load()
        return sorted(self._units)

    def _load(self) -> None:
        if self._loaded:
            return
        self._loaded = True
        package = importlib.import_module(self.package)
        for module in pkgutil.iter_modules(package.__path__):
            importlib.import_module(f"{self.package}.{module.name}")
