"""What a core reads, beside what bounds it: the decoder alone, and a copy of the cropped bytes alone."""

from __future__ import annotations

import time
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from statistics import median

import numpy as np
from figures import Figures, Sample

from readers_parts.files import BATCH, CROP, SIDE, open_feed

N_BATCHES = 24
COPY, DECODER = "copy of cropped bytes", "decoder alone"
BOUNDS = {"raw LMDB, bytes": COPY, "JPEG LMDB, bytes": DECODER, "JPEG files, bytes": DECODER}


def run(folder: Path, args: Namespace) -> None:
    """Take turns, and print microseconds of processor time an image, and images a second with one and two readers."""
    contents = [np.fromfile(path, np.uint8) for path in sorted(folder.glob("*.jpg"))[:256]]
    rows: dict[str, Callable[[], float]] = {
        COPY: _copied, DECODER: lambda: _decoded(contents),
        "raw LMDB, bytes": lambda: _fed(folder, "raw", True), "raw LMDB, floats": lambda: _fed(folder, "raw", False),
        "JPEG LMDB, bytes": lambda: _fed(folder, "jpeg", True),
        "JPEG files, bytes": lambda: _fed(folder, "files", True)}
    found: dict[str, list[float]] = {name: [] for name in rows}
    walls: dict[tuple[str, int], list[float]] = {}
    for _ in range(args.rounds):
        for name, measure in rows.items():
            found[name].append(measure())
        for kind in ("raw", "jpeg"):
            for n_readers in (1, 2):
                walls.setdefault((kind, n_readers), []).append(_rate(folder, kind, n_readers))
    note = f"Medians of {args.rounds} rounds, one core."
    with Figures("readers-limits", ("what", "us an image", "images/s", "x its bound"), note, args.keep) as table:
        for name, values in found.items():
            bound = found.get(BOUNDS.get(name, ""))
            table.add(name, Sample([1e6 * seconds for seconds in values]), 1 / median(values),
                      bound and median(values) / median(bound))
    with Figures("readers-scaling", ("data", "1 reader, images/s", "2 readers", "x"), note, args.keep) as table:
        for kind in ("raw", "jpeg"):
            one, two = (Sample(walls[kind, n]) for n in (1, 2))
            table.add(kind, one, two, two.median / one.median)


def _copied() -> float:
    """Seconds to copy an image's cropped rows out of larger ones, by NumPy."""
    large, small = (np.zeros((BATCH, side, side, 3), np.uint8) for side in (SIDE, CROP))
    start = time.thread_time()
    for _ in range(N_BATCHES):
        small[...] = large[:, 9:9 + CROP, 7:7 + CROP]
    return (time.thread_time() - start) / (N_BATCHES * BATCH)


def _decoded(contents: list[np.ndarray]) -> float:
    """Seconds in which the decoder alone makes an image, into memory that is there."""
    from simplejpeg import decode_jpeg

    out = np.empty((SIDE, SIDE, 3), np.uint8)
    start = time.thread_time()
    for content in contents:
        decode_jpeg(content, "BGR", buffer=out)
    return (time.thread_time() - start) / len(contents)


def _fed(folder: Path, kind: str, pixels: bool) -> float:
    """Seconds of processor time an image, made in this thread."""
    feed = open_feed(kind, folder, 0, pixels=pixels)
    for _ in range(-(-1024 // BATCH)):
        feed.next()  # the files are in memory then, and mapped
    start = time.thread_time()
    for _ in range(N_BATCHES):
        feed.next()
    seconds = time.thread_time() - start
    feed.close()
    return seconds / (N_BATCHES * BATCH)


def _rate(folder: Path, kind: str, n_readers: int) -> float:
    """Images a second with so many readers, whose consumer only takes."""
    feed = open_feed(kind, folder, n_readers, pixels=True)
    for _ in range(8):
        feed.next()
    start = time.perf_counter()
    for _ in range(2 * N_BATCHES):
        feed.next()
    seconds = time.perf_counter() - start
    feed.close()
    return 2 * N_BATCHES * BATCH / seconds
