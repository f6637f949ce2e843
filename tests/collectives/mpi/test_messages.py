"""Messages between two ranks, outside the calls that all ranks agree on; and communicators of some of the ranks."""

import numpy as np
import pytest
from mpi4py import MPI

from scaffe.collectives import CommError, RankLost
from scaffe.collectives.runtime.point_to_point import ANY, PendingMessage


@pytest.fixture
def messages(communicator):
    if communicator.n_ranks < 2:
        pytest.skip("needs two ranks")
    return communicator.messages


def payload(rank, n_elems, dtype="float64"):
    return ((np.arange(n_elems) * 31 + rank * 1009) % 2039).astype(dtype)


def test_a_server_takes_requests_from_any_rank_with_any_tag(communicator, messages):
    """Requests of different lengths; the answers go back by the request's tag. Rank 0 serves."""
    rank, n_ranks = communicator.rank, communicator.n_ranks
    if rank == 0:
        served, buffer = [], np.zeros(1000)
        for _ in range(2 * (n_ranks - 1)):
            envelope = messages.recv(buffer, timeout=120)
            n_elems = envelope.n_bytes // 8
            assert n_elems == 10 * envelope.source + envelope.tag
            assert np.array_equal(buffer[:n_elems], payload(envelope.source, n_elems))
            messages.send(buffer[:n_elems] * 2, envelope.source, envelope.tag)
            served.append((envelope.source, envelope.tag))
        assert sorted(served) == [(source, tag) for source in range(1, n_ranks) for tag in (3, 7)]
        assert messages.iprobe() is None
    else:
        answers = {tag: np.zeros(10 * rank + tag) for tag in (7, 3)}
        pending = {tag: messages.irecv(answer, 0, tag) for tag, answer in answers.items()}
        for tag, answer in answers.items():
            messages.isend(payload(rank, answer.size), 0, tag).wait(120)
        for tag, message in pending.items():
            assert message.wait(120) == (0, tag, 8 * answers[tag].size)
            assert message.test() == (0, tag, 8 * answers[tag].size)
            assert np.array_equal(answers[tag], 2 * payload(rank, answers[tag].size))
    assert not messages.pending
    communicator.barrier()


@pytest.mark.parametrize(("n_elems", "dtype"), [(0, "float32"), (1, "int8"), (70_001, "float16"), (300_000, "uint64")])
def test_around_the_ring_beside_collectives(communicator, messages, n_elems, dtype):
    """Messages never meet those of collectives that run meanwhile; one tag from one rank keeps its order."""
    rank, n_ranks = communicator.rank, communicator.n_ranks
    left, right = (rank - 1) % n_ranks, (rank + 1) % n_ranks
    first, second = np.zeros(n_elems, dtype), np.zeros(n_elems, dtype)
    receives = [messages.irecv(array, ANY, 5) for array in (first, second)]
    total = np.full(5000, rank + 1.0)
    request = communicator.iallreduce(total, algorithm="R", chunk_bytes=512)
    sends = [messages.isend(payload(rank + n_ranks * lap, n_elems, dtype), right, 5) for lap in range(2)]
    assert {message.wait(120).source for message in receives} == {left}
    for message in sends:
        message.wait(120)
    request.wait(120)
    assert np.array_equal(first, payload(left, n_elems, dtype))
    assert np.array_equal(second, payload(left + n_ranks, n_elems, dtype))
    assert (total == n_ranks * (n_ranks + 1) / 2).all()


def test_what_nobody_sends_is_given_up(communicator, messages):
    array = np.full(5, 7.0)
    message = messages.irecv(array, ANY, 99)
    with pytest.raises(CommError, match=rf"rank {communicator.rank}: receive from any rank, tag 99: not complete"):
        message.wait(0.05)
    message.cancel()
    assert not messages.pending
    assert (array == 7).all()
    communicator.barrier()


def test_a_message_longer_than_its_array_is_an_error(communicator, messages):
    if communicator.rank == 1:
        messages.send(np.zeros(100), 0, 4)
    elif communicator.rank == 0:
        with pytest.raises(CommError, match="rank 0: receive from rank 1, tag 4: .*(TRUNC|trunc)"):
            messages.recv(np.zeros(10), 1, 4, timeout=120)
        assert not messages.pending
    communicator.barrier()


@pytest.mark.parametrize(("call", "text"), [
    (lambda m: m.send(np.zeros(3), 99), "dest must be a rank below"),
    (lambda m: m.send(np.zeros(3), None), "dest must be an integer, not None"),
    (lambda m: m.send(np.zeros(3), 0, -1), "tag must be 0 to 32767, not -1"),
    (lambda m: m.recv(np.zeros(3), "any"), "source must be an integer"),
    (lambda m: m.recv(np.zeros(3), 0, 1 << 20), "tag must be 0 to"),
    (lambda m: m.send([1.0], 0), "expected a NumPy array"),
    (lambda m: m.send(np.zeros((4, 4))[:, 1], 0), "expected a contiguous array of plain numbers"),
    (lambda m: m.send(np.array([None]), 0), "expected a contiguous array of plain numbers"),
    (lambda m: m.recv(np.broadcast_to(np.zeros(1), 1), 0), "read-only"),
])
def test_what_cannot_be_sent_or_received(messages, call, text):
    with pytest.raises(CommError, match=text):
        call(messages)


def test_one_rank_alone_has_nobody_to_talk_to(communicator):
    if communicator.n_ranks == 1:
        communicator.messages.isend(np.ones(2), 0)
        assert communicator.messages.recv(np.zeros(2)).source == 0


@pytest.mark.parametrize("n_colors", [1, 2, 3])
def test_ranks_are_split_by_color_and_ordered_by_key(communicator, n_colors):
    rank = communicator.rank
    made = communicator.split(rank % n_colors, key=-rank)
    members = [other for other in reversed(range(communicator.n_ranks)) if other % n_colors == rank % n_colors]
    assert made.allgather_objects(rank) == members
    assert made.rank == members.index(rank)
    ours, theirs = communicator.topology.node_of_rank, made.topology.node_of_rank
    assert all((theirs[i] == theirs[j]) == (ours[one] == ours[other])
               for i, one in enumerate(members) for j, other in enumerate(members))
    for array in (made.alloc(333), np.empty(333, np.float32)):
        array[:] = rank
        made.allreduce(array)
        assert (array == sum(members)).all()
    total = np.ones(3, np.float32)
    communicator.allreduce(total)
    assert (total == communicator.n_ranks).all()


def test_a_rank_without_a_color_gets_no_communicator(communicator, last):
    made = communicator.split(None if last else 5)
    assert (made is None) == last
    if made is not None:
        assert made.n_ranks == communicator.n_ranks - 1


@pytest.mark.parametrize("color", ["red", -3])
def test_no_such_color(communicator, last, color):
    for is_guilty in (last, True):
        with pytest.raises(CommError, match=r"split: color must be .*not ('red'|-3)") as caught:
            communicator.split(color if is_guilty else 0)
        assert caught.value.everywhere


class SendRequest:
    """A send as MPI has it; notes whether it has been tested, which gives it up where its rank is lost."""

    def __init__(self, is_complete, error=0):
        self.is_complete, self.error, self.is_tested = is_complete, error, False

    def Get_status(self, status):  # noqa: N802 - MPI's name
        status.Set_error(self.error)
        return self.is_complete

    def Test(self, status):  # noqa: N802 - MPI's name
        self.is_tested = True
        return self.is_complete


def test_a_send_is_not_tested_before_it_has_left_where_ranks_may_be_lost(messages, monkeypatch):
    """Of several to one rank the first that is under way stands for those behind it."""
    monkeypatch.setattr(messages, "_may_lose", True)
    requests = [SendRequest(True), SendRequest(False), SendRequest(True), SendRequest(True)]
    sends = [PendingMessage(messages, request, np.zeros(3), lambda: "a send", dest)
             for request, dest in zip(requests, (0, 0, 0, 1), strict=True)]
    receives = [messages.irecv(np.zeros(3), messages.rank, 11) for _ in range(2)]
    messages.isend(np.arange(3.0), messages.rank, 11).wait(120)
    together = [receives[0], *sends, receives[1]]
    found = messages.test_some(together)
    while 0 not in found:
        found = messages.test_some([receives[0]])
    assert [request.is_tested for request in requests] == [True, False, False, True]
    receives[1].cancel()
    for message in sends:
        messages.pending.discard(message)


def test_a_send_that_cannot_arrive_is_an_error_and_stays_untested(messages, monkeypatch):
    monkeypatch.setattr(messages, "_may_lose", True)
    failed, under_way = SendRequest(True, MPI.ERR_OTHER), SendRequest(False)
    with pytest.raises(CommError, match="a send"):
        PendingMessage(messages, failed, np.zeros(3), lambda: "a send", 0).test()

    def check_peer(rank):
        raise RankLost(messages.rank, (rank,))

    monkeypatch.setattr(messages._losses, "check_peer", check_peer)
    message = PendingMessage(messages, under_way, np.zeros(3), lambda: "a send", 1)
    for ask in (message.test, message.wait):
        with pytest.raises(RankLost):
            ask()
    assert not failed.is_tested and not under_way.is_tested
    messages.pending.discard(message)
