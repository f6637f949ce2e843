"""Mean images, as the transformer and the tools read them."""

from __future__ import annotations

from pathlib import Path

from scaffe.data.feeds.parameters import read_mean
from scaffe.files import blobs
from scaffe.proto import caffe_pb2
from tests.fuzz.children import Files
from tests.fuzz.kind import Kind, one_file
from tests.fuzz.mutators import protobuf


def seeds(folder: Path) -> list[Files]:
    """The old form and the new one."""
    old = caffe_pb2.BlobProto(num=1, channels=2, height=2, width=2, data=range(8))
    new = caffe_pb2.BlobProto(double_data=range(8))
    new.shape.dim.extend([1, 2, 2, 2])
    return [{"mean": message.SerializeToString()} for message in (old, new)]


def read(folder: Path) -> None:
    """Both readers."""
    read_mean(str(folder / "mean"))
    blobs.read_mean(folder / "mean")


KIND = Kind(seeds, read, one_file(protobuf.mutate))
