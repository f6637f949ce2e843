"""Window files and their images."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np

from scaffe.data.feeds.layer_feed import TRAIN, ReaderOptions, Share, open_layer_feed
from tests.fuzz.children import Files
from tests.fuzz.kind import Kind, one_file
from tests.fuzz.layers import draw, layer
from tests.fuzz.mutators.messages import spoil
from tests.fuzz.mutators.numbers import FLOATS, whole
from tests.fuzz.records import png

TEXT = ("# 0\na.png\n3\n12\n10\n4\n1 0.9 2 3 8 9\n2 0.6 0 0 9 11\n1 0.2 5 5 8 9\n3 0.4 1 1 2 2\n"
        "# 1\nb.png\n3\n9\n9\n2\n4 1.0 3 1 8 8\n1 0.0 0 0 8 8\n")


def seeds(folder: Path) -> list[Files]:
    """Two images."""
    rng = np.random.default_rng(0)
    return [{"windows.txt": TEXT.encode(), "a.png": png(rng.integers(0, 255, (12, 10, 3), np.uint8)),
             "b.png": png(rng.integers(0, 255, (9, 9, 3), np.uint8))}]


def number(rng: random.Random, content: bytes) -> bytes:
    """A word of the file is another number."""
    lines = content.split(b"\n")
    at = rng.randrange(len(lines))
    words = lines[at].split(b" ")
    words[rng.randrange(len(words))] = (str(whole(rng)) if rng.random() < 0.7 else rng.choice(FLOATS)).encode()
    lines[at] = b" ".join(words)
    return b"\n".join(lines)


def read(folder: Path) -> None:
    """Batches, warped and squared."""
    for mode, pad in (("warp", 0), ("square", 2)):
        param = layer(f'type: "WindowData" window_data_param {{ source: "{folder}/windows.txt" batch_size: 8 '
                      f'crop_mode: "{mode}" context_pad: {pad} root_folder: "{folder}/" fg_threshold: 0.5 '
                      'bg_threshold: 0.3 } transform_param { crop_size: 7 mirror: true }')
        feed = open_layer_feed(param, TRAIN, Share(), draw, ReaderOptions(0))
        for _ in range(3):
            feed.next()


KIND = Kind(seeds, read, one_file(number, number, spoil))
