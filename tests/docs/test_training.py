"""The pages' training commands run to their end, each distinct one once, and reach the accuracy that they should."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import PAGES, ROOT, commands, scaffe_words
from tests.mpirun import MPIRUN
from tests.scaffe.runs import EXAMPLE

LENET = "examples/fashion_mnist/lenet_solver.prototxt"
ELSEWHERE = {"-gpu", "-memory", "-resume", "-weights", "-on_rank_loss", "-snapshot", "-servers", "-partitions"}
"""Flags of commands that want a machine or files of their own, or repeat a neighbour in another way."""
BESIDE = {"-timeline", "-tensorboard"}
"""Flags that change nothing in what is learnt."""
REACHED = {"lenet_solver": 0.84, "lenet_adagrad_solver": 0.78, "lbfgs_solver": 0.72}
"""Of a test net's accuracy at the end: a little below the worst of some runs."""
LOOSE = 0.74
"""The same of workers that are not in step, on a machine that does other things too."""


def training_commands():
    """Distinct training commands: the number of ranks, and the words behind ``scaffe``."""
    found = [(2, ("train", "-solver", LENET)), (3, ("train", "-solver", LENET))]  # make train, and with NP=3
    for page in PAGES:
        for line in commands(page):
            words, ranks = scaffe_words(line.text), re.search(r"-np (\d)\b", line.text)
            is_ours = words and words[:2] == ["train", "-solver"]
            if is_ours and not re.search("SCAFFE_|jobs/|hostfile|with-ft", line.text):
                found.append((int(ranks[1]) if ranks else 1, tuple(plain(words))))
    return [(n_ranks, words) for n_ranks, words in dict.fromkeys(found)
            if ELSEWHERE.isdisjoint(words) and words[2].startswith("examples/")]


def plain(words):
    """A command's words, with the example's solver for a reader's own, and without what changes nothing."""
    words = [LENET if word == "solver.prototxt" else word for word in words]
    return [word for at, word in enumerate(words) if word not in BESIDE and words[at - 1] not in BESIDE]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with the example."""
    folder = tmp_path_factory.mktemp("trains")
    shutil.copytree(EXAMPLE, folder / "examples/fashion_mnist",
                    ignore=shutil.ignore_patterns("*_lmdb", "*.caffemodel", "*.solverstate"))
    for part in ("train", "test"):
        run(folder, "convert_mnist", "examples/fashion_mnist", part, f"examples/fashion_mnist/{part}_lmdb")
    return folder


def run(folder, *words, n_ranks=1):
    """A command's log."""
    launcher = [MPIRUN, "-np", str(n_ranks)] if n_ranks > 1 else []
    done = subprocess.run([*launcher, sys.executable, "-m", "scaffe", *words], cwd=folder, capture_output=True,
                          text=True, timeout=600, env=os.environ | {"PYTHONPATH": str(ROOT)})
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stderr


@pytest.mark.thorough
@pytest.mark.mpi_job
@pytest.mark.parametrize(("n_ranks", "words"), training_commands(),
                         ids=[f"{n}: {' '.join(words[2:])}" for n, words in training_commands()])
def test_a_pages_training_ends_with_the_accuracy(folder, n_ranks, words):
    log, is_in_step = run(folder, *words, n_ranks=n_ranks), "-strategy" not in words or "sc-obr" in words
    assert "Optimization Done" in log
    assert "nan" not in log
    reached = float(re.findall(r"Test net output #0: accuracy = (\S+)", log)[-1])
    assert reached > (REACHED[Path(words[2]).stem] if is_in_step else LOOSE)


def test_those_of_the_readme_are_there():
    found = training_commands()
    assert [n_ranks for n_ranks, words in found if words == ("train", "-solver", LENET)] == [2, 3, 1, 4]
    assert {"ssp", "downpour", "sc-obr"} <= {words[4] for _, words in found if len(words) > 4}
    assert len(found) <= 9  # each takes a quarter of a minute
