"""How fast cards compute, and reach their memory and the host's, for plans that are made without the card.

Peaks are those of NVIDIA's data sheets, without sparsity: H200; H100, SXM and PCIe; A100 80 GB SXM; L40S; V100 SXM2.
What nets reach of them was measured on an H200 alone (docs/benchmarks.md), and is taken to be the same part of
every card's.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from scaffe.memory.problem.costs import Speed
from scaffe.memory.problem.iteration import Bandwidth

PART_OF_TF32 = 0.234  # CaffeNet, 256 images, 10.7 ms forward and backward, less its bytes
PART_OF_HALF = 0.344  # ResNet-50 in bfloat16, 256 images, 33.0 ms, likewise; CaffeNet and GoogLeNet reached less
PART_OF_FLOAT = PART_OF_HALF  # nobody measured it
PART_OF_MEMORY = 0.87  # copies and updates: 4.2 TB/s of 4.8
PART_OF_LINK = 0.78  # copies between card and page-locked memory: 50 GB/s each way of 64


@dataclass(frozen=True)
class Card:
    """A card's peaks: teraflops of products by the type of their factors, terabytes a second of its memory, gigabytes a
    second of its link to the host, each way.

    Attributes:
        in_name: the words that CUDA's name of the card has.
    """

    in_name: tuple[str, ...]
    float32: float
    tf32: float
    half: float
    memory: float
    link: float

    def speed(self, dtype: np.dtype, tf32: bool = True) -> Speed:
        """What nets reach whose activations have this type. ``tf32``: whether float32 products may be rounded to
        TF32."""
        tera = (PART_OF_HALF * self.half if dtype.itemsize < 4 else
                PART_OF_TF32 * self.tf32 if tf32 else PART_OF_FLOAT * self.float32)
        return Speed(tera * 1e12 / 2, PART_OF_MEMORY * self.memory * 1e12)

    @property
    def bandwidth(self) -> Bandwidth:
        """What copies reach, both ways at once."""
        each_way = PART_OF_LINK * self.link * 1e9
        return Bandwidth(each_way, each_way, at_once=True)


CARDS = {
    "h200": Card(("H200",), 67, 494.5, 989, 4.8, 64),
    "h100": Card(("H100",), 67, 494.5, 989, 3.35, 64),
    "h100pcie": Card(("H100", "PCIe"), 51, 378, 756, 2.0, 64),
    "a100": Card(("A100",), 19.5, 156, 312, 2.04, 32),
    "l40s": Card(("L40S",), 91.6, 183, 362, 0.864, 32),
    "v100": Card(("V100",), 15.7, 15.7, 125, 0.9, 16),
}
DEFAULT = "h200"  # the only one on which anything was measured


@dataclass(frozen=True)
class CardSpeeds:
    """What a plan is made from. ``source``: whose figures these are, for people."""

    speed: Speed
    bandwidth: Bandwidth
    source: str


def speeds_of(name: str, dtype: np.dtype, tf32: bool = True) -> CardSpeeds:
    """The figures of a card in ``CARDS``; other arguments as for ``Card.speed``."""
    return CardSpeeds(CARDS[name].speed(dtype, tf32), CARDS[name].bandwidth, f"figures of {name}")


def named(name: str) -> str:
    """The key in ``CARDS`` for a card's name as CUDA has it, "NVIDIA H100 80GB HBM3"; empty if it is none of them."""
    words = [(len(card.in_name), key) for key, card in CARDS.items() if all(word in name for word in card.in_name)]
    return max(words)[1] if words else ""
