"""One run of the fuzzer: rounds over the kinds, with what each kept input failed of."""

from __future__ import annotations

import contextlib
import random
import re
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tests.fuzz import children, corpus
from tests.fuzz.children import Files
from tests.fuzz.kind import Kind, all_kinds

MOST_OF_A_SORT = 3  # inputs kept that fail with the same error at the same line


class Campaign:
    """A run.

    Args:
        names: kinds; None: all.
        seed: decides every input: input i of a kind is the same in every run.
        failed: the folder for inputs that fail.

    Attributes:
        n_failed: inputs that failed.
    """

    def __init__(self, names: Sequence[str] | None, seed: int, failed: Path) -> None:
        kinds = all_kinds()
        if unknown := set(names or ()) - set(kinds):
            raise SystemExit(f"unknown kind {', '.join(unknown)}; known: {', '.join(kinds)}")
        self._kinds = {name: kind for name, kind in kinds.items() if not names or name in names}
        self._seed, self._failed = seed, failed
        self._n_read: Counter[str] = Counter()
        self._sorts: Counter[str] = Counter()
        self.n_failed = 0

    def run(self, end: float) -> None:
        """Until the clock (time.monotonic) shows ``end``; every kind has as much time, and one round at least."""
        seeds: dict[str, list[Files]] = {}
        seconds: Counter[str] = Counter()
        while time.monotonic() < end or len(seconds) < len(self._kinds):
            name = min(self._kinds, key=lambda each: seconds.get(each, -1))
            started = time.monotonic()
            if name not in seeds:
                seeds[name] = good_inputs(self._kinds[name])
            self._round(name, self._kinds[name], seeds[name])
            seconds[name] += time.monotonic() - started

    def _round(self, name: str, kind: Kind, seeds: list[Files]) -> None:
        first = self._n_read[name]
        inputs = [self._input(name, kind, seeds, number) for number in range(first, first + kind.n_at_once)]
        self._n_read[name] += kind.n_at_once
        verdicts = children.verdicts(kind.read, inputs, kind.patience)
        for number, (files, verdict) in enumerate(zip(inputs, verdicts, strict=True), first):
            if verdict:
                self._note(name, number, files, verdict)

    def _input(self, name: str, kind: Kind, seeds: list[Files], number: int) -> Files:
        rng = random.Random(f"{self._seed} {name} {number}")
        return kind.mutate(rng, rng.choice(seeds))

    def _note(self, name: str, number: int, files: Files, verdict: str) -> None:
        self.n_failed += 1
        sort = _sort(name, verdict)
        self._sorts[sort] += 1
        if self._sorts[sort] <= MOST_OF_A_SORT:
            path = corpus.keep(self._failed, name, files)
            print(f"{name} {number} {path}: {verdict}", flush=True)

    def summary(self) -> str:
        """How many inputs of each kind, and what failed how often."""
        counts = ", ".join(f"{name} {n}" for name, n in self._n_read.items())
        lines = [f"{sum(self._n_read.values())} inputs ({counts}), {self.n_failed} failed"]
        return "\n".join(lines + [f"{n:6} x {sort}" for sort, n in self._sorts.most_common()])


def _sort(name: str, verdict: str) -> str:
    """What failures have in common: the error, and the last line of ours in the traceback."""
    lines = verdict.splitlines()
    ours = [line.strip() for line in lines if "File " in line and "site-packages" not in line and "/tests/" not in line]
    head = lines[0].split(":")[0] if ours else re.sub(r"\d+|/\S+|'.*", "", lines[0])[:60]
    return f"{name}: {head} {ours[-1] if ours else ''}"


def good_inputs(kind: Kind) -> list[Files]:
    """A kind's seeds; each must be read without a word, or the kind is wrong."""
    with tempfile.TemporaryDirectory(prefix="fuzz-seeds-") as folder:
        seeds = kind.seeds(Path(folder))
    for verdict in refusals(kind, seeds):
        raise SystemExit(f"a good input is not read: {verdict}")
    return seeds


def refusals(kind: Kind, seeds: list[Files]) -> list[str]:
    """How good inputs are refused, which they must not be; read here, so that code is compiled before children are."""
    found = []
    with tempfile.TemporaryDirectory(prefix="fuzz-good-") as parent:
        for number, files in enumerate(seeds):
            folder = Path(parent) / str(number)
            children.lay_out(files, folder)
            with contextlib.chdir(folder):
                try:
                    kind.read(folder)
                except Exception as error:
                    found.append(f"{type(error).__name__}: {error}")
    return found


def replay(paths: Sequence[Path]) -> int:
    """Read kept inputs again; the folder that each lies in says its kind. Returns the exit code."""
    kinds, n_failed = all_kinds(), 0
    for path in paths:
        kind = kinds[path.resolve().parent.name]
        good_inputs(kind)
        (verdict,) = children.verdicts(kind.read, [corpus.unpack(path)], kind.patience)
        print(f"{path}: {verdict or 'read or refused as it should be'}")
        n_failed += bool(verdict)
    return 1 if n_failed else 0
