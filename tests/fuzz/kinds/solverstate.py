"""What a run goes on from, with the weights beside it."""

from __future__ import annotations

import zlib
from pathlib import Path

from scaffe.proto import caffe_pb2
from tests.fuzz.children import Files
from tests.fuzz.kind import Kind, one_file
from tests.fuzz.mutators import protobuf
from tests.fuzz.nets import snapshots, solver


def seeds(folder: Path) -> list[Files]:
    """With and without a checksum; Caffe's have none."""
    model, state = snapshots(folder, "")
    message = caffe_pb2.SolverState.FromString(state.read_bytes())
    message.learned_net = "a.caffemodel"
    for name in ("checksum", "model_checksum"):
        message.ClearField(name)
    bare = message.SerializeToString()
    whole = bare + b"\xbd\x6a" + zlib.crc32(bare).to_bytes(4, "little")
    return [{"a.solverstate": content, "a.caffemodel": model.read_bytes()} for content in (bare, whole)]


def read(folder: Path) -> None:
    """Restored; a forked child cannot compute, its threads are gone."""
    solver().restore(str(folder / "a.solverstate"))


KIND = Kind(seeds, read, one_file(protobuf.mutate))
