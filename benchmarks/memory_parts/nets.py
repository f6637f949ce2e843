"""The nets that are trained in limited memory, on generated images, and their solvers."""

from __future__ import annotations

import re

from nets.prototxt import prototxt

INPUT = re.compile(r'layer \{ name: "input".*\n')
OUTPUTS = re.compile(r"num_output: (\d+)")
LEAST_OUTPUTS = 16
SHAPE = re.compile(r"shape \{ ((?:dim: \d+ ?)+)\}")
FILLERS = ('type: "gaussian" std: 1', 'type: "constant" value: 1')  # on the host, on a GPU
SOLVER = ('base_lr: 0.001 momentum: 0.9 lr_policy: "fixed" random_seed: 7 snapshot_prefix: "run" '
          "snapshot_after_train: false")


def net_text(net: str, batch: int, narrow: int, on_gpu: bool) -> str:
    """A net with images drawn at random, or constant on a GPU, so that the host draws none. ``narrow`` divides the
    outputs of its layers."""
    text = OUTPUTS.sub(lambda found: f"num_output: {_fewer(int(found[1]), narrow)}", prototxt(net, batch))
    given = INPUT.search(text)
    if given is None:
        raise SystemExit(f"{net} has no input")
    shapes = " ".join(f"shape {{ {shape} }}" for shape in SHAPE.findall(given[0]))
    data = (f'layer {{ name: "input" type: "DummyData" top: "data" top: "label" dummy_data_param {{ {shapes} '
            f'data_filler {{ {FILLERS[on_gpu]} }} data_filler {{ type: "constant" value: 1 }} }} }}\n')
    return text.replace(given[0], data)


def _fewer(n_outputs: int, narrow: int) -> int:
    return max(n_outputs // narrow, min(n_outputs, LEAST_OUTPUTS))
