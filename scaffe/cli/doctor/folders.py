"""Folders that a run writes to: compiled code, tuned tables, temporary files."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from scaffe import private_files
from scaffe.cli.doctor.finding import BROKEN, FINE, SLOWER, Finding

LEAST_FREE_BYTES = 1 << 30


def check() -> Iterator[Finding]:
    """Whether the cache and the folder of temporary files can be written, and have room."""
    home, kept = private_files.cache_home(), private_files.kept_folder()
    if kept is None:
        yield Finding(SLOWER, "cache", f"{home} cannot be written: every start compiles its kernels again",
                      f"export {private_files.VARIABLE}=/a/folder/of/your/own")
    elif kept != home:
        why = private_files.why_others_may_change(home) or f"{home} cannot be written"
        yield Finding(SLOWER, "cache", f"{kept}, since {why}", f"export {private_files.VARIABLE}=/a/folder/of/your/own")
    else:
        yield Finding(FINE, "cache", str(kept))
    yield _temporary()


def _temporary() -> Finding:
    try:
        folder = Path(tempfile.gettempdir())
        free = shutil.disk_usage(folder).free
    except OSError as error:
        return Finding(BROKEN, "temporary", str(error), "export TMPDIR=/a/folder/that/can/be/written")
    said = f"{folder}, {free / 2**30:.1f} GiB free"
    if free < LEAST_FREE_BYTES:
        return Finding(SLOWER, "temporary", f"{said}; converters need room there", "export TMPDIR=/a/larger/disk")
    return Finding(FINE, "temporary", said)
