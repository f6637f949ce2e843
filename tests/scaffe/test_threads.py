"""How many threads a rank computes with; and a thread that the system has no room for is an error of one line."""

import itertools
import json
import os
import subprocess
import sys
import threading

import pytest

import scaffe as caffe
from scaffe import control_groups, threads
from scaffe.errors import UserError
from scaffe.layers.kernels.cpu.onednn.library import library
from scaffe.layers.kernels.cpu.threads.parts import n_threads
from scaffe.threads import Thread
from scaffe.training.ranks import threads_per_rank


def test_thread_for_which_there_is_no_room(monkeypatch):
    def refuse(*_):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading, "_start_new_thread", refuse)
    with pytest.raises(UserError, match=r"^thread 'reader-3' cannot start: expected room .* \(ulimit -v, ulimit -u\)$"):
        Thread(print, "reader-3").start()


def test_thread_that_is_started_twice_is_a_defect():
    thread = Thread(lambda: None, "reader-3")
    thread.start()
    with pytest.raises(RuntimeError, match="once") as caught:
        thread.start()
    assert not isinstance(caught.value, UserError)


class Node:
    """A communicator of two ranks on this node."""

    node_n_ranks = 2


@pytest.fixture
def machine(monkeypatch):
    """A function that makes this a node of eight cores, of which a control group may have restrictions."""
    for name in ("SCAFFE_THREADS", threads.OPENMP, threads.SLURM):
        monkeypatch.delenv(name, raising=False)
    threads._said.clear()

    def make(bound=8, group=8, quota=None):
        monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(bound)))
        monkeypatch.setattr(os, "cpu_count", lambda: 8)
        monkeypatch.setattr(control_groups, "n_cores", lambda: group)
        monkeypatch.setattr(control_groups, "cpu_quota", lambda: quota)

    make()
    return make


OURS, OPENMP, SLURM = "SCAFFE_THREADS", threads.OPENMP, threads.SLURM
WRONG = ("0", "many", "-1", "99999999", "4097", "1.5", "2,", "2,x", "0,3", "0x2", "1 2", "\u0663")
"""Of OMP_NUM_THREADS; what GNU's OpenMP refuses, and numbers that no rank may have."""


@pytest.mark.parametrize(("wanted", "variables", "bound", "expected"), [
    (3, {OURS: "5", OPENMP: "7"}, 8, 3), (0, {OURS: "5", OPENMP: "7", SLURM: "1"}, 2, 5),
    (0, {OPENMP: "7"}, 2, 7), (0, {OPENMP: " 6 , 2 "}, 8, 6), (0, {OPENMP: "+6"}, 8, 6), (0, {OPENMP: "100"}, 8, 100),
    (0, {OURS: ""}, 2, 2), (0, {OPENMP: "1"}, 8, 1), (0, {OPENMP: "7", SLURM: "1"}, 8, 7),
    (0, {SLURM: "3"}, 8, 3), (0, {SLURM: "1"}, 2, 1), (0, {OPENMP: "", SLURM: "3"}, 8, 3),
    (0, {OPENMP: "many", SLURM: "3"}, 8, 3), (0, {SLURM: "16"}, 8, 4), (0, {SLURM: "8"}, 2, 2), (0, {}, 2, 2),
    (0, {}, 8, 4), *((0, {OPENMP: nothing}, 8, 4) for nothing in ("", " ", *WRONG)),
    *((0, {SLURM: nothing}, 8, 4) for nothing in ("", "0", "x", "4,2", "-3"))])
def test_who_says_how_many(machine, monkeypatch, wanted, variables, bound, expected):
    """The flag, SCAFFE_THREADS, OMP_NUM_THREADS, SLURM, the cores that a launcher bound the rank to, its share."""
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    machine(bound)
    assert threads_per_rank(Node(), wanted) == expected


@pytest.mark.parametrize(("name", "value", "n_lines"), [
    *((OPENMP, value, 1) for value in WRONG), *((SLURM, value, 1) for value in ("x", "4,2")),
    *((OPENMP, value, 0) for value in ("", " ", "3", "4,2")), (SLURM, "", 0), (SLURM, "2", 0)])
def test_a_wrong_number_is_said_once(machine, monkeypatch, capfd, name, value, n_lines):
    monkeypatch.setenv(name, value)
    for _ in range(2):
        threads.n_threads(2)
    said = capfd.readouterr().err.splitlines()
    assert len(said) == n_lines and all(f"{name}={value}: expected" in line for line in said)


NODES = [(8, 8, None), (8, 8, 3), (8, 6, None), (6, 6, None), (2, 8, None), (2, 8, 4), (2, 8, 1), (1, 1, 5)]


@pytest.mark.parametrize(("bound", "group", "quota"), NODES)
def test_a_rank_has_its_share_of_what_is_allowed(machine, monkeypatch, bound, group, quota):
    """Core by core: dealt out in turn, where nobody else has dealt them."""
    for n_ranks, granted in itertools.product((1, 2, 3, 8, 9), ("", "1", "3", "64")):
        monkeypatch.setenv(SLURM, granted)
        machine(bound, group, quota)
        dealt = [[core for core in range(bound) if core % n_ranks == rank] for rank in range(n_ranks)]
        least = min(len(cores) for cores in ([list(range(bound))] if bound < group else dealt))
        times = [list(range(quota or 99))[rank::n_ranks] for rank in range(n_ranks)]
        expected = max(min(least, min(map(len, times)), int(granted or 99)), 1)
        assert threads.n_threads(n_ranks) == threads.most_readers(n_ranks, on_gpu=False) == expected
        assert threads.most_readers(n_ranks, on_gpu=True) == max(expected - 1, 1)


def test_readers_are_no_compute_threads(machine, monkeypatch):
    monkeypatch.setenv(OPENMP, "1")
    assert threads.most_readers(1, on_gpu=False) == 8


PASSES = """
import json, sys, time
import numpy as np
import scaffe as caffe
from scaffe.layers.kernels.cpu.threads.parts import n_threads
if len(sys.argv) > 2:
    caffe.set_threads(int(sys.argv[2]))
net = caffe.Net(sys.argv[1], caffe.TEST)
net.blobs["x"].data[...] = np.random.default_rng(0).random(net.blobs["x"].shape)
net.forward()
wall, own = time.perf_counter(), time.process_time()
while time.process_time() - own < 0.4:
    net.blobs["x"].data[...] += 1e-3
    net.forward()
from threadpoolctl import threadpool_info
print(json.dumps([n_threads(), (time.process_time() - own) / (time.perf_counter() - wall),
                  sorted({pool["num_threads"] for pool in threadpool_info()})]))
"""
NET = """name: "n" layer { name: "x" type: "Input" top: "x" input_param { shape { dim: 8 dim: 16 dim: 60 dim: 60 } } }
layer { name: "c" type: "Convolution" bottom: "x" top: "c" convolution_param { num_output: 32 kernel_size: 5 pad: 2 } }
layer { name: "r" type: "ReLU" bottom: "c" top: "c" } layer { name: "p" type: "Pooling" bottom: "c" top: "p"
  pooling_param { kernel_size: 3 stride: 2 } }
layer { name: "ip" type: "InnerProduct" bottom: "p" top: "ip" inner_product_param { num_output: 200 } }"""


@pytest.mark.parametrize(("variables", "words", "n"), [
    ({"OMP_NUM_THREADS": "1"}, (), 1), ({"OMP_NUM_THREADS": "", "SLURM_CPUS_PER_TASK": "1"}, (), 1),
    ({"OMP_NUM_THREADS": "3"}, ("1",), 1),
    pytest.param({"OMP_NUM_THREADS": "1"}, ("2",), 2, marks=pytest.mark.thorough)])
def test_a_net_in_python_computes_on_as_many(tmp_path, variables, words, n):
    """oneDNN, the BLAS and our own kernels: on one thread they take a second of the processor in a second at most."""
    (tmp_path / "net.prototxt").write_text(NET)
    done = subprocess.run([sys.executable, "-c", PASSES, tmp_path / "net.prototxt", *words], env=os.environ | variables,
                          capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    taken, load, pools = json.loads(done.stdout)
    assert taken == n and load < n + 0.1 and pools == [n]


OTHER_THREAD = """
import ctypes, sys, threading
import scaffe as caffe
from scaffe.layers.kernels.cpu.onednn.library import OPENMP
if len(sys.argv) > 2:
    caffe.set_threads(int(sys.argv[2]))
caffe.Net(sys.argv[1], caffe.TEST)
thread = threading.Thread(target=lambda: print(ctypes.CDLL(OPENMP).omp_get_max_threads()))
thread.start()
thread.join()
"""


@pytest.mark.parametrize(("variables", "words", "n", "line"), [
    ({OPENMP: ""}, ("3",), 3, ""), ({OPENMP: "", OURS: "3"}, (), 3, ""), ({OPENMP: "many", OURS: "3"}, (), 3, OPENMP)])
def test_a_users_own_thread_computes_on_as_many(tmp_path, variables, words, n, line):
    """By oneDNN, whose threads OpenMP starts for each thread that calls it. OpenMP itself says no second line."""
    if library() is None:
        pytest.skip("oneDNN is not there")
    (tmp_path / "net.prototxt").write_text(NET)
    done = subprocess.run([sys.executable, "-c", OTHER_THREAD, tmp_path / "net.prototxt", *words], text=True,
                          env=os.environ | variables, capture_output=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, f"{n}\n"), done.stderr
    assert [line in said for said in done.stderr.splitlines()] == [True] * bool(line)


@pytest.mark.parametrize("wrong", [-1, 1.5, "2", True, None, 10**22])
def test_numbers_of_threads_that_cannot_be(wrong):
    with pytest.raises(UserError, match="set_threads takes a whole number from 0 to 4096; got"):
        caffe.set_threads(wrong)


def test_threads_are_set_for_all_nets_and_left_to_the_environment_again(monkeypatch):
    monkeypatch.setenv(threads.OPENMP, "3")
    try:
        caffe.set_threads(2)
        assert n_threads() == 2
        caffe.set_threads(0)
        assert n_threads() == 3
    finally:
        caffe.set_threads(1)
        caffe.pycaffe.process._state.pop("n_threads")
