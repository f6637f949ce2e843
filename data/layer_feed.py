"""From a data layer's message to its feed: what the trainer calls for layers of type Data and their kin."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from data import shard
from data.errors import DataError
from data.feed import Allocate, ImageFeed, Plan
from data.run import Source
from data.transform import Transform, TransformOptions

TRAIN, TEST = 0, 1  # Caffe's Phase


@dataclass
class Share:
    """This rank's part of the data. Its place may be moved until the first batch is asked for (a run that goes on).

    Attributes:
        rank, ranks: this rank and how many there are.
        weak: the net's batch size is each rank's, and the global batch grows with the ranks; else it is shared out.
        first_batch: TRAIN batches that all ranks have had before (iterations times iter_size).
        n_test_iterations: test_iter of a TEST net; 0 for one read without end, by every rank alike.
        first_test: tests that have been before.
    """

    rank: int = 0
    ranks: int = 1
    weak: bool = False
    first_batch: int = 0
    n_test_iterations: int = 0
    first_test: int = 0

    def visits(self, phase: int, batch: int) -> Iterator[np.ndarray]:
        """This rank's visits, batch after batch, for a net whose batch size is ``batch``."""
        if phase == TRAIN:
            yield from shard.train_visits(self.global_batch(batch), self.rank, self.ranks, self.first_batch)
        elif self.n_test_iterations == 0:
            yield from shard.train_visits(batch, 0, 1)
        else:
            yield from shard.test_visits(batch, self.n_test_iterations, self.rank, self.ranks, self.first_test)

    def batch_elems(self, phase: int, batch: int) -> int:
        """Samples in each of this rank's batches."""
        return shard.batch_elems(self.global_batch(batch), self.rank, self.ranks) if phase == TRAIN else batch

    def global_batch(self, batch: int) -> int:
        """TRAIN samples of all ranks together."""
        return batch * self.ranks if self.weak else batch


@dataclass(frozen=True)
class ReaderOptions:
    """How a feed reads.

    Attributes:
        n_threads: reader threads; 0 reads in the caller's thread when asked.
        allocate: gives flat float32 memory for batches (pinned memory, for a GPU); None is NumPy's.
    """

    n_threads: int = 1
    allocate: Allocate | None = None


def open_layer_feed(param: Any, phase: int, share: Share, draw: Callable[[], int],
                    options: ReaderOptions = ReaderOptions()) -> ImageFeed:  # noqa: B008 - frozen
    """The feed of a data layer.

    Args:
        param: the LayerParameter message.
        phase: TRAIN or TEST.
        share: this rank's part.
        draw: gives the next raw number of the net's random stream. As many are taken as Caffe 1.0 takes at this point:
            the thread's seed, and two more for the transformer where it crops or mirrors at random. All ranks must give
            the same numbers.
        options: how to read.

    Raises:
        DataError: the source cannot be read, or the layer's parameters do not fit it.
    """
    if param.type not in _OPENERS:
        raise DataError(f"no feed for layers of type {param.type!r}; known: {', '.join(_OPENERS)}")
    return _OPENERS[param.type](param, phase, share, draw, options)


def transform_options(param: Any, phase: int) -> TransformOptions:
    """The options of a TransformationParameter message, its mean file read."""
    mean_image = read_mean(param.mean_file) if param.HasField("mean_file") else None
    return TransformOptions(param.scale, param.mirror, param.crop_size, tuple(param.mean_value), mean_image,
                            random_crop=phase == TRAIN)


def read_mean(path: str) -> np.ndarray:
    """The float32 (channels, height, width) array of a mean file (a BlobProto). Raises DataError."""
    from google.protobuf.message import DecodeError

    from scaffe.proto import caffe_pb2

    blob = caffe_pb2.BlobProto()
    try:
        blob.ParseFromString(Path(path).read_bytes())
    except OSError as error:
        raise DataError(f"mean file {path}: {error.strerror or error}") from None
    except DecodeError:
        raise DataError(f"mean file {path}: not a BlobProto") from None
    shape = tuple(blob.shape.dim) or (blob.num, blob.channels, blob.height, blob.width)
    values = np.array(blob.data or blob.double_data, np.float32)
    if len(shape) not in (3, 4) or (len(shape) == 4 and shape[0] != 1) or np.prod(shape) != values.size:
        raise DataError(f"mean file {path}: expected one image, found {values.size} values of shape {shape}")
    return values.reshape(shape[-3:])


def open_database(path: str) -> Source:
    """The source for a database folder, whatever kind it is: the folder's files tell, not the message's default."""
    from data.sources.lmdb import LmdbSource

    if (Path(path) / "CURRENT").exists():
        raise DataError(f"{path}: LevelDB is not supported yet; convert it to LMDB")
    return LmdbSource(path)


def _open_data(param: Any, phase: int, share: Share, draw: Callable[[], int], options: ReaderOptions) -> ImageFeed:
    data = param.data_param
    if data.batch_size < 1:
        raise DataError("data_param needs a batch_size above 0")
    transform = Transform(transform_options(param.transform_param, phase))
    source = open_database(data.source)
    seed = _transform_seed(transform, draw)
    plan = Plan(share.visits(phase, data.batch_size), share.batch_elems(phase, data.batch_size),
                shard.InOrder(source.n_records), seed)
    return ImageFeed(source, plan, transform, options.n_threads, max(1, data.prefetch), options.allocate)


def _transform_seed(transform: Transform, draw: Callable[[], int]) -> int:
    """Take the draws that Caffe takes: the transformer is seeded twice, the second one counts, then the thread's."""
    seed = 0
    if transform.draws_per_visit:
        draw()
        seed = int(draw())
    draw()
    return seed


_OPENERS: dict[str, Callable[..., ImageFeed]] = {"Data": _open_data}
