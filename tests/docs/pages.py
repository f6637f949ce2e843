"""The pages for users, taken apart: their commands, Python snippets, and the paths that they name."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", *(ROOT / "docs").glob("*.md"),
                *(ROOT / "examples").rglob("*.md")])
PROGRAMS = ("python", "scaffe", "mpirun", "make", "pip", "sbatch", "jobs/", "jobs/mpirun.sh", ".", "python3")
SETTING = re.compile(r"^\w+=\S*$")


@dataclass(frozen=True)
class Line:
    """A line of code of a page: where it stands, and what it says."""

    page: str
    number: int
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.number}: {self.text}"


def blocks(page: Path) -> Iterator[list[Line]]:
    """The blocks of code of a page, fenced or indented by four columns behind an empty line."""
    return (block for _, block in blocks_with_language(page))


def blocks_with_language(page: Path) -> Iterator[tuple[str, list[Line]]]:
    """The blocks with the language that their fence names; none for indented ones."""
    name, language, block, before = str(page.relative_to(ROOT)), None, [], ""
    for number, text in enumerate([*page.read_text().splitlines(), "end"], 1):
        is_fence = text.startswith("```")
        is_code = not is_fence and (language is not None or (text.startswith("    ") and bool(block or not before)))
        if is_code:
            block.append(Line(name, number, text if language is not None else text[4:]))
        elif block and (text or is_fence):
            yield language or "", block
            block = []
        if is_fence:
            language = text[3:] if language is None else None
        before = text.strip()


def commands(page: Path) -> Iterator[Line]:
    """The shell commands of a page: lines of blocks, and code in the text that begins with one of our programs."""
    for block in blocks(page):
        for line in block:
            if is_command(line.text):
                yield line
    for number, text in enumerate(page.read_text().splitlines(), 1):
        for code in re.findall(r"`([^`]+)`", text):
            if is_command(code) and len(code.split()) > 1:
                yield Line(str(page.relative_to(ROOT)), number, code)


def is_command(text: str) -> bool:
    """Whether a line begins with a program that these pages tell people to start."""
    words = text.split()
    while words and SETTING.match(words[0]):
        words = words[1:]
    return bool(words) and (words[0] in PROGRAMS or words[0].startswith("jobs/")) and not text.endswith(":")


def scaffe_words(text: str) -> list[str] | None:
    """The words behind ``scaffe`` in a command, without comments, redirections and optional parts; None where it is
    another's."""
    text = re.sub(r" 2?> ?\S+$", "", text.replace("[", "").replace("]", ""))
    try:
        words = shlex.split(text, comments=True)
    except ValueError:
        return None
    for start in (["-m", "scaffe"], ["scaffe"]):
        for i in range(len(words)):
            if words[i:i + len(start)] == start and (start == ["-m", "scaffe"] or i == 0):
                return words[i + len(start):]
    return None


@cache
def tracked() -> frozenset[str]:
    """All files of the repository."""
    listed = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=ROOT,
                            capture_output=True, text=True, check=True)
    return frozenset(listed.stdout.splitlines())


def exists(path: str) -> bool:
    """Whether a path, or the end of one, is in the repository: a file, or a folder where it ends with a slash."""
    if path.endswith("/"):
        return any(f"/{name}".find(f"/{path}") >= 0 for name in tracked())
    return any(f"/{name}".endswith(f"/{path}") for name in tracked())
