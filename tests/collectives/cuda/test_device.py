"""Device buffers: the tests in device/ under a launcher, one job a rank count; and what needs no second rank."""

import ctypes
import json
import os
import re
import subprocess
import sys
import time
from itertools import product

import numpy as np
import pytest

from scaffe.__main__ import main as scaffe
from scaffe.collectives import CommError, Communicator
from scaffe.collectives.cuda import aware, device, nccl
from scaffe.collectives.cuda.lane import Lane
from scaffe.collectives.cuda.lineup import Lineup, wait_until
from scaffe.collectives.cuda.messages import Lineups
from scaffe.collectives.cuda.node import gathered, share, workers
from scaffe.collectives.cuda.span import Span
from scaffe.collectives.cuda.staging import Landing, PassedOn, Slot, StagedReceive, StagedSend
from scaffe.collectives.cuda.transport import StagedTransport
from scaffe.collectives.planning import planners
from scaffe.collectives.planning.call import Call
from scaffe.collectives.planning.planners import COLLECTIVES
from scaffe.collectives.runtime.executor import Execution
from scaffe.collectives.shared.schedule import segments
from scaffe.collectives.topology import Topology
from scaffe.collectives.tuning.device_choice import choose
from scaffe.collectives.tuning.table import Choice, Entry, Key, Table
from tests import pretend
from tests.collectives.test_mpi import HERE, job


@pytest.fixture
def cp(monkeypatch):
    return pretend.install(monkeypatch)


@pytest.mark.parametrize(("n_ranks", "ranks_per_node"), [(1, 0), (2, 0), (3, 0), (4, 0), (5, 2)])
@pytest.mark.mpi_job
@pretend.needs_compiler
def test_device_buffers_on(n_ranks, ranks_per_node):
    result = job(n_ranks, ["-m", "pytest", "--with-mpi", "-x", "-q", "--color=no", str(HERE / "device")],
                 SCAFFE_RANKS_PER_NODE=str(ranks_per_node))
    assert result.returncode == 0, (result.stdout + result.stderr)[-6000:]


# -- without a GPU


def test_without_a_gpu_there_is_one_line(monkeypatch):
    pretend.install(monkeypatch, n_devices=0)
    assert device.missing() == "device buffers need a GPU, and CUDA finds none: cudaErrorNoDevice: no CUDA-capable " \
                               "device is detected"
    with pytest.raises(CommError, match="CUDA finds none"):
        Communicator.single().alloc(4, place="device")


def test_without_cupy_there_is_one_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)
    assert device.missing().startswith("device buffers need CuPy, which cannot be imported")


def test_the_communicator_loads_no_cupy():
    code = ("import sys; from scaffe.collectives import Communicator; from scaffe.collectives.runtime import places; "
            "sys.exit('cupy' in sys.modules)")
    assert subprocess.run([sys.executable, "-c", code], cwd=HERE.parents[1], check=False).returncode == 0


@pytest.mark.mpi_job
def test_alloc_without_a_gpu_fails_alike_on_all_ranks():
    body = """
import sys
sys.modules["cupy"] = None
from scaffe.collectives import CommError, Communicator
c = Communicator.world(deadline=20)
try:
    c.alloc(4, place="device")
except CommError as error:
    texts = c.allgather_objects((str(error), error.everywhere))
    sys.exit(0 if set(texts) == {(texts[0][0], True)} and "need CuPy" in texts[0][0] else 3)
"""
    assert job(2, ["-c", body]).returncode == 0


# -- one rank by itself


@pretend.needs_compiler
def test_collectives_of_one_rank_change_nothing(cp):
    alone = Communicator.single()
    array = alone.alloc(7, np.float64, "device")
    array += 3
    alone.reduce(array), alone.allgather(array), alone.ireduce(array, after=cp.cuda.Stream().record()).wait(1)
    out = cp.zeros(7)
    alone.allreduce(array, out=out)
    assert (array.get() == 3).all()
    assert (out.get() == 3).all()
    assert alone.describe_device() == "one rank by itself"


def test_handles_of_other_libraries_streams_and_events(cp):
    class Torch:
        cuda_stream = 17

    class Value:
        value = 18

    class Numba:
        handle = Value()

    class NumbasDefault:
        handle = ctypes.c_void_p(0)

    class Protocol:
        def __cuda_stream__(self):
            return 0, 20

    stream = cp.cuda.Stream()
    things = stream, Torch(), Numba(), 19, NumbasDefault(), Protocol()
    assert [device.handle(thing) for thing in things] == [stream.ptr, 17, 18, 19, 0, 20]


def test_a_failure_on_the_device_is_an_error_and_no_endless_wait(cp, monkeypatch):
    point = device.Point.now()
    monkeypatch.setattr(point._runtime, "eventQuery", lambda event: 719)
    with pytest.raises(CommError, match="CUDA error 719"):
        wait_until(point.is_reached, patient=True)


def test_steps_start_in_their_order():
    started, allowed, line = [], set(), Lineup()
    for name in "abc":
        line.put(lambda name=name: name in allowed, lambda name=name: started.append(name))
    allowed |= {"b", "c"}
    line.progress()
    assert started == []
    allowed.add("a")
    line.progress()
    assert started == ["a", "b", "c"]


# -- what is decided by plain values


class Library:
    """Stands for libmpi."""

    def __init__(self, open_mpi=None, mpich=None):
        if open_mpi is not None:
            self.MPIX_Query_cuda_support = lambda: open_mpi
        if mpich is not None:
            def query(kind, answer):
                answer._obj.value = mpich
                return 0
            self.MPIX_GPU_query_support = query


@pytest.mark.parametrize(("library", "kinds", "environment", "answer", "word"), [
    (Library(), None, {}, False, "cannot be asked"),
    (Library(open_mpi=1), None, {}, True, "MPIX_Query_cuda_support says yes"),
    (Library(open_mpi=0), None, {}, False, "MPIX_Query_cuda_support says no"),
    (Library(mpich=1), None, {}, True, "MPIX_GPU_query_support says yes"),
    (Library(), "mpi,system,cuda", {}, True, "mpi_memory_alloc_kinds"),
    (Library(open_mpi=1), None, {"UCX_TLS": "rc,sm"}, False, "UCX_TLS says no"),
    (Library(open_mpi=1), None, {"UCX_TLS": "rc,cuda_copy,cuda_ipc"}, True, "UCX_TLS says yes"),
    (Library(open_mpi=1), None, {"UCX_TLS": "^cuda_copy,tcp"}, False, "UCX_TLS says no"),
    (Library(open_mpi=1), None, {"UCX_TLS": "^cuda_ipc"}, True, "UCX_TLS says yes"),
    (Library(mpich=1), None, {"MPIR_CVAR_ENABLE_GPU": "0"}, False, "MPIR_CVAR_ENABLE_GPU says no"),
    (Library(mpich=1), None, {"MPICH_GPU_SUPPORT_ENABLED": "1"}, True, "MPICH_GPU_SUPPORT_ENABLED says yes"),
    (Library(open_mpi=0), None, {"SCAFFE_CUDA_AWARE": "1"}, True, "SCAFFE_CUDA_AWARE=1"),
    (Library(open_mpi=1), None, {"SCAFFE_CUDA_AWARE": "0"}, False, "SCAFFE_CUDA_AWARE=0"),
])
def test_the_mpi_is_asked(monkeypatch, library, kinds, environment, answer, word):
    monkeypatch.setattr(aware, "_loaded", lambda: library)
    monkeypatch.setattr(aware, "_info", lambda: None if kinds is None else "cuda" in kinds)
    assert aware.is_cuda_aware(environment) == answer
    assert word in aware.reason(environment)


@pytest.mark.parametrize(("everyone", "fault"), [
    ([("a", "1", ""), ("a", "2", ""), ("b", "1", "")], ""),
    ([("a", "1", ""), ("b", "1", ""), ("a", "1", "")], "refuses two ranks on one GPU; ranks 0 and 2 share 1 of a"),
    ([("a", "1", ""), ("a", "2", "no libnccl")], "rank 1: no libnccl"),
])
def test_who_cannot_use_nccl(everyone, fault):
    found = nccl._fault(everyone)
    assert fault in found
    assert bool(found) == bool(fault)


@pytest.mark.parametrize("collective", COLLECTIVES)
@pytest.mark.parametrize("cards", ["ab", "abc", "abcdefgh", "aa", "aaaaa", "abab", "aabbb"])
def test_ranks_shares_are_the_whole_and_do_not_overlap(collective, cards):
    n_ranks = len(cards)
    for n_elems, root in product((0, 1, 63, 64, 65, 1009), (0, 1)):
        working = workers(cards, root)
        assert sorted(cards[rank] for rank in working) == sorted(set(cards))
        assert root in working
        for interval in ((0, n_elems), (n_elems // 3, n_elems)):
            shares = [list(share(collective, rank, cards, n_elems, root, interval)) for rank in range(n_ranks)]
            assert all(rank in working for rank, parts in enumerate(shares) if parts)
            found = [(part.start, part.end, part.sources, part.targets) for parts in shares for part in parts]
            count = np.zeros(n_elems, int)
            for start, end, sources, targets in found:
                count[start:end] += 1
                parts = [p for p in segments(collective, n_ranks, n_elems, root) if p.start <= start < p.end]
                assert [(p.sources, p.targets) for p in parts] == [(sources, targets)]
            assert (count[interval[0] : interval[1]] == 1).all()
            assert count.sum() == interval[1] - interval[0]


def test_targets_as_the_kernel_takes_them():
    part = segments("bcast", 5, 10, 2)[0]
    assert gathered(part) == (2, 1, 0, 5, 2)
    assert gathered(segments("allreduce", 3, 10)[0]) == (0, 3, 0, 3, -1)
    assert gathered(segments("reduce_scatter", 4, 10)[3]) == (0, 4, 3, 1, -1)


NODE, NODES, FLAT = Topology([0] * 4), Topology.from_ranks_per_node(8, 4), Topology.flat(4)


@pytest.mark.parametrize(("collective", "n_bytes", "topology", "has_ipc", "name"), [
    ("reduce", 4, NODE, True, "M"), ("allgather", 1 << 30, NODE, True, "M"), ("reduce", 4, NODE, False, "B"),
    ("reduce", 1 << 20, NODE, False, "C"), ("allreduce", 1 << 20, NODES, True, "MR"),
    ("allreduce", 1 << 20, NODES, False, "R"), ("reduce_scatter", 1 << 20, NODES, True, "R"),
    ("bcast", 8, FLAT, True, "B")])
def test_defaults_on_a_device(collective, n_bytes, topology, has_ipc, name):
    assert choose(collective, n_bytes, topology, Table([]), has_ipc).algorithm == name


def test_the_table_is_keyed_by_place_and_never_gives_the_librarys_own():
    def table(name):
        return Table([Entry(Key.of("reduce", place, NODE), (Choice(None, algorithm, 77),))
                      for place, algorithm in (("host", "H"), ("cuda", name))])
    assert choose("reduce", 9, NODE, table("CB-2"), True) == Choice(None, "CB-2", 77)
    assert choose("reduce", 9, NODE, table("mpi"), True).algorithm == "M"
    assert choose("reduce", 9, NODE, table("M"), False).algorithm == "B"


# -- the commands, with the pretend module where CuPy would be

AS_CUPY = str(HERE.parent / "pretend" / "path")


def command(n_ranks, *arguments, **environment):
    return job(n_ranks, arguments, PYTHONPATH=f"{HERE.parents[1]}:{AS_CUPY}", **environment)


@pytest.mark.mpi_job
@pretend.needs_compiler
def test_bench_prints_a_row_for_each_length_of_device_buffers(tmp_path):
    rows = tmp_path / "rows.json"
    result = command(2, "-m", "scaffe", "bench", "reduce", "-d", "cuda", "-m", "4:4096", "-s", "32", "-a",
                     "mpi,M,C@256,auto", "-i", "2", "-x", "1", "-c", "--json", str(rows))
    assert result.returncode == 0, result.stderr
    lines = [line.split() for line in result.stdout.splitlines() if line[:1].isdigit()]
    assert [(int(line[0]), len(line), line[-1]) for line in lines] == [(n, 6, "Pass") for n in (4, 128, 4096)]
    found = json.loads(rows.read_text())
    assert ("by CUDA IPC (2 ranks on 1 GPU; streams follow one another's events); messages through pinned host memory"
            in found["transport"])
    assert len(found["rows"]) == 12


PRELUDE = """
import os, signal, sys, time
from scaffe.collectives import Communicator
c = Communicator.world()
c.install_excepthook()
x = c.alloc(1000, place="device")
c.allreduce(x), c.iallreduce(x).wait()
assert "by CUDA IPC" in c.describe_device()
for _, group, _ in c._ranks._engines:
    group._deadline = 2  # now that all is set up, however slow the machine
"""


@pytest.mark.parametrize(("body", "line"), [
    ("if c.rank == 1: time.sleep(60)\nc.iallreduce(x).wait()", r"rank 0:? .*waited \d+ s for rank 1"),
    ("if c.rank == 1: os.kill(os.getpid(), signal.SIGKILL)\nc.allreduce(x)\ntime.sleep(60)", ""),
])
@pytest.mark.mpi_job
@pretend.needs_compiler
def test_a_rank_that_does_not_come_ends_the_job(body, line):
    started = time.monotonic()
    result = command(2, "-c", PRELUDE + body)
    assert result.returncode != 0
    assert time.monotonic() - started < 50
    assert "Traceback" not in result.stderr
    assert not line or len([text for text in result.stderr.splitlines() if re.match(line, text)]) == 1


@pytest.mark.parametrize("arguments", [["bench", "bcast", "-d", "cuda"], ["tune", "--places", "cuda"]])
def test_commands_without_a_gpu_say_so_in_one_line(monkeypatch, capsys, arguments):
    monkeypatch.setitem(sys.modules, "cupy", None)
    assert scaffe(arguments) == 1
    assert capsys.readouterr().err.count("\n") == 1


@pretend.needs_compiler
def test_tune_measures_the_place_cuda(cp, tmp_path, capsys):
    table = tmp_path / "table.json"
    assert scaffe(["tune", "-o", str(table), "--places", "cuda", "-c", "reduce", "-m", "4:64", "-i", "1", "-x", "0",
                   "-a", "mpi,C"]) == 0
    found = Table.read(table).entries
    assert [entry.key.place for entry in found] == ["cuda"]
    chosen = {(choice.algorithm, choice.chunk_bytes) for choice in found[0].choices}
    assert chosen == {("C", 262144)}  # of the chunks for this place the least


@pytest.mark.mpi_job
@pretend.needs_compiler
def test_the_gpu_benchmark_runs(tmp_path):
    file = tmp_path / "figures.json"
    done = subprocess.run(
        [sys.executable, "benchmarks/gpu_collectives.py", "--json", str(file), "--ranks", "2", "-m", "4096:8192",
         "--copy-bytes", "65536", "--ways", "kernel,ipc,aware,nccl"],
        cwd=HERE.parents[1], capture_output=True, text=True, timeout=150, check=False,
        env=os.environ | {"PYTHONPATH": f"{HERE.parents[1]}:{AS_CUPY}"})
    assert done.returncode == 0, done.stderr
    figures = json.loads(file.read_text())
    assert [(row["way"], row["bytes"]) for row in figures["rows"]] == [
        ("kernel", 4096), ("kernel", 8192), ("ipc", 4096), ("ipc", 8192)]
    assert "by CUDA IPC (2 ranks on 1 GPU" in figures["transport"]["2 ipc"]
    assert "the MPI does not take device memory" in done.stdout
    assert "NCCL cannot be loaded" in figures["missing"]["2 nccl"]


# -- staged messages, without MPI


class Sent:
    """A persistent request that leaves when the test says so."""

    def __init__(self):
        self.n_started, self.has_left = 0, True

    def Start(self):
        self.n_started, self.has_left = self.n_started + 1, False

    def Test(self):
        return self.has_left


@pretend.needs_compiler
def test_the_next_chunk_is_copied_to_the_host_while_the_one_before_leaves(cp, monkeypatch):
    monkeypatch.setattr(pretend.settings, "looks", 0)  # the device comes where it is asked for
    lane, chunk = Lane(), 1024
    lineups, memory = Lineups(lane, patient=False), cp.zeros(3 * chunk, np.uint8)
    parts = [Span(memory.data.ptr + n * chunk, chunk, memory.dtype) for n in range(3)]
    pinned = [device.pinned(chunk) for _ in range(2)]
    slots = [Slot(Span(buffer.ctypes.data, chunk, buffer.dtype, is_pinned=True)) for buffer in pinned]
    requests = [Sent() for _ in parts]
    sends = [StagedSend(lineups, 1, request, part, slots[n % 2])
             for n, (request, part) in enumerate(zip(requests, parts))]
    for _ in range(2):  # the same messages twice in a row
        with pretend.deferring():
            for n in range(3):
                memory[n * chunk : (n + 1) * chunk] = n + 1
            lane.begin(device.Point.now())
            for send in sends:
                send.Start()
            for _ in range(3):
                lineups.progress()
            n_started = requests[0].n_started
            assert [request.n_started for request in requests] == [n_started, n_started, n_started - 1]
            assert [buffer[0] for buffer in pinned] == [1, 2]  # both are on the host, though neither has left
            requests[1].has_left = True
            lineups.progress()
            assert requests[2].n_started < n_started  # it waits for the buffer that the first one has
            requests[0].has_left = True
            for _ in range(2):
                lineups.progress()
            assert pinned[0][0] == 3
            assert requests[2].n_started == n_started
            requests[2].has_left = True
            for send in sends:
                send.Wait()
            lane.leave()


@pretend.needs_compiler
def test_what_passes_through_leaves_before_the_device_has_it_and_its_buffer_waits_for_it(cp, monkeypatch):
    monkeypatch.setattr(pretend.settings, "looks", 0)  # the device comes where it is asked for
    lane, n_bytes = Lane(), 1024
    lineups, memory = Lineups(lane, patient=False), cp.zeros(n_bytes, np.uint8)
    cp.cuda.Device().synchronize()
    pinned = device.pinned(n_bytes)
    landing = Landing(Span(pinned.ctypes.data, n_bytes, pinned.dtype, is_pinned=True))
    came, left, later = Sent(), Sent(), Sent()
    receive, onward, next_receive = (
        StagedReceive(lineups, 0, came, Span(memory.data.ptr, n_bytes, memory.dtype), landing),
        PassedOn(lineups, 2, left, landing),
        StagedReceive(lineups, 0, later, Span(memory.data.ptr, n_bytes, memory.dtype), landing))
    with pretend.deferring():
        lane.begin(None)
        receive.Start()
        assert came.n_started == 1
        monkeypatch.setattr(pretend.settings, "looks", 1 << 30)  # and from now on nowhere
        pinned[:], came.has_left = 7, True
        receive.Wait()
        onward.Start()
        assert left.n_started == 1
        assert memory._host[0] == 0  # not copied there yet
        next_receive.Start()
        monkeypatch.setattr(pretend.settings, "looks", 0)
        lineups.progress()
        assert later.n_started == 0
        left.has_left = True
        lineups.progress()
        assert later.n_started == 1
        assert memory._host[0] == 7
        lane.leave()


@pytest.mark.parametrize(("collective", "name", "n_passed_on", "n_sends"), [
    ("bcast", "C", 18, 18), ("allgather", "R", 6, 12), ("allreduce", "R", 6, 24), ("reduce", "C", 0, 18)])
@pretend.needs_compiler
def test_a_rank_in_the_middle_passes_on_what_it_only_receives(cp, collective, name, n_passed_on, n_sends):
    class Comm:
        def Send_init(self, *arguments):
            return Sent()

        Recv_init = Send_init

    call = Call(Topology([0] * 3), 18 * 96, 96, 0)
    transport = StagedTransport(Comm(), Lane(), patient=False)
    plan = planners.plan(collective, name, 1, call)
    execution = Execution(plan, cp.zeros(call.n_elems, np.float32), "sum", transport)
    kinds = [type(message) for message, _ in execution._messages]
    assert (kinds.count(PassedOn), kinds.count(PassedOn) + kinds.count(StagedSend)) == (n_passed_on, n_sends)
