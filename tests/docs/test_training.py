"""The pages' training commands run to their end, each distinct one once, and reach the accuracy that they should."""

import functools
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
LEFT_OUT = {
    " -gpu ": "wants a GPU: make test-gpu",
    " -memory_of gpu": "is for a GPU: tests/scaffe/device",
    "-on_rank_loss": "24 s and more; tests/scaffe/training/fault_tolerance loses ranks in it",
    "-servers 1": "25 s and more; tests/scaffe/training/served and sandblaster compare what is learnt",
    "-partitions": "35 s; tests/scaffe/training/partition compares with one rank",
    "-np 4 python -m scaffe train -solver solver.prototxt -resume": "16 s; it is run on one rank here",
    "-weights pretrained": "16 s; tests/scaffe/training/test_runs.py loads weights",
    "SCAFFE_TABLE=": "wants a table, which tune measures for minutes; tests/collectives/tuning reads one",
    "--hostfile": "wants several machines; test_runs.py starts it on two ranks",
    "jobs/": "for signals, and SLURM: tests/scaffe/training/test_signals.py, tests/slurm",
    "upgraded.prototxt": "wants a step before it; test_runs.py does both",
}
"""What commands have in them that are not run to their end here, and why."""
EXAMPLES = re.compile(r"( -h| S| NET| \.\.\.)$")
"""How commands end that stand for many."""
AFTERWARDS = {"-resume", "-weights"}
"""Flags of commands that want a file of an earlier run."""
OURS = {"solver.prototxt": LENET, "net.prototxt": "examples/fashion_mnist/lenet_train_test.prototxt",
        "pretrained.caffemodel": "examples/fashion_mnist/lenet_iter_600.caffemodel",
        "run_iter_500.caffemodel": "examples/fashion_mnist/lenet_iter_300.caffemodel", "/local/disk": "."}
"""The example's files for a reader's own."""
BESIDE = {"-timeline", "-tensorboard"}
"""Flags that change nothing in what is learnt."""
REACHED = {"lenet_solver": 0.84, "lenet_adagrad_solver": 0.78, "lbfgs_solver": 0.72}
"""Of a test net's accuracy at the end: a little below the worst of some runs."""
EARLY = 0.8
"""The same after 300 iterations."""
ENDS = {"train": "Optimization Done", "test": "accuracy =", "time": "*** Benchmark ends ***", "summary": "training:"}
"""What is among the last that a command says."""
LOOSE = 0.74
"""The same of workers that are not in step, on a machine that does other things too."""


def page_commands():
    """Distinct commands of the pages that run a net: the number of ranks, the words behind ``scaffe``, a whole line."""
    found = {}
    for page in PAGES:
        for line in commands(page):
            words, ranks = scaffe_words(line.text), re.search(r"-np (\d+)\b", line.text)
            if words and words[0] in ("train", "test", "time", "summary") and len(words) > 1:
                is_example = EXAMPLES.search(line.text.split(" #")[0].rstrip())
                if not is_example and not (words[2:3] and words[2].startswith("examples/shapes")):  # make detect
                    key = int(ranks[1]) if ranks else 1, tuple(plain(words)), left_out(line.text)
                    found.setdefault(key, line.text)
    return [(n_ranks, words, text) for (n_ranks, words, _), text in found.items()]


@functools.cache
def run_here():
    """Of those, the ones that are run here, with those of ``make train`` first."""
    found = [(2, ("train", "-solver", LENET)), (3, ("train", "-solver", LENET))]  # make train, and with NP=3
    found += [(n_ranks, words) for n_ranks, words, text in page_commands() if not left_out(text)]
    return list(dict.fromkeys(found))


def left_out(text):
    """Why a command is not run here; "" if it is."""
    return next((why for part, why in LEFT_OUT.items() if part in f"{text} "), "")


def training_commands():
    """Those that train from the start."""
    return [(n_ranks, words) for n_ranks, words in run_here() if words[0] == "train" and AFTERWARDS.isdisjoint(words)]


def other_commands():
    """Those that want a file of an earlier run, and those that do not train."""
    trains = training_commands()
    return [command for command in run_here() if command not in trains]


def plain(words):
    """A command's words, with the example's files for a reader's own, and without what changes nothing."""
    words = [OURS.get(word, word) for word in words]
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


@pytest.fixture(scope="module")
def trained(folder):
    """The folder once the example has been trained there, with its snapshots of iterations 300 and 600."""
    if not (folder / OURS["pretrained.caffemodel"]).exists():
        run(folder, "train", "-solver", LENET)
    return folder


def run(folder, *words, n_ranks=1):
    """A command's log, and what it wrote."""
    launcher = [MPIRUN, "-np", str(n_ranks)] if n_ranks > 1 else []
    done = subprocess.run([*launcher, sys.executable, "-m", "scaffe", *words], cwd=folder, capture_output=True,
                          text=True, timeout=600, env=os.environ | {"PYTHONPATH": str(ROOT)})
    assert done.returncode == 0, done.stderr[-2000:]
    assert "Exception ignored" not in done.stderr  # Python's, while it ends
    return done.stderr + done.stdout


def accuracy(log):
    """The last that a log has, of training or of ``test``."""
    return float(re.findall(r"\baccuracy = (\S+)", log)[-1])


def ids(found):
    """What the tests are called."""
    return [f"{n_ranks}: {' '.join(words)}" for n_ranks, words in found]


@pytest.mark.thorough
@pytest.mark.mpi_job
@pytest.mark.parametrize(("n_ranks", "words"), training_commands(), ids=ids(training_commands()))
def test_a_pages_training_ends_with_the_accuracy(folder, n_ranks, words):
    log, is_in_step = run(folder, *words, n_ranks=n_ranks), "-strategy" not in words or "sc-obr" in words
    assert "Optimization Done" in log
    assert "nan" not in log
    assert accuracy(log) > (REACHED[Path(words[2]).stem] if is_in_step else LOOSE)


@pytest.mark.thorough
@pytest.mark.mpi_job
@pytest.mark.parametrize(("n_ranks", "words"), other_commands(), ids=ids(other_commands()))
def test_a_pages_other_command_ends(trained, n_ranks, words):
    if "-resume" in words:
        for left in (trained / "examples/fashion_mnist").glob("lenet_iter_600.*"):
            left.unlink()
    log = run(trained, *words, n_ranks=n_ranks)
    assert ENDS[words[0]] in log
    if words[0] == "train":
        assert accuracy(log) > REACHED["lenet_solver"]
        assert ("-resume" in words) == ("Iteration 300, Testing" in log and "Iteration 200," not in log)
    if words[0] == "test":
        assert accuracy(log) > EARLY


def test_every_command_of_the_pages_is_run_or_left_out_for_a_reason():
    texts = [text for _, _, text in page_commands()]
    assert [part for part in LEFT_OUT if not any(part in f"{text} " for text in texts)] == []
    found = training_commands()
    assert [n_ranks for n_ranks, words in found if words == ("train", "-solver", LENET)] == [2, 3, 1, 4]
    assert {"ssp", "downpour", "sc-obr"} <= {words[4] for _, words in found if "-strategy" in words}
    assert {"train", "test", "time", "summary"} == {words[0] for _, words in other_commands()}
    assert len(found) <= 10  # each takes a quarter of a minute
    assert len(other_commands()) <= 10  # each takes 2 to 10 s
