"""An LMDB of random images for a net, and the net that reads it."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

import numpy as np
from nets.architectures import ARCHITECTURES
from nets.prototxt import prototxt

from scaffe.data.convert.writers import write_lmdb
from scaffe.data.records.datum import encode_image

MARGIN = 29
"""Pixels that cropping takes off: of 256 for CaffeNet."""
DATA = """layer {{ name: "data" type: "Data" top: "data" top: "label"
  transform_param {{ crop_size: {side} mirror: true mean_value: 128 scale: 0.0078125 }}
  data_param {{ source: "{path}" batch_size: {batch} backend: LMDB }} }}
"""
FLAGS = {"scal": "strong", "threads": 0, "readers": 0, "level": 0, "stage": "", "gpu": "all", "allow_nan": False,
         "skip_bad_records": 0, "bucket": "auto"}
"""Those of ``train`` that are the same for all ways; 0: automatic."""


def write(path: Path, name: str, n_images: int) -> None:
    """Write so many images of a net's, as pixels, larger by ``MARGIN``."""
    net, rng = ARCHITECTURES[name](), np.random.default_rng(1)
    channels, *sides = net.image
    shape = (channels, *(side + MARGIN for side in sides))
    write_lmdb(path, ((b"%08d" % i, encode_image(rng.integers(0, 256, shape, np.uint8), i % net.n_classes))
                      for i in range(n_images)))


def reading(name: str, batch: int, path: Path) -> str:
    """The training net's text; the batch is that of all ranks together."""
    layers = prototxt(name, batch).split("\n", 2)[2]  # without its name and Input layer
    return DATA.format(side=ARCHITECTURES[name]().image[1], path=path, batch=batch) + layers


def flags(strategy: str, reduce: str, wire: str, precision: str) -> Namespace:
    """What ``train`` would be told of a way; tf32 is float32 with products in TF32."""
    return Namespace(strategy=strategy, reduce=reduce, wire=wire, precision=precision.replace("tf32", "fp32"),
                     tf32="on" if precision == "tf32" else "off", **FLAGS)
