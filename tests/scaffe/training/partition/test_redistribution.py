"""Moves and split layers among ranks that are threads: values against slices and sums of the whole, no MPI."""

import threading
from functools import partial

import numpy as np
import pytest
from google.protobuf import text_format

from scaffe.collectives.request import Request
from scaffe.layers.base.context import Context
from scaffe.layers.base.layer import TRAIN
from scaffe.layers.base.random import Stream
from scaffe.nets.devices import load_kernels
from scaffe.proto import caffe_pb2
from scaffe.training.partition.group import Group
from scaffe.training.partition.layers import inner_product
from scaffe.training.partition.layers.collective import AccuracyByClasses, LossByClasses, SharedDraws
from scaffe.training.partition.layers.concat_slice import ShardedConcat, ShardedSlice
from scaffe.training.partition.layers.inner_product import GatherGemmOverlap, ProductByInputs
from scaffe.training.partition.layers.redistribution import REDISTRIBUTIONS
from scaffe.training.partition.layers.single_rank import SINGLE_RANK_REDISTRIBUTIONS
from scaffe.training.partition.planner.image_shares import IndexMap

N_COLUMNS, OWN_IMAGES = 7, 2
sharing = pytest.mark.parametrize("n_ranks", [2, 3, 5])


class Threads:
    """What Group asks of a communicator, among threads."""

    def __init__(self, rank, table):
        self.rank, self.n_ranks, self._table = rank, table.parties, table
        self.mapped, self.exchanged = [], []

    def alloc(self, n_elems, dtype):
        self.mapped.append(np.zeros(n_elems, dtype))
        return self.mapped[-1]

    def _all(self, array):
        """Copies of every rank's array."""
        return self._everyones(array.copy())

    def _everyones(self, mine):
        """What every rank has put on the table."""
        self._table.arrays[self.rank] = mine
        self._table.wait()
        found = list(self._table.arrays)
        self._table.wait()
        return found

    def allgather(self, array):
        self.exchanged.append(array)
        n = len(array) // self.n_ranks
        array[...] = np.concatenate([found[r * n:(r + 1) * n] for r, found in enumerate(self._all(array))])

    def allreduce(self, array, op="sum"):
        array[...] = (np.sum if op == "sum" else np.max)(self._all(array), axis=0)

    def bcast(self, array, root):
        array[...] = self._all(array)[root]

    def reduce(self, array, root):
        array[...] = np.sum(self._all(array), axis=0) if self.rank == root else np.nan * self._all(array)[0]

    def reduce_scatter(self, array):
        self.exchanged.append(array)
        n, whole = len(array) // self.n_ranks, np.sum(self._all(array), axis=0)
        array[...] = np.nan
        array[self.rank * n:(self.rank + 1) * n] = whole[self.rank * n:(self.rank + 1) * n]


class Late:
    """A request whose exchange happens when it is waited for: the latest that messages can be."""

    def __init__(self, exchange, *arrays):
        self._exchange, self._arrays = exchange, arrays

    def wait(self):
        """Exchange."""
        self._exchange(*self._arrays)


class ThreadGroup(Group):
    """A Group among threads, each a node of its own. Whatever is started happens when it is waited for, or at once."""

    spans_nodes = True
    is_late = True

    def _start(self, exchange, *arrays):
        request = Late(exchange, *arrays)
        if not self.is_late:
            request.wait()
            request = Request.completed("")
        return request

    def igather(self, array):
        """See Group."""
        return self._start(self.gather, array)

    def iscatter_sum(self, array):
        """See Group."""
        return self._start(self.scatter_sum, array)

    def iswap(self, sent, received):
        """See Group."""
        return self._start(self.swap, sent, received)

    def iexchange(self, sent, received):
        """See Group."""
        return self._start(self.exchange, sent, received)

    def wait(self, request, label):
        """Nobody counts."""
        request.wait()

    def swap(self, sent, received):
        """Through the table."""
        for rank, found in enumerate(self.communicator._all(sent)):
            received[rank] = found[self.rank]

    def exchange(self, sent, received):
        """Through the table."""
        for rank, found in enumerate(self.communicator._everyones(sent)):
            if rank in received:
                received[rank][...] = found[self.rank]


def run(n_ranks, work, is_late=True):
    """What ``work(group)`` returns on every rank."""
    table = threading.Barrier(n_ranks, timeout=100)
    table.arrays, found = [None] * n_ranks, [None] * n_ranks

    def rank(number):
        group = ThreadGroup(Threads(number, table))
        group.is_late = is_late
        found[number] = work(group)

    threads = [threading.Thread(target=rank, args=(number,)) for number in range(n_ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def assert_same_bits(found, others):
    """Arrays of every rank, whenever messages have come."""
    for mine, other in zip(found, others, strict=True):
        assert [array.tobytes() for array in mine] == [array.tobytes() for array in other]


def context():
    return Context(TRAIN, load_kernels(1))


def lying(how, whole, rank, n_ranks):
    """A rank's part of a whole blob, as a reader would cut it."""
    n = len(whole) // n_ranks
    flat = whole.reshape(len(whole), -1)
    bounds = [part * flat.shape[1] // n_ranks for part in (rank, rank + 1)]
    if how in ("channels", "bands"):
        axis = {"channels": 1, "bands": 2}[how]
        length = whole.shape[axis]
        return np.take(whole, range(rank * length // n_ranks, (rank + 1) * length // n_ranks), axis)
    if how == "one":
        return whole if rank == 0 else np.zeros_like(whole)
    return {"rows": whole[rank * n:(rank + 1) * n], "columns": flat[:, bounds[0]:bounds[1]], "whole": whole}[how]


def test_columns_are_gathered_and_summed_where_all_ranks_of_a_node_write():
    def work(group):
        made, bottom, top = context(), context().blob(), context().blob()
        bottom.reshape((4, len(lying("columns", np.zeros((1, N_COLUMNS)), group.rank, 2)[0])))
        move = REDISTRIBUTIONS["columns", "whole"](caffe_pb2.LayerParameter(name="m"), made, group, N_COLUMNS)
        move.reshape([bottom], [top])
        move.forward([bottom], [top])
        move.backward([top], [True], [bottom])
        mapped, exchanged = group.communicator.mapped[0], group.communicator.exchanged
        return len(exchanged), all(np.shares_memory(array, mapped) for array in exchanged)

    assert run(2, work) == [(2, True)] * 2


@sharing
@pytest.mark.parametrize("way", REDISTRIBUTIONS | SINGLE_RANK_REDISTRIBUTIONS, ids="-".join)
@pytest.mark.parametrize("shape", [(N_COLUMNS,), (6, 5, 2)], ids=["matrix", "image"])
def test_a_move_gives_each_rank_its_part_and_its_gradient(n_ranks, way, shape):
    lies, needed = way
    if {"channels", "bands"} & {lies, needed}:
        shape = (6, 5, 2)
    elif lies == "columns":
        shape = (N_COLUMNS,)
    length = shape[1] if lies == "bands" else shape[0] if lies == "channels" else int(np.prod(shape))
    rng = np.random.default_rng(n_ranks)
    whole = rng.standard_normal((OWN_IMAGES * n_ranks, *shape)).astype(np.float32)
    # gradients of a blob that lies whole are partial: every rank has other ones, which are to be summed
    partial = rng.integers(-9, 9, (n_ranks, *whole.shape)).astype(np.float32)

    def work(group):
        made, bottom, top = context(), context().blob(), context().blob()
        mine = lying(lies, whole, group.rank, n_ranks)
        bottom.reshape(mine.shape)
        make = (REDISTRIBUTIONS | SINGLE_RANK_REDISTRIBUTIONS)[way]
        move = make(caffe_pb2.LayerParameter(name="m"), made, group, length)
        move.reshape([bottom], [top])
        bottom.data[...] = mine
        move.forward([bottom], [top])
        gradient = partial[group.rank] if needed == "whole" else lying(needed, partial.sum(0), group.rank, n_ranks)
        top.diff[...] = gradient.reshape(top.shape)
        out = top.data.copy()
        move.backward([top], [True], [bottom])
        return out, bottom.diff.copy()  # zeros where a blob on one rank is not

    for rank, (data, diff) in enumerate(run(n_ranks, work)):
        wanted = lying(needed, whole, rank, n_ranks)
        np.testing.assert_array_equal(data.reshape(wanted.shape), wanted)
        if lies != "whole":
            np.testing.assert_array_equal(diff, lying(lies, partial.sum(0), rank, n_ranks))


@sharing
@pytest.mark.parametrize(("options", "divisor"), [
    ("", "valid"), ("loss_param { ignore_label: 3 }", "valid"),
    ("loss_param { ignore_label: 3 normalization: BATCH_SIZE }", "batch")])
def test_the_loss_on_split_classes_is_the_formulas(n_ranks, options, divisor):
    rng = np.random.default_rng(3)
    scores = rng.standard_normal((6, N_COLUMNS)) * 30
    labels = np.array([0, 3, 6, 2, 3, 5])
    ignored = (labels == 3) & ("ignore" in options)
    exact = np.exp(scores - scores.max(1, keepdims=True))
    probabilities = exact / exact.sum(1, keepdims=True)
    n = (~ignored).sum() if divisor == "valid" else len(labels)
    losses = -np.log(np.maximum(probabilities[np.arange(6), labels], np.finfo(np.float32).tiny))
    gradient = (probabilities - np.eye(N_COLUMNS)[labels]) * (~ignored)[:, None] * 0.5 / n

    def work(group):
        bottoms, top = [context().blob(), context().blob()], context().blob()
        mine = lying("columns", scores, group.rank, n_ranks)
        bottoms[0].reshape(mine.shape)
        bottoms[1].reshape((6,))
        param = text_format.Parse(options, caffe_pb2.LayerParameter())
        layer = LossByClasses(param, context(), group, N_COLUMNS)
        layer.reshape(bottoms, [top])
        bottoms[0].data[...], bottoms[1].data[...] = mine, labels
        layer.forward(bottoms, [top])
        top.diff[...] = 0.5
        layer.backward([top], [True, False], bottoms)
        return float(top.data), bottoms[0].diff.copy()

    for rank, (loss, diff) in enumerate(run(n_ranks, work)):
        assert loss == pytest.approx(losses[~ignored].sum() / n, rel=1e-5)
        np.testing.assert_allclose(diff, lying("columns", gradient, rank, n_ranks), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("n_replicas", [1, 2])
@pytest.mark.parametrize("in_columns", [False, True])
def test_all_ranks_draws_together_are_one_ranks(n_replicas, in_columns):
    """Image j of rank r of all P ranks is image j P + r of the one rank's batch."""
    n_ranks, n_all = 3, 3 * n_replicas
    one = Stream(9).draw(OWN_IMAGES * n_all * N_COLUMNS).reshape(OWN_IMAGES, n_all, N_COLUMNS)
    for replica in range(n_replicas):
        def work(group, replica=replica):
            bottom = context().blob()
            own = group.columns(N_COLUMNS)
            width = own.stop - own.start if in_columns else N_COLUMNS
            bottom.reshape((OWN_IMAGES * (n_ranks if in_columns else 1), width))
            draws = SharedDraws(Stream(9), group, (replica, n_replicas), bottom, "columns" if in_columns else None,
                                N_COLUMNS)
            return draws.draw(bottom.n_elems).reshape(bottom.shape)

        mine = one[:, replica * n_ranks:(replica + 1) * n_ranks].transpose(1, 0, 2).reshape(-1, N_COLUMNS)
        for rank, found in enumerate(run(n_ranks, work)):
            np.testing.assert_array_equal(found, lying("columns" if in_columns else "rows", mine, rank, n_ranks))


@sharing
@pytest.mark.parametrize("shape", [(6,), (3, 1, 2)], ids=["matrix", "image"])
def test_a_product_by_outputs_is_the_formula_whenever_images_come(n_ranks, shape):
    n_outputs, n_images = 7, 2 * n_ranks
    rng = np.random.default_rng(n_ranks)
    x, w = rng.standard_normal((n_images, *shape)).astype(np.float32), rng.standard_normal((n_outputs, 6))
    gy = rng.standard_normal((n_images, n_outputs)).astype(np.float32)

    def work(group):
        own, mine = group.columns(n_outputs), slice(2 * group.rank, 2 * group.rank + 2)
        param = caffe_pb2.LayerParameter(name="fc")
        param.inner_product_param.num_output = own.stop - own.start
        bottom, whole, top = (context().blob() for _ in range(3))
        bottom.reshape((2, *shape))
        gather = REDISTRIBUTIONS["rows", "whole"](param, context(), group)
        layer = GatherGemmOverlap(param, context(), gather)
        gather.reshape([bottom], [whole])
        layer.setup([whole], [top])
        layer.reshape([whole], [top])
        layer.bottoms_written = partial(gather.send_back, whole)
        bottom.data[...], layer.blobs[0].data[...], layer.blobs[1].data[...] = x[mine], w[own], np.arange(7)[own]
        gather.forward([bottom], [whole])
        layer.forward([whole], [top])
        top.diff[...] = gy[:, own]
        layer.backward([top], [True], [whole])
        gather.backward([whole], [True], [bottom])
        return top.data.copy(), bottom.diff.copy(), layer.blobs[0].diff.copy()

    found, flat = run(n_ranks, work), x.reshape(n_images, -1)
    assert_same_bits(found, run(n_ranks, work, is_late=False))
    for rank, (y, gx, gw) in enumerate(found):
        own = slice(rank * n_outputs // n_ranks, (rank + 1) * n_outputs // n_ranks)
        close = {"rtol": 1e-4, "atol": 1e-5}
        np.testing.assert_allclose(y, (flat @ w.T + np.arange(7))[:, own], **close)
        np.testing.assert_allclose(gx.reshape(2, -1), (gy @ w)[2 * rank:2 * rank + 2], **close)
        np.testing.assert_allclose(gw, gy[:, own].T @ flat, **close)


@sharing
@pytest.mark.parametrize("transpose", [False, True])
def test_a_product_by_inputs_is_the_formula_whenever_its_chunks_come(n_ranks, transpose, monkeypatch):
    monkeypatch.setattr(inner_product, "LEAST_BYTES", 4)
    n_inputs, n_outputs, n_images = 11, 7, 2 * n_ranks
    rng = np.random.default_rng(n_ranks)
    x, w = rng.standard_normal((n_images, n_inputs)), rng.standard_normal((n_outputs, n_inputs))
    b, gy = rng.standard_normal(n_outputs), rng.standard_normal((n_images, n_outputs))

    def work(group):
        param = caffe_pb2.LayerParameter(name="fc")
        param.inner_product_param.num_output, param.inner_product_param.transpose = n_outputs, transpose
        layer, bottom, top = ProductByInputs(param, context(), group, False), context().blob(), context().blob()
        own, mine = group.columns(n_inputs), slice(2 * group.rank, 2 * group.rank + 2)
        bottom.reshape((n_images, own.stop - own.start))
        layer.setup([bottom], [top])
        layer.reshape([bottom], [top])
        assert len(layer.chunks) == (1 if transpose else 4)
        bottom.data[...], layer.blobs[1].data[...] = x[:, own], b
        layer.blobs[0].data[...] = w[:, own].T if transpose else w[:, own]
        layer.forward([bottom], [top])
        top.diff[...] = gy[mine]
        layer.backward([top], [True], [bottom])
        return top.data.copy(), bottom.diff.copy(), layer.blobs[0].diff.copy(), layer.blobs[1].diff.copy()

    found = run(n_ranks, work)
    assert_same_bits(found, run(n_ranks, work, is_late=False))
    for rank, (y, gx, gw, gb) in enumerate(found):
        own = slice(rank * n_inputs // n_ranks, (rank + 1) * n_inputs // n_ranks)
        close = {"rtol": 1e-4, "atol": 1e-5}
        np.testing.assert_allclose(y, (x @ w.T + b)[2 * rank:2 * rank + 2], **close)
        np.testing.assert_allclose(gx, gy @ w[:, own], **close)
        np.testing.assert_allclose(gw, (x[:, own].T @ gy) if transpose else gy.T @ x[:, own], **close)
        np.testing.assert_allclose(gb, gy[2 * rank:2 * rank + 2].sum(0), **close)


def scores_of_classes(rng):
    """Scores with ties, and labels of which one is ignored."""
    return rng.integers(0, 4, (8, N_COLUMNS)).astype(np.float32), np.array([0, 3, 6, 2, 3, 5, 1, 0])


@sharing
@pytest.mark.parametrize("options", ["", "top_k: 3", "top_k: 2 ignore_label: 3"])
def test_accuracy_on_split_classes_is_counted(n_ranks, options):
    scores, labels = scores_of_classes(np.random.default_rng(8))
    top_k = int(options[7]) if options else 1
    wanted = [[] for _ in range(N_COLUMNS)]
    for row, label in zip(scores, labels, strict=True):
        if label != 3 or "ignore" not in options:
            wanted[label].append(sorted(row, reverse=True).index(row[label]) + list(row).count(row[label]) <= top_k)

    def work(group):
        bottoms, tops = [context().blob(), context().blob()], [context().blob(), context().blob()]
        mine = lying("columns", scores, group.rank, n_ranks)
        bottoms[0].reshape(mine.shape)
        bottoms[1].reshape((8,))
        param = text_format.Parse(f"accuracy_param {{ {options} }}", caffe_pb2.LayerParameter())
        layer = AccuracyByClasses(param, context(), group, N_COLUMNS)
        layer.reshape(bottoms, tops)
        bottoms[0].data[...], bottoms[1].data[...] = mine, labels
        layer.forward(bottoms, tops)
        return float(tops[0].data), tops[1].data.copy()

    for fraction, of_classes in run(n_ranks, work):
        assert fraction == pytest.approx(np.mean(sum(wanted, [])))
        np.testing.assert_allclose(of_classes, [np.mean(found) if found else 0 for found in wanted])


@sharing
@pytest.mark.parametrize(("cut", "axis"), [("columns", 1), ("channels", 1), ("bands", 2)])
def test_parts_and_wholes_are_joined_where_they_lie(n_ranks, cut, axis):
    """Concat and Slice of the whole, forward and backward, one the other's transpose."""
    rng = np.random.default_rng(n_ranks)
    shapes = [(4, n) if cut == "columns" else (4, n, 3, 2) if axis == 1 else (4, 3, n, 2) for n in (5, 9, 6)]
    parts = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
    whole = np.concatenate(parts, axis)

    def work(group):
        made, index_map = context(), IndexMap((5, 9, 6))
        mine = [lying(cut, part, group.rank, n_ranks) for part in parts]
        own = lying(cut, whole, group.rank, n_ranks)
        blobs, top = [made.blob(part.shape) for part in mine], made.blob(own.shape)
        concat = ShardedConcat(caffe_pb2.LayerParameter(), made, group, index_map, cut)
        cutting = ShardedSlice(caffe_pb2.LayerParameter(), made, group, index_map, cut)
        concat.reshape(blobs, [top])
        for blob, part in zip(blobs, mine, strict=True):
            blob.data[...] = part
        concat.forward(blobs, [top])
        joined = top.data.copy()
        top.diff[...] = own
        concat.backward([top], [True, False, True], blobs)
        back = [blob.diff.copy() for blob in blobs]
        cutting.reshape([top], blobs)
        top.data[...] = own
        cutting.forward([top], blobs)
        cut_parts = [blob.data.copy() for blob in blobs]
        for blob, part in zip(blobs, mine, strict=True):
            blob.diff[...] = part
        cutting.backward(blobs, [True], [top])
        return joined, back, cut_parts, top.diff.copy()

    for rank, (joined, back, cut_parts, gathered) in enumerate(run(n_ranks, work)):
        own = [lying(cut, part, rank, n_ranks) for part in parts]
        np.testing.assert_array_equal(joined, lying(cut, whole, rank, n_ranks))
        np.testing.assert_array_equal(gathered, lying(cut, whole, rank, n_ranks))
        for found, wanted in zip(cut_parts, own, strict=True):
            np.testing.assert_array_equal(found, wanted)
        np.testing.assert_array_equal(back[0], own[0])
        np.testing.assert_array_equal(back[1], 0)  # nobody wants it
        np.testing.assert_array_equal(back[2], own[2])


def test_pieces_cover_the_whole_once():
    for lengths, n_ranks in (((5, 9, 6), 3), ((4, 4), 4), ((7,), 5), ((3, 11, 5, 8), 2)):
        index_map = IndexMap(lengths)
        places = sorted((piece.start, piece.stop) for piece in index_map.pieces(n_ranks))
        assert [start for start, _ in places] == [0, *(stop for _, stop in places[:-1])]
        assert places[-1][1] == sum(lengths)
    assert IndexMap((4, 4), area=3).sent(2) == 2 * 3  # half of each part changes its rank
