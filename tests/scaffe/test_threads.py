"""How many threads a rank computes with; and a thread that the system has no room for is an error of one line."""

import json
import os
import subprocess
import sys
import threading

import pytest

import scaffe as caffe
from scaffe import threads
from scaffe.errors import UserError
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


@pytest.mark.parametrize(("wanted", "variables", "bound", "expected"), [
    (3, {"SCAFFE_THREADS": "5", "OMP_NUM_THREADS": "7"}, 8, 3),
    (0, {"SCAFFE_THREADS": "5", "OMP_NUM_THREADS": "7"}, 2, 5),
    (0, {"OMP_NUM_THREADS": "7"}, 2, 7), (0, {"OMP_NUM_THREADS": " 6,2 "}, 8, 6), (0, {"SCAFFE_THREADS": ""}, 2, 2),
    (0, {"OMP_NUM_THREADS": "1"}, 8, 1), (0, {}, 2, 2), (0, {}, 8, 4),
    *((0, {"OMP_NUM_THREADS": nothing}, 8, 4) for nothing in ("", "0", "many", "-1", "99999999"))])
def test_who_says_how_many(monkeypatch, wanted, variables, bound, expected):
    """The flag, SCAFFE_THREADS, OMP_NUM_THREADS, the cores that a launcher bound the rank to, its share of eight."""
    for name in ("SCAFFE_THREADS", threads.OPENMP):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(bound)))
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    assert threads_per_rank(Node(), wanted) == expected


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
    ({"OMP_NUM_THREADS": "1"}, (), 1), ({"OMP_NUM_THREADS": "3"}, ("1",), 1),
    pytest.param({"OMP_NUM_THREADS": "1"}, ("2",), 2, marks=pytest.mark.thorough)])
def test_a_net_in_python_computes_on_as_many(tmp_path, variables, words, n):
    """oneDNN, the BLAS and our own kernels: on one thread they take a second of the processor in a second at most."""
    (tmp_path / "net.prototxt").write_text(NET)
    done = subprocess.run([sys.executable, "-c", PASSES, tmp_path / "net.prototxt", *words], env=os.environ | variables,
                          capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    taken, load, pools = json.loads(done.stdout)
    assert taken == n and load < n + 0.1 and pools == [n]


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
