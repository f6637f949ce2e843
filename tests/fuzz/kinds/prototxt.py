"""Nets' prototxts of all generations: read, upgraded, filtered, with splits."""

from __future__ import annotations

import random
from pathlib import Path

from scaffe.errors import UserError
from scaffe.nets.graph.prepare import prepare, read_net, upgraded
from scaffe.proto import caffe_pb2
from tests.fuzz.children import Files
from tests.fuzz.kind import Kind, one_file
from tests.fuzz.mutators import messages
from tests.fuzz.nets import NET

V1 = """name: "v1" input: "x" input_dim: 1 input_dim: 3 input_dim: 8 input_dim: 8
layers { name: "conv" type: CONVOLUTION bottom: "x" top: "c" blobs_lr: 1 blobs_lr: 2 weight_decay: 1
  include { phase: TRAIN }
  convolution_param { num_output: 2 kernel_size: 3 weight_filler { type: "xavier" } } }
layers { name: "pool" type: POOLING bottom: "c" top: "p" pooling_param { pool: MAX kernel_size: 2 stride: 2 } }
"""
V0 = """name: "v0"
layers { layer { name: "data" type: "data" source: "db" batchsize: 4 cropsize: 3 meanfile: "m" } top: "d" }
layers { layer { name: "conv" type: "conv" num_output: 3 kernelsize: 3 stride: 2 blobs_lr: 1 } bottom: "d" top: "c" }
layers { layer { name: "pad" type: "padding" pad: 1 } bottom: "c" top: "p" }
layers { layer { name: "conv2" type: "conv" num_output: 3 kernelsize: 3 } bottom: "p" top: "q" }
"""


def seeds(folder: Path) -> list[Files]:
    """Today's form, and the two before."""
    return [{"net.prototxt": text.encode()} for text in (NET, V1, V0)]


def as_messages(rng: random.Random, content: bytes) -> bytes:
    """Fields changed."""
    return messages.mutate(rng, content, caffe_pb2.NetParameter)


def read(folder: Path) -> None:
    """For both phases."""
    message = upgraded(read_net(folder / "net.prototxt"), folder / "net.prototxt")
    for phase in (0, 1):
        try:
            prepare(message, phase)
        except UserError as error:
            raise UserError(f"net.prototxt: {error}") from error  # as those do who have it prepared


KIND = Kind(seeds, read, one_file(as_messages, as_messages, messages.spoil))
