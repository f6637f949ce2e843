"""Tables that ``scaffe tune`` writes."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

from scaffe.collectives.tuning import table
from tests.fuzz.children import Files
from tests.fuzz.kind import Kind, one_file
from tests.fuzz.mutators.messages import spoil
from tests.fuzz.mutators.numbers import whole

OTHERS = [None, True, "", "CB-8", [], {}, 1.5, -1, float("nan"), 1e308, "x" * 5000]


def seeds(folder: Path) -> list[Files]:
    """The first entries of a shipped one."""
    found = []
    for path in sorted((Path(table.__file__).parent / "tables").glob("*.json"))[:2]:
        content = json.loads(path.read_text())
        content["entries"] = content["entries"][:6]
        found.append({"table.json": json.dumps(content).encode()})
    return found


def as_json(rng: random.Random, content: bytes) -> bytes:
    """Values of other types, keys left out, doubled."""
    try:
        tree = json.loads(content)
        for _ in range(rng.choice([1, 1, 3])):
            tree = _changed(rng, tree)
        return json.dumps(tree).encode()
    except (ValueError, RecursionError):  # spoilt before, or nested by a spoiler deeper than Python goes
        return spoil(rng, content)


def _changed(rng: random.Random, tree: Any) -> Any:
    if not isinstance(tree, (dict, list)) or not tree or rng.random() < 0.1:
        return whole(rng) if rng.random() < 0.5 else rng.choice(OTHERS)
    at = rng.choice(list(tree)) if isinstance(tree, dict) else rng.randrange(len(tree))
    if rng.random() < 0.1:
        del tree[at]
    else:
        tree[at] = _changed(rng, tree[at])
    return tree


def read(folder: Path) -> None:
    """As a communicator does."""
    table.TuningTable.read(folder / "table.json")


KIND = Kind(seeds, read, one_file(as_json, as_json))
