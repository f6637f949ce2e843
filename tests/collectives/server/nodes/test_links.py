"""Messages without rows over MPI's requests, whose ends are found in any order."""

import random

import pytest

from scaffe.collectives.runtime.point_to_point import Envelope
from scaffe.collectives.server.nodes.links import Links
from scaffe.collectives.server.protocol.messages import N_NUMBERS


class Receive:
    """A receive as MPI has it: it is filled in the order posted, and is found done whenever somebody looks."""

    def __init__(self, array):
        self.array, self.envelope, self.is_found = array, None, False

    def test(self):
        return self.envelope

    def cancel(self):
        pass


class Messages:
    """What ``Links`` asks of MPI: ``test_some`` finds any of those that are done, as where other threads move MPI on
    between its looks at one request and the next."""

    def __init__(self, seed):
        self.rng, self.posted, self.n_found = random.Random(seed), [], 0

    def irecv(self, array, _source, _tag):
        self.posted.append(Receive(array))
        return self.posted[-1]

    def arrives(self, peer, number):
        """A message with this number, into the oldest receive that is free."""
        if (receive := next((r for r in self.posted if r.envelope is None), None)) is not None:
            receive.array[:] = number
            receive.envelope = Envelope(peer, 0, receive.array.nbytes)
        return receive is not None

    def test_some(self, receives):
        found = [index for index, r in enumerate(receives) if r.envelope is not None and self.rng.random() < 0.3]
        self.posted = [r for r in self.posted if r not in [receives[index] for index in found]]
        self.n_found += len(found)
        return found


@pytest.mark.parametrize("seed", range(20))
def test_messages_of_a_peer_are_taken_in_the_order_sent_whenever_their_receives_are_found_done(seed):
    messages, taken = Messages(seed), []
    links = Links(messages, lambda numbers, tag, peer: taken.append((peer, int(numbers[0]), tag)))
    sent = [(messages.rng.randrange(3), number) for number in range(100)]
    left = list(sent)
    while len(taken) < len(sent):
        while left and messages.rng.random() < 0.8 and messages.arrives(*left[0]):
            left.pop(0)
        links.poll()
        assert links.is_idle == (len(taken) == messages.n_found)  # not while one is held back for another
    assert taken == [(peer, number, number) for peer, number in sent]
    assert len(messages.posted) == len({id(r.array) for r in messages.posted})
    assert all(r.array.size == N_NUMBERS + 1 for r in messages.posted)
    links.close()
