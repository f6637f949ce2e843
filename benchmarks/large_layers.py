"""Fully connected layers of 373 MB each, more and more of them within one limit (GeePS, EuroSys 2016, Fig. 12).

    python benchmarks/large_layers.py -memory 2GB [-layers 2,4,8] [-mb 373] [-batch 64] [-spill FOLDER] [--keep]

Each number of layers is one run of ``scaffe train`` in a process of its own. Connections a second are weights times
images; they stay flat as long as the disk allows. A model is its parameters, gradients, histories and activations.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from math import isqrt
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parent))

from figures import Figures, add_flag  # noqa: E402
from memory import Runs, run  # noqa: E402

FILLER = 'weight_filler { type: "xavier" }'
N_HISTORIES = {"SGD": 1, "Adam": 2}


def files(folder: Path, n_layers: int, width: int, options: argparse.Namespace) -> None:
    """Write the net, as wide everywhere, with inputs drawn at random, and its solver."""
    lines = ['layer { name: "in" type: "DummyData" top: "y0" top: "label" dummy_data_param { '
             f"shape {{ dim: {options.batch} dim: {width} }} shape {{ dim: {options.batch} }} "
             'data_filler { type: "gaussian" std: 1 } data_filler { type: "constant" value: 1 } } }']
    for i in range(n_layers):
        lines.append(f'layer {{ name: "ip{i + 1}" type: "InnerProduct" bottom: "y{i}" top: "y{i + 1}" '
                     f'inner_product_param {{ num_output: {width} bias_term: false {FILLER} }} }}')
        lines.append(f'layer {{ name: "relu{i + 1}" type: "ReLU" bottom: "y{i + 1}" top: "y{i + 1}" }}')
    lines.append(f'layer {{ name: "loss" type: "SoftmaxWithLoss" bottom: "y{n_layers}" bottom: "label" top: "loss" }}')
    (folder / "net.prototxt").write_text("\n".join(lines))
    momentum = "momentum: 0.9" + (" momentum2: 0.999 delta: 1e-8" if options.type == "Adam" else "")
    (folder / "solver.prototxt").write_text(
        f'net: "net.prototxt" type: "{options.type}" base_lr: 0.0001 {momentum} lr_policy: "fixed" display: 1 '
        f"random_seed: 7 snapshot_after_train: false max_iter: {options.iterations}\n")


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-memory", default="2GB")
    parser.add_argument("-layers", default="2,4,8")
    parser.add_argument("-mb", type=int, default=373, help="of one layer's weights")
    parser.add_argument("-batch", type=int, default=64)
    parser.add_argument("-type", default="SGD", choices=sorted(N_HISTORIES))
    parser.add_argument("-placement", default="auto")
    parser.add_argument("-spill", default=".")
    parser.add_argument("-iterations", type=int, default=8)
    parser.add_argument("-threads", type=int, default=1)
    parser.set_defaults(gpu="", display=1)
    add_flag(parser)
    options = parser.parse_args()
    options.spill = str(Path(options.spill).resolve())
    width = isqrt(options.mb * 1_000_000 // 4)
    note = (f"{options.mb} MB a layer, batch {options.batch}, {options.type}, {options.threads} thread(s), "
            f"limit {options.memory}.")
    columns = ("layers", "model, GB", "connections/s, billion", "peak, MB", "page faults", "moves of the run")
    with Figures("large-layers", columns, note, options.keep, variant=options.memory.lower()) as table:
        for n_layers in map(int, options.layers.split(",")):
            runs = Runs(options.memory)
            with tempfile.TemporaryDirectory() as folder:
                files(Path(folder), n_layers, width, options)
                run(Path(folder), runs, options)
            model = 4 * n_layers * (width**2 * (2 + N_HISTORIES[options.type]) + 2 * options.batch * width)
            table.add(str(n_layers), model / 1e9, n_layers * width**2 * options.batch * median(runs.paces) / 1e9,
                      runs.peak_bytes / 1e6, runs.n_faults, runs.moved)


if __name__ == "__main__":
    main()
