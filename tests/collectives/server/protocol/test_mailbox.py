"""Mailboxes among threads: every message once, each sender's in order, also where the ring is much too small."""

import threading

import numpy as np
import pytest

from scaffe.collectives.server.protocol.mailbox import Mailbox, mailbox_bytes
from scaffe.collectives.server.protocol.messages import (
    N_NUMBERS,
    Clock,
    Copy,
    Final,
    Kept,
    Read,
    Ready,
    Release,
    Update,
    WorkerLeft,
    decode,
    encode,
)


def mailbox(n_slots):
    made = Mailbox(np.zeros(mailbox_bytes(n_slots) + 64, np.uint8)[: mailbox_bytes(n_slots)], n_slots)
    made.prepare()
    return made


@pytest.mark.parametrize("n_slots", [2, 4, 64])
def test_every_message_once_and_each_senders_in_order(n_slots):
    box, n_senders, n_messages = mailbox(n_slots), 3, 200

    def send(sender):
        for number in range(n_messages):
            box.put(np.array([sender, number, *range(5)], np.int64), lambda: None)

    threads = [threading.Thread(target=send, args=(sender,)) for sender in range(n_senders)]
    for thread in threads:
        thread.start()
    numbers, found = np.empty(N_NUMBERS, np.int64), [[] for _ in range(n_senders)]
    for _ in range(n_senders * n_messages):
        assert box.take(numbers, 60)
        assert numbers[2:].tolist() == list(range(5))
        found[numbers[0]].append(int(numbers[1]))
    assert found == [list(range(n_messages))] * n_senders
    for thread in threads:
        thread.join()
    assert not box.take(numbers, 0.001)


def test_who_finds_no_room_looks_around():
    box = mailbox(2)
    numbers = np.zeros(N_NUMBERS, np.int64)
    for _ in range(2):
        box.put(numbers, lambda: None)

    def look_around():
        raise TimeoutError

    with pytest.raises(TimeoutError):
        box.put(numbers, look_around, 0.001)


@pytest.mark.parametrize("message", [Update(3, 2**40, 5, (0.1, -7.0)), Clock(3, 9), Read(3, 4, 5, 2), WorkerLeft(3),
                                     None, Ready(1, 2, 3), Release(8), Final(6), Copy(70000), Kept(3)])
def test_messages_go_through_numbers_and_back(message):
    assert decode(encode(message, 3, 70_000)) == (3, 70_000, message)
