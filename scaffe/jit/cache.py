"""A disk cache of compiled functions, in place of numba's own.

numba's cache keeps an index of a function's compiled variants. Processes that compile at the same time overwrite it,
and one may then load the code of another variant; nor does it notice a change in a function of another file. Here each
variant is a file of its own, named after all that its code depends on, so that neither index nor locks are needed.

Only this module uses undocumented names of numba; numba 0.60 to 0.68 have them.
"""

from __future__ import annotations

import hashlib
import inspect
import os
import pickle
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import numba
from numba.core import event

from scaffe import log, private_files
from scaffe.jit.cache_key import dependencies, digest

try:
    from numba.core.compiler import CompileResult
    from numba.core.runtime.nrt import rtsys
    from numba.core.serialize import dumps
    PRIVATE_NAMES = [CompileResult._reduce, CompileResult._rebuild]
except (ImportError, AttributeError):  # another numba than those that pyproject.toml asks for
    PRIVATE_NAMES = []

FOLDER_VARIABLE = "NUMBA_CACHE_DIR"
N_DIGEST_BYTES = hashlib.sha256().digest_size
NOT_CODE = {FOLDER_VARIABLE, "NUMBA_NUM_THREADS"}  # of numba's variables, those that change no code


@cache
def missing() -> str:
    """Why the cache cannot work with this numba, logged once; empty if it can."""
    if PRIVATE_NAMES:
        return ""
    line = f"numba {numba.__version__} is not one of 0.60 to 0.68: every process compiles its functions for itself"
    log.warning(line)
    return line


class DiskCache:
    """The cached variants of one function, with the interface that numba's dispatcher expects; ``options`` are
    numba's."""

    def __init__(self, function: Callable[..., Any], options: dict[str, Any]) -> None:
        self._function, self._options = function, repr(sorted(options.items()))

    @property
    def cache_path(self) -> str:
        """The folder, for the dispatcher's statistics."""
        return str(_folder(_source(self._function)))

    def load_overload(self, signature: Any, target_context: Any) -> Any:
        """The cached code for this signature and these sources, or None."""
        path = self._path(signature, target_context)
        content = private_files.read(path) if path else None
        if content is None or not _is_whole(content):
            return None
        rtsys.initialize(target_context)  # not refresh(), which loads all that a compiler may need: 0.3 s a process
        parts = pickle.loads(content[N_DIGEST_BYTES:])
        return CompileResult._rebuild(target_context, *parts)  # type: ignore[no-untyped-call]

    def save_overload(self, signature: Any, result: Any) -> None:
        """Cache compiled code, and delete what other sources gave for the same signature."""
        path = self._path(signature, result.target_context)
        if path is None or result.lifted or result.library.has_dynamic_globals:
            return
        with suppress(OSError):  # a full disk: no reason to stop, the next run compiles again
            content = dumps(result._reduce())  # type: ignore[no-untyped-call]
            private_files.write(path, hashlib.sha256(content).digest() + content)
            for other in path.parent.glob(f"{path.name.rsplit('.', 2)[0]}.*.nbc"):
                if other != path:
                    other.unlink(missing_ok=True)

    def flush(self) -> None:
        """Delete all variants."""
        folder = _folder(_source(self._function))
        for path in folder.glob(f"{self._stem()}.*.nbc") if folder else ():
            path.unlink(missing_ok=True)

    def enable(self) -> None:
        """Does nothing: the cache is always enabled."""

    disable = enable

    def _path(self, signature: Any, target_context: Any) -> Path | None:
        """FOLDER/MODULE.FUNCTION-WHERE.KEY.SOURCES.nbc; None if no folder can be written."""
        folder = _folder(_source(self._function))
        if folder is None:
            return None
        key = digest(repr(signature), repr(target_context.codegen().magic_tuple()), self._options, *_process_wide())
        return folder / f"{self._stem()}.{key}.{dependencies(self._function)}.nbc"

    def _stem(self) -> str:
        source = _source(self._function)
        return f"{source.stem}.{self._function.__qualname__}-{digest(str(source))[:8]}"


def _source(function: Callable[..., Any]) -> Path:
    return Path(inspect.getfile(function))


@cache
def _process_wide() -> tuple[str, ...]:
    """What the code of all functions depends on besides their sources."""
    settings = sorted((k, v) for k, v in os.environ.items() if k.startswith("NUMBA_") and k not in NOT_CODE)
    return str(sys.implementation.cache_tag), numba.__version__, repr(settings)


@cache
def _folder(source: Path) -> Path | None:
    """The folder for code made from a source file: NUMBA_CACHE_DIR, else beside the source, else the user's cache.

    A folder that another user can write is not used, since its files are unpickled and run.
    """
    if not source.is_file():
        return None
    chosen = os.environ.get(FOLDER_VARIABLE)
    beside = Path(chosen) if chosen else source.parent / "__pycache__"
    found = private_files.first_usable([beside]) if chosen else None
    if chosen and found != beside:
        _tell(beside, found)
        return found
    return found or private_files.first_usable([beside, private_files.cache_home() / "compiled"])


@cache
def _tell(chosen: Path, found: Path | None) -> None:
    reason = private_files.why_others_may_change(chosen) or "it cannot be written"
    log.warning(f"{FOLDER_VARIABLE}={chosen}: {reason}; compiled functions are kept in {found or 'no folder'}")


def _is_whole(content: bytes) -> bool:
    """Whether a file's checksum is right; a crash of the machine may have cut it off."""
    return hashlib.sha256(content[N_DIGEST_BYTES:]).digest() == content[:N_DIGEST_BYTES]


class _Clock(event.Listener):
    """Notes when compiling begins and ends. Compiling a function includes compiling those that it calls."""

    def __init__(self) -> None:
        self.spans: list[tuple[float, float]] = []  # perf_counter seconds, in order
        self._depth, self._started = 0, 0.0

    def on_start(self, event: event.Event) -> None:
        """See numba's Listener."""
        if not self._depth:
            self._started = time.perf_counter()
        self._depth += 1

    def on_end(self, event: event.Event) -> None:
        """See numba's Listener."""
        self._depth -= 1
        if not self._depth:
            self.spans.append((self._started, time.perf_counter()))


_clock = _Clock()
event.register("numba:compile", _clock)  # type: ignore[no-untyped-call]


def compiling_seconds(started: float, ended: float) -> float:
    """Seconds that this process has spent compiling between two times of ``time.perf_counter()``."""
    total = 0.0
    for first, last in reversed(_clock.spans):
        if last <= started:
            break
        total += max(min(last, ended) - max(first, started), 0.0)
    return total
