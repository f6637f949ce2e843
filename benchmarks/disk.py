"""What a disk gives the moves of limited memory: GB/s written and read past the page cache, alone and both at once.

    python benchmarks/disk.py [-spill FOLDER] [-gb 8]

The file is written whole first, so that no block is new. Of both at once the figures hold while both last.
"""

from __future__ import annotations

import argparse
import mmap
import threading
import time
from collections.abc import Callable

import numpy as np

from scaffe.nets.memory.tier.spill_file import SpillFile

PART_BYTES = 64 << 20  # of one call, as large as a large layer's share


def gone_through(move: Callable[[np.ndarray, int], None], n_parts: int, until: threading.Event) -> float:
    """Bytes a second of a file gone through once, or until another thread has done so."""
    with mmap.mmap(-1, PART_BYTES) as memory:
        part = np.frombuffer(memory, np.uint8)
        part[...] = 1
        start, n_moved = time.perf_counter(), 0
        while n_moved < n_parts and not until.is_set():
            move(part, n_moved * PART_BYTES)
            n_moved += 1
        until.set()
        seconds = time.perf_counter() - start
        del part
    return n_moved * PART_BYTES / seconds


def both(file: SpillFile, n_parts: int) -> list[float]:
    """Bytes a second written and read at once, by two threads."""
    until, speeds = threading.Event(), [0.0, 0.0]

    def go(i: int, move: Callable[[np.ndarray, int], None]) -> None:
        speeds[i] = gone_through(move, n_parts, until)

    threads = [threading.Thread(target=go, args=(i, move)) for i, move in enumerate((file.write, file.read))]
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
    options = parser.parse_args()
    n_parts = max(1, int(options.gb * 1e9) // PART_BYTES)
    file = SpillFile(options.spill)
    try:
        file.reserve(n_parts * PART_BYTES)
        gone_through(file.write, n_parts, threading.Event())
        alone = [gone_through(move, n_parts, threading.Event()) for move in (file.write, file.read)]
        print(f"{'':10}{'written':>10}{'read':>10}  GB/s")
        for name, speeds in (("alone", alone), ("at once", both(file, n_parts))):
            print(f"{name:10}" + "".join(f"{speed / 1e9:10.2f}" for speed in speeds))
    finally:
        file.close()


if __name__ == "__main__":
    main()
