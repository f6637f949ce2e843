"""The cache key of a compiled function: a digest of our sources that it can reach and of the constants it names."""

from __future__ import annotations

import enum
import hashlib
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from importlib.util import resolve_name
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np

IMPORT = re.compile(r"^(?:from[ \t]+([\w.]+)[ \t]+import[ \t]+(\([^)]*\)|.*)|import[ \t]+(.*))", re.MULTILINE)
"""Import statements at the left margin. Imports within functions run in some processes only, whose digests would
differ."""
PLAIN = (int, float, complex, str, bytes, type(None), enum.Enum, np.generic, np.dtype)
INSTALLED = {"site-packages", "dist-packages"}
PYTHONS_OWN = sys.stdlib_module_names - {"__main__"}


def digest(*texts: str) -> str:
    """The first 16 hexadecimal digits of the texts' SHA-256."""
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:16]


@cache
def dependencies(function: Callable[..., Any]) -> str:
    """A digest of all that a function's machine code depends on, except its signature and the compiler's options.

    That is the source files of its module and of all our modules that this one imports when it loads, and the values
    of the constants that it and the functions it calls name, since these may come from the environment.
    """
    line = str(function.__code__.co_firstlineno)
    modules = {function.__module__, function.__globals__["__name__"]}  # differ if one module made it for another
    return digest(line, *map(_sources, sorted(modules)), *sorted(_constants(function)))


@cache
def _sources(module: str) -> str:
    """A digest of the sources of a module and of our modules that it imports."""
    return digest(*(f"{name}\n{_text(file)}" for name, file in sorted(_modules(module).items())))


def _modules(start: str) -> dict[str, Path]:
    """By name, the source files of a module and of our modules that it imports, directly or not."""
    found: dict[str, Path] = {}
    seen, left = set(), {start}
    while left:
        name = left.pop()
        seen.add(name)
        file = _file(name, start.split(".")[0])
        if file:
            found[name] = file
            left |= _imports(file, getattr(sys.modules[name], "__package__", None) or "") - seen
    return found


def _file(name: str, ours: str) -> Path | None:
    """The source file of a loaded module; None for the standard library and for other installed packages."""
    top, file = name.split(".")[0], getattr(sys.modules.get(name), "__file__", None)
    if not file or not file.endswith(".py") or top in PYTHONS_OWN:
        return None
    return Path(file) if top == ours or not INSTALLED.intersection(Path(file).parts) else None


@cache
def _imports(file: Path, package: str) -> frozenset[str]:
    """All names in a source's import statements that may be modules."""
    found: set[str] = set()
    for origin, names, modules in IMPORT.findall(_text(file)):
        if modules:
            found |= {words[0] for part in modules.split(",") if (words := part.split())}
            continue
        with suppress(ImportError):  # dots of prose in a docstring
            base = resolve_name(origin, package)
            found |= {base, *(f"{base}.{word}" for word in re.findall(r"\w+", names))}
    return frozenset(found)


@cache
def _text(file: Path) -> str:
    return file.read_text(encoding="utf-8") if file.exists() else ""


def _constants(function: Callable[..., Any]) -> Iterator[str]:
    """``module.name=value`` for the constants that a function and those that it calls name."""
    left, seen = [function], set()
    while left:
        reached = left.pop()
        if reached in seen:
            continue
        seen.add(reached)
        for name, value in _named(reached):
            inner = getattr(value, "py_func", None) or getattr(value, "_defn", None) or value
            if isinstance(inner, FunctionType):
                if _file(inner.__module__, function.__module__.split(".")[0]):
                    left.append(inner)
            elif (text := _shown(value)) is not None:
                yield f"{reached.__module__}.{reached.__qualname__}: {name}={text}"


def _named(function: Callable[..., Any]) -> Iterator[tuple[str, Any]]:
    """Names and values of the globals that a function uses, and of attributes of modules and classes among them."""
    names = sorted(set(_names(function.__code__)))
    for cell, name in zip(function.__closure__ or (), function.__code__.co_freevars, strict=True):
        yield name, cell.cell_contents
    left, seen = [("", function.__globals__)], set()
    while left:
        prefix, table = left.pop()
        for name in names:
            if name in table:
                value = table[name]
                yield prefix + name, value
                if isinstance(value, (ModuleType, type)) and id(value) not in seen \
                        and _file(getattr(value, "__module__", value.__name__), function.__module__.split(".")[0]):
                    seen.add(id(value))
                    left.append((f"{prefix}{name}.", vars(value)))


def _names(code: CodeType) -> Iterator[str]:
    """The global names that code and the functions nested in it look up."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _shown(value: Any) -> str | None:
    """A text that identifies a constant's value; None for a value that is no constant."""
    if isinstance(value, PLAIN):
        return repr(value)
    if isinstance(value, np.ndarray):
        return f"{value.dtype} {value.shape} {hashlib.sha256(value.tobytes()).hexdigest()}"
    if isinstance(value, (set, frozenset)):
        return repr(sorted(map(repr, value)))
    if isinstance(value, dict):
        value = tuple(value.items())
    if isinstance(value, (tuple, list)):
        texts = [_shown(part) for part in value]
        return None if None in texts else f"({', '.join(map(str, texts))})"
    return None
