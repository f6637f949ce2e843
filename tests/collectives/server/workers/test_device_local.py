"""Local tables in device memory against numpy, on the pretend device, and the kernels that reorder rows."""

import numpy as np
import pytest

from scaffe.collectives import CommError, Communicator
from scaffe.collectives.cuda import kernels
from scaffe.collectives.cuda.kernels import RowOrder
from scaffe.collectives.server import ParameterServer
from scaffe.collectives.server.workers.local import LocalTable
from tests import pretend
from tests.layers.cuda import nvrtc

N_ROWS, ROW_ELEMS = 13, 6
KEYS = {"slice": slice(2, 9), "scattered": [9, 0, 1, 5]}
pytestmark = pretend.needs_compiler


@pytest.mark.skipif(nvrtc.library() is None, reason="no NVRTC (pip install 'scaffe[gpu-check]')")
def test_compiles():
    assert not nvrtc.errors(kernels.ROWS_SOURCE.read_text(), ("-std=c++17", "-arch=compute_80"))


@pytest.mark.parametrize(("row_elems", "dtype"), [(1, "float32"), (6, "float32"), (5, "float64"), (12, "float64")])
def test_rows_are_moved_to_their_places(cp, row_elems, dtype):
    """Rows of 4, 24, 40 and 96 bytes: words of every length."""
    rng = np.random.default_rng(row_elems)
    table, positions = rng.standard_normal((97, row_elems)).astype(dtype), rng.permutation(97)[:41]
    order, packed = RowOrder(positions, table[0].nbytes), cp.zeros((41, row_elems), dtype)
    order.gather(cp.asarray(table), packed)
    np.testing.assert_array_equal(packed.get(), table[positions])
    back = cp.zeros_like(cp.asarray(table))
    order.scatter(packed, back)
    expected = np.zeros_like(table)
    expected[positions] = table[positions]
    np.testing.assert_array_equal(back.get(), expected)


def work(cp, keys):
    """What two streams that take turns see of some rows and of all, and the table at the end; and what they must."""
    server = ParameterServer(Communicator.single())
    table = server.table("l", N_ROWS, ROW_ELEMS, local=True, memory="device")
    some, everything = server.local_batch(table, keys), server.local_batch(table, range(N_ROWS))
    server.start()
    seen, expected, right = [], np.zeros((N_ROWS, ROW_ELEMS), np.float32), []
    with pretend.deferring():
        streams = [cp.cuda.Stream(non_blocking=True) for _ in range(2)]
        for clock in range(4):
            with streams[clock % 2]:
                some.pre_update(no_fetch=clock == 2)[...] += clock + 1 if clock != 2 else 0
                some.update(no_save=clock == 2)
                whole = everything.read().copy()
                everything.post_read()
            if clock != 2:
                expected[keys] += clock + 1
            seen.append(whole)
            right.append(expected.copy())
            server.clock()
        for stream in streams:
            stream.synchronize()
        seen = [whole.get() for whole in seen]
    values = server.values(table)
    server.close()
    return seen, right, values


@pytest.mark.parametrize("kind", KEYS)
def test_rows_are_what_was_last_saved_on_any_stream(cp, kind):
    seen, right, values = work(cp, KEYS[kind])
    np.testing.assert_array_equal(seen, right)
    np.testing.assert_array_equal(values, right[-1])


def test_a_stream_that_does_not_follow_the_other_is_found(cp, monkeypatch):
    class Nothing:
        def hold(self):
            pass

        def mark(self, stream):
            pass
    made = LocalTable.__init__

    def init(self, table, memory):
        made(self, table, memory)
        self.used = Nothing()
    monkeypatch.setattr(LocalTable, "__init__", init)
    seen, right, _ = work(cp, KEYS["scattered"])
    assert not np.array_equal(seen, right)


def test_memory_that_there_is_not(cp):
    server = ParameterServer(Communicator.single())
    with pytest.raises(CommError, match="table 'l': memory must be host or device, got 'disk'"):
        server.table("l", 2, 2, local=True, memory="disk")
    with pytest.raises(CommError, match="declares table 't' in device memory; only local ones may be"):
        server.table("t", 2, 2, memory="device")
