"""Writes blobs of a running net to databases of Datums, one database per blob (Caffe 1.0, extract_features)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from queue import Full, Queue

import numpy as np

from scaffe.data.convert.writers import writer_of
from scaffe.errors import UserError
from scaffe.layers.base.blob import Blob
from scaffe.nets.inference.passes import Inference
from scaffe.nets.net import Net
from scaffe.proto import caffe_pb2

Record = tuple[bytes, bytes]
END, ABANDONED = (b"", b""), (b"", b"abandoned")  # no record has an empty key
WAIT_SECONDS = 0.2  # between checks that the writer still runs
MAX_WAITING = 4096  # records queued between the net and a writer


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
    write, passes = writer_of(backend), Inference(net, shown=blobs)
    queues: list[Queue[Record]] = [Queue(MAX_WAITING) for _ in blobs]
    counts = [0] * len(blobs)
    with ThreadPoolExecutor(len(blobs)) as pool:
        writers = [pool.submit(write, folder, _drain(queue), False)
                   for folder, queue in zip(folders, queues, strict=True)]
        is_whole = False
        try:
            for _ in range(n_batches):
                passes.forward()
                for i, name in enumerate(blobs):
                    for record in _records(net.blobs[name], counts[i]):
                        _put(queues[i], record, writers[i])
                        counts[i] += 1
            is_whole = True
        finally:
            for queue, writer in zip(queues, writers, strict=True):
                _put(queue, END if is_whole else ABANDONED, writer)
    return [writer.result() for writer in writers]


def _records(blob: Blob, first: int) -> Iterator[Record]:
    """One Datum per row of the blob; the keys are ten-digit numbers counted from ``first``."""
    if blob.ndim > 4:
        raise UserError(f"a Datum has no place for a blob of shape {blob.shape}; at most 4 axes fit")
    channels, height, width = (*blob.shape[1:], 1, 1, 1)[:3]
    rows = blob.data.astype(np.float32, copy=False)
    for row, values in enumerate(rows.reshape(blob.shape[0], -1) if blob.ndim else rows.reshape(1, 1)):
        datum = caffe_pb2.Datum(channels=channels, height=height, width=width, float_data=values.tolist())
        yield f"{first + row:010d}".encode(), datum.SerializeToString()


def _drain(queue: Queue[Record]) -> Iterator[Record]:
    while (record := queue.get()) != END:
        if record == ABANDONED:
            raise UserError("extraction failed; the database is not written")
        yield record


def _put(queue: Queue[Record], record: Record, writer: Future[int]) -> None:
    """Queue a record. If the writer has ended, raise its error, except for END and ABANDONED, so that all can end."""
    while not writer.done():
        try:
            queue.put(record, timeout=WAIT_SECONDS)
            return
        except Full:
            continue
    if record[0]:
        writer.result()
