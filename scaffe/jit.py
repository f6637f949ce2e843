"""numba's compiler with a cache that the ranks of a job may fill and read at the same time.

numba keeps an index beside a function's compiled variants: processes that compile together write it over one another,
and one may then be given the code of another variant. Nor does it see a change in a function that another file has.
Here every variant has a file of its own, named after all that its code depends on: no index, no order, no locks.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from types import FunctionType
from typing import Any

import numba
from numba.core.caching import FunctionCache
from numba.core.serialize import dumps


def compiled(function: Callable | None = None, **options) -> Any:
    """numba.njit(nogil=True, **options) of `function`, compiled once a machine for each signature: a decorator.

    Raises TypeError for a function made inside another: its sisters have the same name, by which numba links code from
    its cache, so that a caller may be given theirs.
    """
    if function is None:
        return partial(compiled, **options)
    if "<locals>" in function.__qualname__:
        raise TypeError(f"expected a module's function to compile, got {function.__qualname__}")
    dispatcher = numba.njit(nogil=True, **options)(function)
    with suppress(RuntimeError):  # a folder that cannot be written, and no home: every process compiles for itself
        dispatcher._cache = _Cache(function)
    return dispatcher


class _Cache(FunctionCache):
    def __init__(self, function: Callable) -> None:
        super().__init__(function)
        self._cache_file = Variants(Path(self._cache_path), self._impl.filename_base, function)


class Variants:
    """The files of one function's variants, as numba's Cache asks for them."""

    def __init__(self, folder: Path, prefix: str, function: Callable) -> None:
        self._folder, self._prefix, self._function = folder, prefix, function

    def load(self, key: tuple) -> object | None:
        """What was saved under `key` from the same sources, or None."""
        try:
            return pickle.loads(self._path(key).read_bytes())
        except OSError:
            return None

    def save(self, key: tuple, data: object) -> None:
        """Write a variant, whole or not at all, and drop those of other sources under the same key."""
        path = self._path(key)
        with suppress(OSError):  # a full disk, another's folder: no reason to stop, the next run compiles again
            _write(path, dumps(data))
            for other in self._folder.glob(f"{self._prefix}.{_digest(repr(key))}.*.nbc"):
                if other != path:
                    other.unlink(missing_ok=True)

    def flush(self) -> None:
        """Forget all variants."""
        for path in self._folder.glob(f"{self._prefix}.*.nbc"):
            path.unlink(missing_ok=True)

    def _path(self, key: tuple) -> Path:
        return self._folder / f"{self._prefix}.{_digest(repr(key))}.{_sources_digest(self._function)}.nbc"


def _write(path: Path, content: bytes) -> None:
    handle, name = tempfile.mkstemp(".part", path.name, path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            os.fchmod(handle, 0o644)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink()
        raise


@cache
def _sources_digest(function: Callable) -> str:
    files = {reached.__code__.co_filename for reached in _reached(function, set())} | {numba.__version__}
    return _digest(*sorted(_file_digest(file) for file in files))


def _reached(function: Callable, seen: set[Callable]) -> Iterator[Callable]:
    """`function` and the compiled functions and intrinsics that it calls, and so on."""
    if function in seen:
        return
    seen.add(function)
    yield function
    named = [function.__globals__.get(name) for name in function.__code__.co_names]
    for value in named + [cell.cell_contents for cell in function.__closure__ or ()]:
        inner = getattr(value, "py_func", None) or getattr(value, "_defn", None)
        if isinstance(inner, FunctionType):
            yield from _reached(inner, seen)


@cache
def _file_digest(file: str) -> str:
    return _digest(Path(file).read_text(encoding="utf-8") if Path(file).exists() else file)


def _digest(*texts: str) -> str:
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:16]
