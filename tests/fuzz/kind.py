"""What a kind of input is; each file of kinds/ defines one, called KIND, and is found by being there."""

from __future__ import annotations

import importlib
import pkgutil
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from tests.fuzz import kinds
from tests.fuzz.children import Files
from tests.fuzz.mutators import plain

Mutate = Callable[[random.Random, Files], Files]


@dataclass(frozen=True)
class Kind:
    """A kind of input.

    Attributes:
        seeds: makes good inputs, by other libraries where they can, in an empty folder.
        read: reads a folder with all our code for this kind. Raises ExpectedError for what it refuses.
        mutate: a good input into a damaged one.
        n_at_once: inputs before the next kind's turn; fewer where each takes long.
        patience: how many times the limits of time (`children`) an input may take.
    """

    seeds: Callable[[Path], list[Files]]
    read: Callable[[Path], object]
    mutate: Mutate
    n_at_once: int = 50
    patience: int = 1


def one_file(*mutators: plain.Mutator) -> Mutate:
    """A ``mutate`` that changes one of the files; a longer one more often, half the time by these mutators alone."""

    def mutate(rng: random.Random, files: Files) -> Files:
        out = dict(files)
        for _ in range(rng.choice([1, 1, 1, 2, 3, 6])):
            name = rng.choices(list(out), [1 + len(content) ** 0.3 for content in out.values()])[0]
            change = rng.choice(mutators) if mutators and rng.random() < 0.6 else rng.choice(plain.ALL)
            out[name] = change(rng, out[name]) if out[name] else rng.randbytes(3)
        return out

    return mutate


def files_of(folder: Path, names: Sequence[str] = ()) -> Files:
    """A folder as an input."""
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if not names or path.name in names}


def all_kinds() -> dict[str, Kind]:
    """Kinds by name; without LevelDB where there is no plyvel, which has no wheel for Python 3.13."""
    names = sorted(module.name for module in pkgutil.iter_modules(kinds.__path__))
    if find_spec("plyvel") is None:
        names.remove("leveldb")
    return {name: importlib.import_module(f"{kinds.__name__}.{name}").KIND for name in names}
