"""A log that nobody takes is no reason to stop: the run goes on, saves what it has learned and ends with code 0."""

import os
import subprocess

import pytest

from tests.scaffe.runs import command

NET = """layer { name: "d" type: "DummyData" top: "x" dummy_data_param { shape { dim: 2 dim: 3 } } }
layer { name: "ip" type: "InnerProduct" bottom: "x" top: "ip" inner_product_param { num_output: 4 } }
layer { name: "loss" type: "EuclideanLoss" bottom: "ip" bottom: "ip" top: "loss" }
"""
SOLVER = 'net: "net.prototxt" base_lr: 0.1 lr_policy: "fixed" max_iter: 40 display: 1 snapshot_prefix: "run"'


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "net.prototxt").write_text(NET)
    (tmp_path / "solver.prototxt").write_text(SOLVER)
    return tmp_path


TRAIN = command("train", "-solver", "solver.prototxt", "-threads", "1")


def test_a_reader_that_goes_away_in_the_middle(folder):
    """As `2>&1 | head -3` does."""
    with subprocess.Popen(TRAIN, cwd=folder, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL) as run:
        assert [bool(run.stderr.readline()) for _ in range(3)] == [True] * 3
        run.stderr.close()
        assert run.wait(timeout=100) == 0
    assert (folder / "run_iter_40.caffemodel").exists()


@pytest.mark.parametrize("to", [">/dev/full", ">&-", ">&- >&- <&-"])
def test_a_full_disk_and_a_closed_descriptor(folder, to):
    done = subprocess.run(["sh", "-c", f'exec "$@" 2{to}', "sh", *TRAIN], cwd=folder, timeout=100, check=False)
    assert done.returncode == 0
    assert (folder / "run_iter_40.caffemodel").exists()


def test_a_disk_that_fills_in_the_middle(folder):
    """The log's file may grow no further than some lines; the snapshot is smaller than that."""
    limit = "import resource, signal, sys, os; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); " \
            "resource.setrlimit(resource.RLIMIT_FSIZE, (3000, 3000)); os.execv(sys.argv[1], sys.argv[1:])"
    with (folder / "log").open("wb") as log:
        more = {"NUMBA_DISABLE_PERFORMANCE_WARNINGS": "1", "PYTHONDONTWRITEBYTECODE": "1"}  # whose files would be cut
        done = subprocess.run([TRAIN[0], "-c", limit, *TRAIN], cwd=folder, stderr=log, timeout=100, check=False,
                              env=os.environ | more)
    assert done.returncode == 0
    text = (folder / "log").read_text()
    assert len(text) <= 3000
    assert "Iteration 1 " in text
    assert "Optimization Done" not in text
    assert (folder / "run_iter_40.caffemodel").exists()


def test_an_error_keeps_its_code(folder):
    wrong = command("train", "-solver", "none.prototxt")
    done = subprocess.run(["sh", "-c", 'exec "$@" 2>/dev/full', "sh", *wrong], cwd=folder, timeout=100, check=False,
                          env={name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"})
    assert done.returncode == 1


def test_a_command_whose_reader_goes_away_is_quiet(folder):
    listing = command("summary", "net.prototxt", "-phase", "TRAIN")
    done = subprocess.run(["sh", "-c", '"$@" | head -0', "sh", *listing], cwd=folder, timeout=100, check=False,
                          capture_output=True, text=True)
    assert done.stderr == ""
