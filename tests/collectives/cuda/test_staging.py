"""Messages staged through pinned host memory, without MPI."""


import numpy as np
import pytest

from scaffe.collectives.cuda import device
from scaffe.collectives.cuda.messages.message import StartQueue, StartQueues
from scaffe.collectives.cuda.messages.staging import ForwardedSend, ReceiveBuffer, SendBuffer, StagedReceive, StagedSend
from scaffe.collectives.cuda.messages.transport import StagedTransport
from scaffe.collectives.cuda.streams import Span, Streams
from scaffe.collectives.planning import planners
from scaffe.collectives.planning.algorithm import parse_pattern
from scaffe.collectives.planning.call import Call
from scaffe.collectives.runtime.engine import RECEIVES_AHEAD, Execution
from scaffe.collectives.topology import Topology
from tests import pretend


@pytest.fixture
def cp(monkeypatch):
    return pretend.install(monkeypatch)


def test_steps_start_in_their_order():
    started, allowed, line = [], set(), StartQueue()
    for name in "abc":
        line.put(lambda name=name: name in allowed, lambda name=name: started.append(name))
    allowed |= {"b", "c"}
    line.progress()
    assert started == []
    allowed.add("a")
    line.progress()
    assert started == ["a", "b", "c"]



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
    streams, chunk = Streams(), 1024
    queues, memory = StartQueues(streams, backs_off=False), cp.zeros(3 * chunk, np.uint8)
    parts = [Span(memory.data.ptr + n * chunk, chunk, memory.dtype) for n in range(3)]
    pinned = [device.pinned(chunk) for _ in range(2)]
    slots = [SendBuffer(Span(buffer.ctypes.data, chunk, buffer.dtype)) for buffer in pinned]
    requests = [Sent() for _ in parts]
    sends = [StagedSend(queues, 1, request, part, slots[n % 2])
             for n, (request, part) in enumerate(zip(requests, parts, strict=True))]
    for _ in range(2):  # the same messages twice in a row
        with pretend.deferring():
            for n in range(3):
                memory[n * chunk : (n + 1) * chunk] = n + 1
            streams.begin(device.Point.now())
            for send in sends:
                send.Start()
            for _ in range(3):
                queues.progress()
            n_started = requests[0].n_started
            assert [request.n_started for request in requests] == [n_started, n_started, n_started - 1]
            assert [buffer[0] for buffer in pinned] == [1, 2]  # both are on the host, though neither has left
            requests[1].has_left = True
            queues.progress()
            assert requests[2].n_started < n_started  # it waits for the buffer that the first one has
            requests[0].has_left = True
            for _ in range(2):
                queues.progress()
            assert pinned[0][0] == 3
            assert requests[2].n_started == n_started
            requests[2].has_left = True
            for send in sends:
                send.Wait()
            streams.leave()


@pretend.needs_compiler
def test_what_passes_through_leaves_before_the_device_has_it_and_its_buffer_waits_for_it(cp, monkeypatch):
    monkeypatch.setattr(pretend.settings, "looks", 0)  # the device comes where it is asked for
    monkeypatch.setattr(device, "FIRST_PAUSE_SECONDS", 0.0)  # whoever asks twice at once gets an answer twice
    streams, n_bytes = Streams(), 1024
    queues, memory = StartQueues(streams, backs_off=False), cp.zeros(n_bytes, np.uint8)
    cp.cuda.Device().synchronize()
    pinned = device.pinned(n_bytes)
    landing = ReceiveBuffer(Span(pinned.ctypes.data, n_bytes, pinned.dtype))
    came, left, later = Sent(), Sent(), Sent()
    receive, onward, next_receive = (
        StagedReceive(queues, 0, came, Span(memory.data.ptr, n_bytes, memory.dtype), landing),
        ForwardedSend(queues, 2, left, landing),
        StagedReceive(queues, 0, later, Span(memory.data.ptr, n_bytes, memory.dtype), landing))
    with pretend.deferring():
        streams.begin(None)
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
        queues.progress()
        assert later.n_started == 0
        left.has_left = True
        queues.progress()
        assert later.n_started == 1
        assert memory._host[0] == 7
        streams.leave()


@pytest.mark.parametrize(("collective", "name", "n_passed_on", "n_sends"), [
    ("bcast", "C", 18, 18), ("allgather", "R", 6, 12), ("allreduce", "R", 6, 24), ("reduce", "C", 0, 18)])
@pretend.needs_compiler
def test_a_rank_in_the_middle_passes_on_what_it_only_receives(cp, collective, name, n_passed_on, n_sends):
    call = Call(Topology([0] * 3), 18 * 96, 96, 0)
    transport = StagedTransport(Comm(), Streams(), backs_off=False)
    plan = planners.plan(collective, parse_pattern(name), 1, call)
    execution = Execution(plan, cp.zeros(call.n_elems, np.float32), "sum", transport)
    kinds = [type(message) for message, _ in execution._messages]
    assert (kinds.count(ForwardedSend), kinds.count(ForwardedSend) + kinds.count(StagedSend)) == (n_passed_on, n_sends)


class Comm:
    """Makes requests that the test completes."""

    def Send_init(self, *arguments):
        return Sent()

    Recv_init = Send_init


@pytest.fixture
def staged(cp):
    """A staged transport with the view of a buffer of 4096 float32 on it."""
    transport = StagedTransport(Comm(), Streams(), backs_off=False)
    return transport, transport.view(cp.zeros(4096, np.float32))


def buffers_of(messages):
    return [id(message._buffer) for message in messages]


@pretend.needs_compiler
def test_sends_to_a_peer_take_two_buffers_in_turn(staged):
    transport, whole = staged
    one, other = (buffers_of(transport.sender(whole[n * 8 : n * 8 + 8], peer) for n in range(4)) for peer in (1, 2))
    assert one[0] == one[2] != one[1] == one[3]
    assert not {*one} & {*other}


@pretend.needs_compiler
def test_a_receives_buffer_is_used_again_when_twice_as_many_as_are_posted_ahead_have_passed(staged):
    transport, whole = staged
    used = buffers_of(transport.receiver(whole[n * 8 : n * 8 + 8], 1) for n in range(4 * RECEIVES_AHEAD))
    assert used[: 2 * RECEIVES_AHEAD] == used[2 * RECEIVES_AHEAD :]
    assert len(set(used)) == 2 * RECEIVES_AHEAD


@pretend.needs_compiler
@pytest.mark.parametrize(("overwrite", "is_forwarded"), [
    (lambda transport, whole: None, True),
    (lambda transport, whole: transport.receiver(whole[8:16], 3), True),
    (lambda transport, whole: transport.receiver(whole[7:9], 3), False),
    (lambda transport, whole: transport.combiner(whole[:1], whole[100:101], "sum"), False),
    (lambda transport, whole: [transport.receiver(whole[80 + n : 81 + n], 3) for n in range(RECEIVES_AHEAD)], False),
])
def test_what_was_received_is_forwarded_until_it_is_overwritten_or_its_buffer_is_due(staged, overwrite, is_forwarded):
    transport, whole = staged
    transport.receiver(whole[:8], 1)
    overwrite(transport, whole)
    assert isinstance(transport.sender(whole[:8], 2), ForwardedSend) == is_forwarded


def test_spans_overlap_where_they_share_a_byte():
    whole = Span(1000, 10, np.dtype(np.float32))
    assert (whole.nbytes, whole[2:5], whole[8:]) == (40, Span(1008, 3, whole.dtype), Span(1032, 2, whole.dtype))
    assert whole[2:5].overlaps(whole[4:6]) and whole.overlaps(whole[3:4]) and whole[3:4].overlaps(whole)
    assert not whole[2:5].overlaps(whole[5:6]) and not whole[5:6].overlaps(whole[2:5])
    assert whole.holds(whole) and whole.holds(whole[:1]) and whole.holds(whole[9:])
    assert not whole[1:].holds(whole[:2]) and not whole[:9].holds(whole[8:])
