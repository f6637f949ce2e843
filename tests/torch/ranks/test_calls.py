"""The calls of torch.distributed, beside gloo's or written out."""

import pytest
import torch
import torch.distributed as dist
from payload import payload
from torch.distributed import ReduceOp

from scaffe.collectives import CommError

FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
INTEGERS = [torch.int32, torch.int64, torch.uint8, torch.int8]
MOVED = [*FLOATS, *INTEGERS, torch.int16, torch.bool, torch.complex64]


@pytest.fixture
def rank():
    return dist.get_rank()


@pytest.fixture
def n_ranks():
    return dist.get_world_size()


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("op", [ReduceOp.SUM, ReduceOp.MAX, ReduceOp.MIN, ReduceOp.PRODUCT])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64])
def test_all_reduce_gives_gloos_values(gloo, rank, dtype, op, is_async):
    for n_elems in (1, 7, 5003):
        ours = payload(rank, n_elems, dtype)
        theirs = ours.clone()
        if (work := dist.all_reduce(ours, op, async_op=is_async)) is not None:
            work.wait()
            assert work.is_completed()
            assert work.get_future().value()[0] is ours
        dist.all_reduce(theirs, op, group=gloo)
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS, torch.int16])
def test_all_reduce_of_every_dtype(rank, n_ranks, dtype):
    array = payload(rank, 131, dtype)
    dist.all_reduce(array)
    total = sum(payload(peer, 131, torch.int64) if dtype.itemsize > 1 and dtype is not torch.bfloat16 else
                payload(peer, 131, dtype).to(torch.int64) for peer in range(n_ranks))
    assert torch.equal(array, total.to(dtype))
    flags = payload(rank, 5, torch.bool)
    dist.all_reduce(flags, ReduceOp.MAX)
    assert torch.equal(flags, sum(payload(peer, 5, torch.bool).int() for peer in range(n_ranks)) > 0)


def test_all_reduce_in_any_memory(rank, n_ranks):
    import scaffe.torch

    total = sum(payload(peer, 24) for peer in range(n_ranks)).view(4, 6)
    strided = payload(rank, 24).view(4, 6).t().contiguous().t()
    dist.all_reduce(strided)
    assert torch.equal(strided, total)
    shared = scaffe.torch.empty(4, 6)
    assert torch.equal(shared, torch.zeros(4, 6))
    shared[:] = payload(rank, 24).view(4, 6)
    dist.all_reduce(shared, ReduceOp.AVG)
    assert torch.equal(shared, total / n_ranks)
    parameter = torch.nn.Parameter(payload(rank, 24))
    dist.all_reduce(parameter)
    assert torch.equal(parameter.detach(), total.view(-1))
    nothing = torch.zeros(0)
    dist.all_reduce(nothing)


def test_tensors_of_ours_lie_in_shared_memory(process_group, n_ranks):
    import scaffe.torch

    for dtype in (torch.float32, torch.bfloat16, torch.uint8):
        tensor = scaffe.torch.empty(3, 5, dtype=dtype)
        assert (tensor.shape, tensor.dtype) == ((3, 5), dtype)
        words = scaffe.torch.empty(8).numpy()
        find = process_group.communicator._ranks.windows.find
        assert find(words) is not None  # in a job of one rank, too; a process that no launcher started has no windows


@pytest.mark.parametrize("dtype", MOVED)
def test_broadcast_from_every_root(rank, n_ranks, dtype):
    for root in range(n_ranks):
        for n_elems in (1, 3, 130):
            array = payload(rank, n_elems, dtype)
            dist.broadcast(array, root)
            assert torch.equal(array, payload(root, n_elems, dtype))


def test_reduce_leaves_the_others_as_they_are(rank, n_ranks):
    for root in range(n_ranks):
        array = payload(rank, 3001)
        dist.reduce(array, root, ReduceOp.SUM)
        right = sum(payload(peer, 3001) for peer in range(n_ranks)) if rank == root else payload(rank, 3001)
        assert torch.equal(array, right)


@pytest.mark.parametrize("dtype", MOVED)
@pytest.mark.parametrize("n_elems", [1, 5, 64])
def test_all_gather(rank, n_ranks, dtype, n_elems):
    right = [payload(peer, n_elems, dtype) for peer in range(n_ranks)]
    apart = [torch.empty(n_elems, dtype=dtype) for _ in range(n_ranks)]
    dist.all_gather(apart, payload(rank, n_elems, dtype))
    together = torch.empty(n_ranks * n_elems, dtype=dtype)
    dist.all_gather_into_tensor(together, payload(rank, n_elems, dtype), async_op=True).wait()
    in_place = torch.empty(n_ranks, n_elems, dtype=dtype)
    in_place[rank] = right[rank]
    dist.all_gather(list(in_place.unbind()), in_place[rank])
    for peer in range(n_ranks):
        assert torch.equal(apart[peer], right[peer])
        assert torch.equal(together.view(n_ranks, -1)[peer], right[peer])
        assert torch.equal(in_place[peer], right[peer])


def test_all_gather_of_unequal_lengths(rank, n_ranks):
    outputs = [torch.empty(peer + 1, dtype=torch.uint8) for peer in range(n_ranks)]
    dist.all_gather(outputs, payload(rank, rank + 1, torch.uint8))
    assert all(torch.equal(outputs[peer], payload(peer, peer + 1, torch.uint8)) for peer in range(n_ranks))


@pytest.mark.parametrize("op", [ReduceOp.SUM, ReduceOp.AVG, ReduceOp.MAX])
@pytest.mark.parametrize("n_elems", [1, 501])
def test_reduce_scatter_leaves_its_input(rank, n_ranks, op, n_elems):
    rows = torch.stack([payload(peer, n_ranks * n_elems) for peer in range(n_ranks)])
    right = {ReduceOp.SUM: rows.sum(0), ReduceOp.AVG: rows.sum(0) / n_ranks, ReduceOp.MAX: rows.max(0).values}[op]
    whole, part, apart = payload(rank, n_ranks * n_elems), torch.empty(n_elems), torch.empty(n_elems)
    dist.reduce_scatter_tensor(part, whole, op)
    dist.reduce_scatter(apart, list(whole.chunk(n_ranks)), op)
    assert torch.equal(part, right.view(n_ranks, -1)[rank])
    assert torch.equal(apart, part)
    assert torch.equal(whole, rows[rank])


def test_reduce_scatter_of_unequal_lengths(rank, n_ranks):
    output = torch.empty(rank + 1)
    dist.reduce_scatter(output, [payload(rank + part, part + 1) for part in range(n_ranks)])
    assert torch.equal(output, sum(payload(peer + rank, rank + 1) for peer in range(n_ranks)))


def test_all_to_all(rank, n_ranks):
    n_rows = [[(one + 2 * other) % 3 for other in range(n_ranks)] for one in range(n_ranks)]  # none for some pairs
    rows = payload(rank, 5 * sum(n_rows[rank]), torch.int64).view(-1, 5)
    found = torch.full((sum(n_rows[peer][rank] for peer in range(n_ranks)), 5), -1)
    dist.all_to_all_single(found, rows, [n_rows[peer][rank] for peer in range(n_ranks)], n_rows[rank])
    right = [payload(peer, 5 * sum(n_rows[peer]), torch.int64).view(-1, 5).split(n_rows[peer])[rank]
             for peer in range(n_ranks)]
    assert torch.equal(found, torch.cat(right))
    equal = torch.empty(2 * n_ranks)
    dist.all_to_all_single(equal, payload(rank, 2 * n_ranks), async_op=True).wait()
    assert torch.equal(equal, torch.cat([payload(peer, 2 * n_ranks).view(n_ranks, 2)[rank] for peer in range(n_ranks)]))
    outputs = [torch.empty(peer + rank + 1) for peer in range(n_ranks)]
    dist.all_to_all(outputs, [payload(rank + 10 * peer, peer + rank + 1) for peer in range(n_ranks)])
    assert all(torch.equal(outputs[peer], payload(peer + 10 * rank, peer + rank + 1)) for peer in range(n_ranks))


def test_gather_and_scatter(rank, n_ranks):
    for root in range(n_ranks):
        found = [torch.empty(3) for _ in range(n_ranks)] if rank == root else None
        dist.gather(payload(rank, 3), found, root)
        if rank == root:
            assert all(torch.equal(found[peer], payload(peer, 3)) for peer in range(n_ranks))
        part = torch.empty(3)
        dist.scatter(part, [payload(peer + 5, 3) for peer in range(n_ranks)] if rank == root else None, root)
        assert torch.equal(part, payload(rank + 5, 3))


def test_messages(rank, n_ranks):
    if n_ranks == 1:
        pytest.skip("needs two ranks")
    after, before = (rank + 1) % n_ranks, (rank - 1) % n_ranks
    found = torch.empty(1000)
    for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, payload(rank, 1000), after),
                                        dist.P2POp(dist.irecv, found, before)]):
        work.wait()
    assert torch.equal(found, payload(before, 1000))
    if rank:
        dist.send(payload(rank, 3, torch.uint8), 0, tag=7)
    else:
        one = torch.empty(3, dtype=torch.uint8)
        sources = []
        for _ in range(n_ranks - 1):
            sources.append(dist.recv(one, tag=7))
            assert torch.equal(one, payload(sources[-1], 3, torch.uint8))
        assert sorted(sources) == list(range(1, n_ranks))
    with pytest.raises(CommError, match="tag must be 0 to 32766, not 32767"):
        dist.send(found, after, tag=32767)


def test_objects(rank, n_ranks):
    found = [None] * n_ranks
    dist.all_gather_object(found, {"rank": rank, "text": "x" * rank})
    assert found == [{"rank": peer, "text": "x" * peer} for peer in range(n_ranks)]
    told = [("from", rank)]
    dist.broadcast_object_list(told, n_ranks - 1)
    assert told == [("from", n_ranks - 1)]


def test_a_barrier_waits_for_what_was_called_before(rank, n_ranks):
    array = payload(rank, 100_003)
    work = dist.all_reduce(array, async_op=True)
    dist.barrier()
    assert work.is_completed()
    assert work.is_success()
    assert torch.equal(array, sum(payload(peer, 100_003) for peer in range(n_ranks)))


def test_futures_go_on_with_the_result(rank, n_ranks):
    array = payload(rank, 1001)
    future = dist.all_reduce(array, async_op=True).get_future().then(lambda done: float(done.value()[0].sum()))
    assert future.wait() == sum(float(payload(peer, 1001).sum()) for peer in range(n_ranks))


def test_what_pytorchs_c_plus_plus_calls(rank, n_ranks):
    from torch.distributed import _functional_collectives as functional

    total = sum(payload(peer, 6) for peer in range(n_ranks))
    assert torch.equal(functional.all_reduce(payload(rank, 6), "sum", dist.group.WORLD) + 0, total)
    gathered = functional.all_gather_tensor(payload(rank, 6), 0, dist.group.WORLD) + 0
    assert torch.equal(gathered, torch.cat([payload(peer, 6) for peer in range(n_ranks)]))
    part = functional.reduce_scatter_tensor(payload(rank, 6 * n_ranks), "sum", 0, dist.group.WORLD) + 0
    right = sum(payload(peer, 6 * n_ranks) for peer in range(n_ranks)).view(n_ranks, 6)[rank]
    assert torch.equal(part, right)


def test_groups_of_some_ranks(rank, n_ranks):
    chosen = list(range(0, n_ranks, 2))
    group = dist.new_group(chosen)
    array = payload(rank, 999)
    if rank in chosen:
        dist.all_reduce(array, group=group)
        assert torch.equal(array, sum(payload(peer, 999) for peer in chosen))
        dist.broadcast(array, chosen[-1], group=group)
    dist.barrier()


def test_what_cannot_be_is_one_error(rank):
    with pytest.raises(CommError, match="op must be one of SUM, AVG, PRODUCT, MIN and MAX, not"):
        dist.all_reduce(torch.zeros(3, dtype=torch.int32), ReduceOp.BXOR)
    with pytest.raises(TypeError, match="cannot reduce tensors of torch.complex64"):
        dist.group.WORLD.allreduce([torch.zeros(3, dtype=torch.complex64)], dist.AllreduceOptions())
    dist.barrier()
