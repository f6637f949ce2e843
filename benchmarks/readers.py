"""What our readers give a second: beside the decoder and a copy alone, PyTorch's DataLoader, NVIDIA DALI, and by hand.

    python benchmarks/readers.py limits [--rounds N]
    python benchmarks/readers.py peers --peer PYTHON [--threads N] [--rounds N] [--only NAME ...]
    python benchmarks/readers.py waiting
    python benchmarks/readers.py flags [--rounds N]
    python benchmarks/readers.py card [--json FILE]

``limits``: images a second and core, beside what bounds them. ``peers``: PYTHON needs torch, torchvision, pillow, lmdb
and opencv-python-headless, for DALI nvidia-dali-cuda120; each pair takes turns, and the sums of a batch without random
crops are compared first. ``waiting``: how many of 12 readers are at work at once where the decoder only waits.
``flags``: training runs with ``-readers auto`` beside 1 and 2. ``card``: CaffeNet on a GPU, in some two minutes.
Images are 256 x 256 of natural detail, cropped to 227, mirrored, mean subtracted.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parent.parent), str(Path(__file__).resolve().parent)]

from figures import add_flag  # noqa: E402
from readers_parts import card, flags, limits, peers, waiting  # noqa: E402
from readers_parts.files import make_files  # noqa: E402

PARTS = {"limits": limits.run, "peers": peers.run, "waiting": waiting.run, "flags": flags.run, "card": card.run}


def main() -> None:
    """Make the files and run one part."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=tuple(PARTS))
    parser.add_argument("--peer", help="a Python with torch, torchvision, pillow, lmdb and OpenCV")
    parser.add_argument("--only", nargs="*", default=[], help="peers to run: cv2, torchvision, pil, dali")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="readers on either side")
    parser.add_argument("--json", help="where the card's rows go")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--images", type=int, default=1024)
    add_flag(parser)
    args = parser.parse_args()
    if args.part == "peers" and not args.peer:
        parser.error("peers need --peer PYTHON")
    with tempfile.TemporaryDirectory() as name:
        make_files(Path(name), args.images)
        PARTS[args.part](Path(name), args)


if __name__ == "__main__":
    main()
