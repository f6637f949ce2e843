"""An architecture as Caffe's prototxt.

    python benchmarks/nets/prototxt.py NET [BATCH]
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from nets.architectures import ARCHITECTURES, BATCHES, Architecture, Op  # noqa: E402

FILLED = 'weight_filler { type: "xavier" }'
WINDOW = "kernel_size: {kernel} stride: {stride} pad: {pad}"


def prototxt(name: str, batch: int) -> str:
    """The training net's text; images and labels are inputs."""
    net = ARCHITECTURES[name]()
    shape = " ".join(f"dim: {n}" for n in (batch, *net.image))
    inputs = (f'layer {{ name: "input" type: "Input" top: "data" top: "label" input_param {{ '
              f'shape {{ {shape} }} shape {{ dim: {batch} }} }} }}')
    return "\n".join([f'name: "{name}"', inputs, *(_layer(net, op) for op in net.ops)]) + "\n"


def deploy(name: str, batch: int) -> str:
    """The text of the net that classifies: from its input "data" to the probabilities "prob" of its last head."""
    net = ARCHITECTURES[name]()
    loss = net.ops[-1]
    wanted, kept = {loss.bottoms[0]}, []
    for op in reversed(net.ops[:-1]):
        if op.top in wanted:
            wanted.update(op.bottoms)
            kept.append(op)
    shape = " ".join(f"dim: {n}" for n in (batch, *net.image))
    return "\n".join([f'name: "{name}"', 'layer { name: "input" type: "Input" top: "data" input_param { shape { '
                      f"{shape} }} }} }}", *(_layer(net, op) for op in reversed(kept)),
                      f'layer {{ name: "prob" type: "Softmax" bottom: "{loss.bottoms[0]}" top: "prob" }}']) + "\n"


def _layer(net: Architecture, op: Op) -> str:
    if op.kind == "bn":
        scale = f'scale_param {{ bias_term: true }} bottom: "{op.top}" top: "{op.top}"'
        return (f'layer {{ name: "{op.name}" type: "BatchNorm" bottom: "{op.top}" top: "{op.top}" }}\n'
                f'layer {{ name: "scale_{op.name}" type: "Scale" {scale} }}')
    kind, options = _describe(net, op)
    bottoms = " ".join(f'bottom: "{b}"' for b in op.bottoms)
    return f'layer {{ name: "{op.name}" type: "{kind}" {bottoms} top: "{op.top}" {options} }}'


def _describe(net: Architecture, op: Op) -> tuple[str, str]:
    """Caffe's layer type and its parameter's text."""
    o, n = op.options, net.channels[op.top]
    texts = {
        "conv": lambda: ("Convolution", f"convolution_param {{ num_output: {n} {WINDOW.format(**o)} "
                                        f"group: {o['group']} {FILLED} "
                                        f"bias_term: {str(o['bias']).lower()} }}"),
        "fc": lambda: ("InnerProduct", f"inner_product_param {{ num_output: {n} {FILLED} }}"),
        "relu": lambda: ("ReLU", ""),
        "max": lambda: ("Pooling", f"pooling_param {{ pool: MAX {WINDOW.format(**o)} }}"),
        "ave": lambda: ("Pooling", f"pooling_param {{ pool: AVE {WINDOW.format(**o)} }}"),
        "lrn": lambda: ("LRN", f"lrn_param {{ local_size: 5 alpha: {o['alpha']} beta: {o['beta']} }}"),
        "dropout": lambda: ("Dropout", f"dropout_param {{ dropout_ratio: {o['ratio']} }}"),
        "concat": lambda: ("Concat", ""),
        "add": lambda: ("Eltwise", ""),
        "loss": lambda: ("SoftmaxWithLoss", f"loss_weight: {o['weight']}"),
    }
    return texts[op.kind]()


if __name__ == "__main__":
    print(prototxt(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else BATCHES[sys.argv[1]]), end="")
