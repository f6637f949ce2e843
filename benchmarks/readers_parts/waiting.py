"""How many of 12 readers are at work at once, where the decoder only waits."""

from __future__ import annotations

import threading
import time
from argparse import Namespace
from pathlib import Path
from typing import Any
from unittest import mock

from figures import Figures

from readers_parts.files import BATCH, open_feed
from scaffe.data.records import datum

N_READERS, WAIT = 12, 0.002


def run(folder: Path, args: Namespace) -> None:
    """Print images a second, and the most readers at work at once, by Caffe's ``prefetch`` of 4."""
    decode, lock, at_work, most = datum.decode, threading.Lock(), [0], [0]

    def waits(*arguments: Any) -> Any:
        with lock:
            at_work[0] += 1
            most[0] = max(most[0], at_work[0])
        time.sleep(WAIT)
        with lock:
            at_work[0] -= 1
        return first

    feed = open_feed("jpeg", folder, 0, pixels=True)
    with mock.patch.object(datum, "decode", side_effect=lambda *a: decode(*a)) as spy:
        feed.next()
        first = decode(*spy.call_args_list[0].args[:2])
    columns = ("readers", "images/s", "if none ever waited", "at work at once")
    with Figures("readers-waiting", columns, "A decoder that waits 2 ms.", args.keep) as table:
        for n_readers in (4, N_READERS):
            most[0] = 0
            with mock.patch.object(datum, "decode", waits):
                feed = open_feed("jpeg", folder, n_readers, pixels=True)
                feed.next()
                start = time.perf_counter()
                for _ in range(40):
                    feed.next()
                seconds = time.perf_counter() - start
                feed.close()
            table.add(str(n_readers), 40 * BATCH / seconds, n_readers / WAIT, most[0])
