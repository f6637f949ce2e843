"""The field's words (docs/glossary.md) in names: what had a name of ours before has the usual one."""

import ast
import re
from pathlib import Path

import pytest

from tests.test_architecture import ROOT, sources

WORDS = {
    "accrue": "local update", "accrued": "local update", "brain": "bfloat16",
    "bridged": "merged", "lasting": "persistent", "lean": "saved activations", "mends": "recovers",
    "newcomer": "joining rank", "newcomers": "joining ranks", "renewer": "parameter refresher", "renews": "refreshes",
    "seam": "hook point", "seams": "hook points", "shrunk": "on_shrink",
    "spared": "never materialized", "survival": "fault tolerance", "survivor": "recovery", "survivors": "recovery",
    "telling": "loss notification", "trunk": "per-image prefix",
}
"""Words that no name has, and what the field says in their place."""
NAMES = {
    "Again": "Recompute", "Awake": "SuspendAwareClock", "Below": "BackingStore", "EarlyTables": "EagerTables",
    "Ending": "FinalizeAfterLoss", "Figures": "StalenessStatistics", "Held": "StateTensor", "Known": "ChangeDetector",
    "Member": "RecoveryStateMachine", "OwnImagesFirst": "GatherGemmOverlap", "Pace": "StragglerStatistics",
    "Resident": "memory accounting", "Shares": "PerImageParallelism", "Stops": "StopProtocol",
    "Strip": "ContiguousSpan", "ends_with_a_rank": "why_not_fault_tolerant", "goes_on": "tolerates_rank_loss",
    "keep_least": "minimize_saved_activations", "keep_little": "reduce_saved_activations",
    "last_words": "flush_output", "take_early": "take_eager", "takes_nobody_in": "why_no_replacement",
    "update_early": "update_in_backward",
}
"""Names that nothing public has; the words in them have other uses."""


def words(name: str) -> list[str]:
    """The words of a name in snake or camel case, in lower case."""
    return [word.lower() for part in name.split("_") for word in re.findall(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])", part)]


def public_names(tree: ast.Module) -> set[str]:
    """Classes, functions, methods, arguments and attributes that do not begin with an underscore."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.arg):
            found.add(node.arg)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            found.add(node.attr)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found.add(node.target.id)
    return {name for name in found if not name.startswith("_")}


def test_words_of_a_name():
    assert words("PinnedLasting") == ["pinned", "lasting"]
    assert words("keep_little2") == ["keep", "little2"]
    assert words("_MPIStore") == ["mpi", "store"]


def named() -> dict[str, set[str]]:
    """File → its names, the file's own among them."""
    return {str(path.relative_to(ROOT)): public_names(ast.parse(path.read_text())) | {path.stem} for path in sources()}


@pytest.fixture(scope="module")
def names() -> dict[str, set[str]]:
    return named()


def test_names_have_the_fields_words(names):
    assert not [f"{file}: {name} (say: {WORDS[word]})" for file, found in names.items() for name in sorted(found)
                for word in words(name) if word in WORDS]


def test_public_names_that_were_ours_are_gone(names):
    assert not [f"{file}: {name} (say: {NAMES[name]})" for file, found in names.items()
                for name in sorted(found & NAMES.keys())]


def test_the_glossary_defines_each_term_once():
    terms = re.findall(r"^\| ([^|]+) \| [^|]+ \| [^|]* \|$", Path(ROOT / "docs/glossary.md").read_text(), re.M)
    rows = [term for term in terms if term not in ("term", "---")]
    assert len(rows) > 50
    assert len(rows) == len(set(rows))
