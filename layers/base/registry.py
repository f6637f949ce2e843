"""Registries of classes by name: each class registers itself where it is defined."""

from __future__ import annotations

import difflib
import importlib
import pkgutil
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Registry(Generic[T]):
    """Units of one kind (layers, update rules, strategies) by name, registered by the modules of ``package``, which are
    imported at the first look-up, all but those in its sub-packages ``apart``. ``kind`` is what error messages call a
    unit."""

    def __init__(self, kind: str, package: str, apart: tuple[str, ...] = ()) -> None:
        self.kind, self.package, self._apart = kind, package, apart
        self._units: dict[str, T] = {}
        self._loaded = False

    def register(self, *names: str) -> Callable[[T], T]:
        """A decorator that enters a unit under these names. Raises ValueError if a name is taken."""

        def enter(unit: T) -> T:
            for name in names:
                if name in self._units:
                    raise ValueError(f"{self.kind} {name!r} is registered twice")
                self._units[name] = unit
            return unit

        return enter

    def get(self, name: str) -> T:
        """The unit of that name. Raises KeyError, naming the nearest known name, if there is none."""
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
        self._import_all(self.package)

    def _import_all(self, name: str) -> None:
        for module in pkgutil.iter_modules(importlib.import_module(name).__path__):
            if module.name in self._apart:
                continue
            if module.ispkg:
                self._import_all(f"{name}.{module.name}")
            else:
                importlib.import_module(f"{name}.{module.name}")
