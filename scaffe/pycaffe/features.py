"""Writes blobs of a running net to databases of Datums, one database per blob (Caffe 1.0, extract_features)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from queue import Full, Queue

import numpy as np

from scaffe.data.convert.writers import writer_of
from scaffe.data.records.datum import FLOAT, FLOAT_DATA
from scaffe.errors import UserError
from scaffe.nets.inference.passes import Inference
from scaffe.nets.net import Net
from scaffe.proto import caffe_pb2

Record = tuple[bytes, bytes]
Rows = np.ndarray | None  # float32 (rows, channels, height, width) of one pass; None: the extraction has failed
END = np.empty((0, 1, 1, 1), np.float32)
WAIT_SECONDS = 0.2  # between checks that the writer still runs
MOST_WAITING = 2  # passes whose rows wait for a writer
TAGGED = np.dtype([("tag", "u1"), ("value", "<f4")])
"""A float of a Datum: each has a tag of its own (not packed), as Caffe writes them."""


def extract_features(net: Net, blobs: Sequence[str], folders: Sequence[str], n_batches: int,
                     backend: str = "lmdb") -> list[int]:
    """Run the net forward and write each blob's rows, in order, to a database of its own.

    Args:
        net: the net; it reads its own data.
        blobs: names of the blobs to write.
        folders: one database folder per blob.
        n_batches: number of forward passes.
        backend: the databases' kind.

    Returns:
        The number of records written to each database.

    Raises:
        ValueError: an unknown blob, not one folder per blob, or a database that exists or cannot be written.
    """
    if len(blobs) != len(folders):
        raise UserError(f"expected as many databases as blobs, got {len(folders)} for {len(blobs)}")
    for name in blobs:
        if name not in net.blobs:
            raise UserError(f"the net has no blob {name!r}; it has: {', '.join(net.blobs)}")
    for folder in folders:
        if Path(folder).exists():
            raise UserError(f"{folder}: exists already")
    write, passes, to_host = writer_of(backend), Inference(net, shown=blobs), net.context.kernels.to_host
    queues: list[Queue[Rows]] = [Queue(MOST_WAITING) for _ in blobs]
    with ThreadPoolExecutor(len(blobs)) as pool:
        writers = [pool.submit(write, folder, _records(queue), False)
                   for folder, queue in zip(folders, queues, strict=True)]
        last = None
        try:
            for _ in range(n_batches):
                passes.forward()
                for name, queue, writer in zip(blobs, queues, writers, strict=True):
                    _put(queue, _rows(to_host(net.blobs[name].data)), writer)
            last = END
        finally:
            for queue, writer in zip(queues, writers, strict=True):
                _put(queue, last, writer)
    return [writer.result() for writer in writers]


def _rows(values: np.ndarray) -> np.ndarray:
    """A copy of a blob's values, each of its rows as a Datum's three axes."""
    if values.ndim > 4:
        raise UserError(f"a Datum has no place for a blob of shape {values.shape}; at most 4 axes fit")
    return np.array(values, np.float32, order="C").reshape((*values.shape, 1, 1, 1, 1)[:4])


def _records(queue: Queue[Rows]) -> Iterator[Record]:
    """A Datum for each row of what is queued until END; the keys are ten-digit numbers counted from 0."""
    done = 0
    while (rows := queue.get()) is not END:
        if rows is None:
            raise UserError("extraction failed; the database is not written")
        channels, height, width = rows.shape[1:]
        head = caffe_pb2.Datum(channels=channels, height=height, width=width).SerializeToString()
        tagged = np.empty(channels * height * width, TAGGED)
        tagged["tag"] = FLOAT_DATA << 3 | FLOAT
        for values in rows:
            tagged["value"] = values.reshape(-1)
            yield f"{done:010d}".encode(), head + tagged.tobytes()
            done += 1


def _put(queue: Queue[Rows], rows: Rows, writer: Future[int]) -> None:
    """Queue what one pass gave. If the writer has ended, raise its error, unless this is the last entry."""
    while not writer.done():
        try:
            queue.put(rows, timeout=WAIT_SECONDS)
            return
        except Full:
            continue
    if rows is not None and rows is not END:
        writer.result()
