"""Trained nets."""

from __future__ import annotations

from pathlib import Path

from scaffe.files.weights import read_model, upgrade_model
from scaffe.proto import caffe_pb2
from tests.fuzz.children import Files
from tests.fuzz.kind import Kind, one_file
from tests.fuzz.mutators import protobuf
from tests.fuzz.nets import snapshots, solver


def seeds(folder: Path) -> list[Files]:
    """Our own, and an old one with layers of the first generation."""
    old = caffe_pb2.NetParameter(name="small")
    layer = old.layers.add(name="ip", type=caffe_pb2.V1LayerParameter.INNER_PRODUCT, blobs_lr=[1, 2])
    layer.inner_product_param.num_output = 5
    layer.blobs.add(num=1, channels=1, height=5, width=64, data=range(320))
    layer.blobs.add(double_data=range(5)).shape.dim.append(5)
    return [{"a.caffemodel": snapshots(folder, "")[0].read_bytes()}, {"a.caffemodel": old.SerializeToString()}]


def read(folder: Path) -> None:
    """Read, loaded and upgraded."""
    read_model(folder / "a.caffemodel")
    solver().net.copy_from(str(folder / "a.caffemodel"))
    upgrade_model(folder / "a.caffemodel", folder / "new.caffemodel")


KIND = Kind(seeds, read, one_file(protobuf.mutate))
