"""CaffeNet in bfloat16 on a GPU from records, beside constant images on the device and beside the decoder alone."""

from __future__ import annotations

import json
import os
import threading
import time
from argparse import Namespace
from pathlib import Path

import numpy as np
from nets.prototxt import prototxt

from readers_parts.files import SIDE
from readers_parts.flags import CROPPED, DATA, rate, write_solver

BATCH = 256
CONSTANT = """layer { name: "data" type: "DummyData" top: "data" top: "label" dummy_data_param {
  shape { dim: 256 dim: 3 dim: 227 dim: 227 } shape { dim: 256 } data_filler { value: 1 } data_filler { value: 3 } } }
"""
RUNS = [("constant", "auto", 800), ("raw", "auto", 800), ("raw", "1", 400), ("raw", "4", 800), ("jpeg", "auto", 400),
        ("jpeg", "14", 400), ("jpeg", "8", 400, "-decode", "gpu")]


def run(folder: Path, args: Namespace) -> None:
    """Print a row a run, and write the JSON after each. The first run plans for cuDNN, which the others find."""
    rows: list[dict[str, object]] = []
    for kind, readers, n_iterations, *flags in RUNS:
        source = CONSTANT if kind == "constant" else DATA.format(transform=CROPPED, source=folder / kind, batch=BATCH)
        layers = prototxt("caffenet", BATCH).split("\n", 2)[2]  # without its name and Input layer
        (folder / "net.prototxt").write_text(source + layers)
        write_solver(folder, n_iterations)
        try:
            found = rate(folder / "solver.prototxt", n_iterations, BATCH, "-gpu", "0", "-precision", "bf16", "-readers",
                         readers, *flags)
            rows.append({"data": kind, "readers": readers, "flags": flags, "images_per_s": round(found)})
        except SystemExit as error:
            rows.append({"data": kind, "readers": readers, "error": str(error)})
        print(rows[-1], flush=True)
        _write(args, rows)
    n_cores = len(os.sched_getaffinity(0))
    rows.append({"data": "decoder alone", "readers": n_cores, "images_per_s": round(_decoders(folder, n_cores))})
    print(rows[-1])
    _write(args, rows)


def _write(args: Namespace, rows: list[dict[str, object]]) -> None:
    if args.json:
        Path(args.json).write_text(json.dumps(rows, indent=1) + "\n")


def _decoders(folder: Path, n_threads: int) -> float:
    """Images a second that so many threads decode which do nothing else."""
    from simplejpeg import decode_jpeg

    contents = [np.fromfile(path, np.uint8) for path in sorted(folder.glob("*.jpg"))[:512]]

    def work() -> None:
        out = np.empty((SIDE, SIDE, 3), np.uint8)
        for content in contents:
            decode_jpeg(content, "BGR", buffer=out)

    threads = [threading.Thread(target=work) for _ in range(n_threads)]
    start = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return n_threads * len(contents) / (time.perf_counter() - start)
