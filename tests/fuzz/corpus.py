"""Inputs that failed once, each a zip of a folder's files in corpus/KIND/; tests read them all."""

from __future__ import annotations

import hashlib
import io
import zipfile
from pathlib import Path

from tests.fuzz.children import Files

FOLDER = Path(__file__).parent / "corpus"


def pack(files: Files) -> bytes:
    """A zip without time stamps."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in sorted(files.items()):
            archive.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED, 9)
    return out.getvalue()


def unpack(path: Path) -> Files:
    """The files of a zip."""
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def keep(folder: Path, kind: str, files: Files) -> Path:
    """Write an input into folder/kind under a name that its contents give. Returns the path."""
    content = pack(files)
    path = folder / kind / f"{hashlib.sha256(content).hexdigest()[:12]}.zip"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def all_kept() -> dict[str, list[Path]]:
    """The kept inputs by kind."""
    return {folder.name: sorted(folder.glob("*.zip")) for folder in sorted(FOLDER.iterdir()) if folder.is_dir()}
