"""What a disk gives the moves of limited memory: GB/s written and read past the page cache, alone and both at once.

    python benchmarks/disk.py [-spill FOLDER] [-gb 8] [-at_once 1,4]

Arrays move in the trainer's own lanes; ``-at_once`` says how many pieces a lane has under way. The file is written
whole first, so that no block is new. Of both at once the figures hold while both last.
"""

from __future__ import annotations

import argparse
import mmap
import threading
import time
from collections import deque

import launcher  # noqa: F401 - finds scaffe
import numpy as np

from scaffe.memory.backing import spill_file
from scaffe.memory.backing.spill_file import DiskLane, DiskLanes, Move, SpillFile

PART_BYTES = 64 << 20  # of one move, as large as a large layer's share


def gone_through(lane: DiskLane, n_parts: int, until: threading.Event) -> float:
    """Bytes a second of a file gone through once, or until another thread has done so, two moves ahead."""
    with mmap.mmap(-1, PART_BYTES) as memory:
        part = np.frombuffer(memory, np.uint8)
        part[...] = 1
        start, begun, moves = time.perf_counter(), lane.n_bytes, deque[Move]()
        for number in range(n_parts):
            moves.append(lane.begin(part, number * PART_BYTES, "part"))
            if len(moves) == 2:
                moves.popleft().wait()
            if until.is_set():
                break
        n_moved, seconds = lane.n_bytes - begun, time.perf_counter() - start
        until.set()
        for move in moves:
            move.wait()
        del part
    return n_moved / seconds


def both(lanes: DiskLanes, n_parts: int) -> list[float]:
    """Bytes a second written and read at once."""
    until, speeds = threading.Event(), [0.0, 0.0]

    def go(i: int, lane: DiskLane) -> None:
        speeds[i] = gone_through(lane, n_parts, until)

    threads = [threading.Thread(target=go, args=(i, lane)) for i, lane in enumerate((lanes.out, lanes.back))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return speeds


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-spill", default=".")
    parser.add_argument("-gb", type=float, default=8)
    parser.add_argument("-at_once", default="1,4")
    options = parser.parse_args()
    n_parts = max(2, int(options.gb * 1e9) // PART_BYTES)
    file = SpillFile(options.spill)
    try:
        file.reserve(n_parts * PART_BYTES)
        first = DiskLanes(file)
        gone_through(first.out, n_parts, threading.Event())
        first.close()
        print(f"{'pieces':10}{'':10}{'written':>10}{'read':>10}  GB/s")
        for n_at_once in options.at_once.split(","):
            spill_file.N_AT_ONCE = int(n_at_once)
            lanes = DiskLanes(file)
            alone = [gone_through(lane, n_parts, threading.Event()) for lane in (lanes.out, lanes.back)]
            for name, speeds in (("alone", alone), ("at once", both(lanes, n_parts))):
                print(f"{n_at_once:10}{name:10}" + "".join(f"{speed / 1e9:10.2f}" for speed in speeds), flush=True)
            lanes.close()
    finally:
        file.close()


if __name__ == "__main__":
    main()
