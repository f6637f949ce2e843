"""What a forked child makes anew: locks, pools of threads, readers, OpenMP's threads; nets compute there."""

import gc
import os
import signal
import subprocess
import sys
import threading
import weakref

import pytest

from scaffe import forking


def in_thread(function):
    """Run a function in a thread that ends before this returns, but for locks that it takes."""
    thread = threading.Thread(target=function)
    thread.start()
    thread.join()


def test_a_lock_of_another_thread_is_free_in_the_child(forked):
    lock = forking.Lock()
    in_thread(lock.__enter__)
    assert forked(lambda: lock.__enter__() is None)


def test_what_is_held_is_whole_in_the_child_and_free_in_both(forked):
    changed, pair, ended = threading.Condition(), [0, 0], threading.Event()
    forking.hold(changed)

    def work():
        while not ended.is_set():
            with changed:
                pair[0] += 1
                os.sched_yield()
                pair[1] += 1

    thread = threading.Thread(target=work)
    thread.start()
    try:
        for _ in range(20):
            first, second = forked(lambda: (changed.acquire(), list(pair))[1])
            assert first == second
    finally:
        ended.set()
        thread.join()
    assert changed.acquire(blocking=False)


def test_a_method_does_not_keep_its_object(forked):
    class Pool:
        def renew(self):
            calls.append("renewed")

    calls, pool = [], Pool()
    forking.in_child(pool.renew)
    assert forked(lambda: calls) == ["renewed"]
    assert calls == []
    gone = weakref.ref(pool)
    del pool
    gc.collect()
    assert gone() is None
    assert forked(lambda: calls) == []


LIVES_AGAIN = """
import sys
from scaffe import forking

class Pool:
    def renew(self):
        pass

class Again:
    def __del__(self):
        kept.append(self)

kept, pool, again = [], Pool(), Again()
forking.in_child(pool.renew)
again.self, again.forking, again.pool, pool.again = again, forking, pool, again
sys.modules["again"] = again
"""
"""A program that ends with a method to be renewed in what is freed last, an object of which lives again."""


def test_a_process_ends_without_a_word():
    done = subprocess.run([sys.executable, "-c", LIVES_AGAIN], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


def test_children_count_how_far_they_are_from_the_first(forked):
    assert forking.generation() == 0
    assert forked(lambda: (forking.generation(), forked(forking.generation))) == (1, 2)


@pytest.fixture
def handled():
    """Nothing handles SIGTERM and SIGUSR2 at first; what did is put back afterwards."""
    numbers = (signal.SIGTERM, signal.SIGUSR2)
    before = [signal.signal(number, signal.SIG_DFL) for number in numbers]
    for number in numbers:
        forking._handlers.pop(number, None)
    yield
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)
        forking._handlers.pop(number, None)


def test_a_child_has_the_handler_that_was_there_before_ours(handled, forked):
    def users(*_):
        """Never called."""

    signal.signal(signal.SIGTERM, users)
    first = forking.set_handler(signal.SIGTERM, lambda *_: None)
    second = forking.set_handler(signal.SIGTERM, signal.SIG_IGN)
    assert first is users and second is not users
    assert forked(lambda: signal.getsignal(signal.SIGTERM) is users)
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
    forking.set_handler(signal.SIGTERM, first)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # the user's next, over ours
    assert forked(lambda: signal.getsignal(signal.SIGTERM) is signal.SIG_DFL)
    forking.set_handler(signal.SIGTERM, users)
    assert forked(lambda: signal.getsignal(signal.SIGTERM) is signal.SIG_DFL)


def test_a_signal_ends_a_child_from_its_first_moment_on(handled):
    caught = []
    forking.set_handler(signal.SIGTERM, lambda *_: caught.append(os.getpid()))
    for _ in range(100):
        child = os.fork()
        if child == 0:
            signal.alarm(60)
            signal.pause()
            os._exit(1)
        os.kill(child, signal.SIGTERM)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGTERM
    os.kill(os.getpid(), signal.SIGTERM)
    assert caught == [os.getpid()]  # the parent's is as it was, and nothing is blocked


SCRIPT = """
import multiprocessing, os, signal, sys, tempfile
from pathlib import Path
import numpy as np
import scaffe as caffe

folder = Path(tempfile.mkdtemp())
(folder / "net.prototxt").write_text('''name: "n" force_backward: true
layer { name: "in" type: "Input" top: "data" input_param { shape { dim: 8 dim: 3 dim: 40 dim: 40 } } }
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv"
        convolution_param { num_output: 16 kernel_size: 3 weight_filler { type: "xavier" } } }
layer { name: "relu" type: "ReLU" bottom: "conv" top: "conv" }
layer { name: "norm" type: "LRN" bottom: "conv" top: "norm" }
layer { name: "ip" type: "InnerProduct" bottom: "norm" top: "ip"
        inner_product_param { num_output: 7 weight_filler { type: "xavier" } } }
layer { name: "drop" type: "Dropout" bottom: "ip" top: "drop" }
''')
model = str(folder / "net.prototxt")

def make(phase):
    caffe.set_random_seed(3)
    net = caffe.Net(model, phase)
    net.blobs["data"].data[...] = np.random.RandomState(0).randn(8, 3, 40, 40)
    net.blobs["drop"].diff[...] = 1
    return net

def passes(net):
    caffe.set_random_seed(4)
    return net.forward()["drop"].copy(), net.backward()["data"].copy()

nets = [make(caffe.TEST), make(caffe.TRAIN)]
before = [passes(net) for net in nets]

def child(number):
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(60)
    same = [all(map(np.array_equal, passes(net), old)) for net, old in zip(nets, before)]
    new = [all(map(np.array_equal, passes(make(phase)), old)) for phase, old in zip((caffe.TEST, caffe.TRAIN), before)]
    return all(same + new) and (number > 0 or grandchild())

def grandchild():
    pid = os.fork()
    if pid == 0:
        os._exit(0 if child(1) else 1)
    return os.waitpid(pid, 0)[1] == 0

with multiprocessing.get_context("fork").Pool(2) as pool:
    print(pool.map_async(child, [0, 1, 2]).get(200))
print(all(all(map(np.array_equal, passes(net), old)) for net, old in zip(nets, before)))
"""


@pytest.mark.parametrize("variables", [{}, *(pytest.param(one, marks=pytest.mark.thorough) for one in (
    {"OMP_NUM_THREADS": "1"}, {"SCAFFE_ONEDNN": ""}))])
def test_children_compute_on_inherited_and_on_new_nets(variables):
    """Forward and backward, the same bits as in the parent, which goes on computing; also in a child's child."""
    done = subprocess.run([sys.executable, "-c", SCRIPT], env={**os.environ, **variables}, timeout=240,
                          capture_output=True, text=True, check=False)
    assert done.stdout.split("\n")[:2] == ["[True, True, True]", "True"], done.stderr


def test_a_team_of_pythons_threads_works_in_a_child(forked):
    from scaffe.layers.kernels.cpu.threads.parts import PythonThreads, WorkerThreads

    def names():
        found = []
        for threads in made:
            threads.run(lambda: found.append(threading.get_native_id()))
        return len(found)

    made = [PythonThreads(3), WorkerThreads(2)]
    assert names() == 5
    assert forked(names) == 5
    assert names() == 5
