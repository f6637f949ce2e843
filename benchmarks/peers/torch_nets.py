"""PyTorch's training steps of the same nets, in its own interpreter; driven by ``benchmarks/compute.py``.

    python torch_nets.py NET THREADS FILE.npz

FILE holds the images, the labels and every layer's weights. For a line "check" on its input it prints, without dropout,
the loss and the norm of all gradients as JSON; for "VARIANT N_STEPS" it trains that many steps and prints the seconds.
A variant is ``plain`` (NCHW, default SGD) or a mixture of ``bf16`` (autocast), ``channels_last``, ``fused`` and
``foreach`` joined by +.
"""

import json
import sys
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from nets.architectures import ARCHITECTURES  # noqa: E402

JOINED = {"concat": lambda values: torch.cat(values, 1), "add": lambda values: values[0] + values[1]}


def module(net, op, files):
    """The PyTorch module of one operation, with the weights of the file."""
    o = op.options
    if op.kind in ("conv", "fc"):
        weight = torch.from_numpy(files[f"{op.name}.weight"])
        if op.kind == "conv":
            made = nn.Conv2d(o["n_in"], net.channels[op.top], o["kernel"], o["stride"], o["pad"], groups=o["group"],
                             bias=o["bias"])
        else:
            made = nn.Linear(weight.shape[1], weight.shape[0])
        parts = ("weight", "bias") if o.get("bias", True) else ("weight",)
        made.load_state_dict({part: torch.from_numpy(files[f"{op.name}.{part}"]) for part in parts})
        return nn.Sequential(nn.Flatten(), made) if op.kind == "fc" else made
    kinds = {
        "relu": lambda: nn.ReLU(inplace=True),
        "max": lambda: nn.MaxPool2d(o["kernel"], o["stride"], o["pad"], ceil_mode=True),
        "ave": lambda: nn.AvgPool2d(o["kernel"], o["stride"], o["pad"], ceil_mode=True),
        "lrn": lambda: nn.LocalResponseNorm(5, o["alpha"], o["beta"], 1.0),
        "dropout": lambda: nn.Dropout(o["ratio"]),
        "bn": lambda: nn.BatchNorm2d(net.channels[op.top], momentum=0.001),  # Caffe's moving_average_fraction 0.999
        "concat": lambda: None,
        "add": lambda: None,
        "loss": nn.CrossEntropyLoss,
    }
    return kinds[op.kind]()


class Net(nn.Module):
    """The operations in order; forward gives the weighted sum of the losses."""

    def __init__(self, name, files):
        super().__init__()
        net = ARCHITECTURES[name]()
        self.steps = [(op, module(net, op, files)) for op in net.ops]
        self.parts = nn.ModuleList(made for _, made in self.steps if made is not None)

    def forward(self, images, labels):
        """The loss."""
        blobs, loss = {"data": images, "label": labels}, 0.0
        for op, made in self.steps:
            values = [blobs[b] for b in op.bottoms]
            value = JOINED[op.kind](values) if op.kind in JOINED else made(*values)
            if op.kind == "loss":
                loss = loss + op.options["weight"] * value
            blobs[op.top] = value
        return loss


class Variant:
    """A net and its optimiser, as one way to use PyTorch has them."""

    def __init__(self, name, how, files):
        words = set(how.split("+"))
        self.net = Net(name, files)
        self.images, self.labels = torch.from_numpy(files["data"]), torch.from_numpy(files["label"])
        if "channels_last" in words:
            self.net = self.net.to(memory_format=torch.channels_last)
            self.images = self.images.to(memory_format=torch.channels_last)
        options = {word: True for word in ("fused", "foreach") if word in words}
        self.sgd = torch.optim.SGD(self.net.parameters(), 1e-4, momentum=0.9, weight_decay=5e-4, **options)
        self.casts = "bf16" in words

    def step(self):
        """One step of training."""
        self.sgd.zero_grad()
        self.loss().backward()
        self.sgd.step()

    def loss(self):
        """Of a forward pass."""
        with torch.autocast("cpu", torch.bfloat16, enabled=self.casts):
            return self.net(self.images, self.labels)


def check(name, files):
    """Loss, norm of the gradients and loss in bfloat16, without dropout, normalised by the batch."""
    one = Variant(name, "plain", files)
    for part in one.net.modules():
        part.train(isinstance(part, nn.BatchNorm2d))
    loss = one.loss()
    loss.backward()
    squares = sum(float(p.grad.double().square().sum()) for p in one.net.parameters())
    one.casts = True
    return {"loss": float(loss.detach()), "norm": squares ** 0.5, "half_loss": float(one.loss().detach())}


def main(name, threads, path):
    """Serve timings until the input ends."""
    torch.set_num_threads(int(threads))
    files = dict(np.load(path))
    variants = {}
    for line in sys.stdin:
        if line == "check\n":
            print(json.dumps(check(name, files)), flush=True)
            continue
        how, n_steps = line.split()
        if how == "drop":
            variants.pop(n_steps, None)
            continue
        if how not in variants:
            variants[how] = Variant(name, how, files)
        one = variants[how]
        start = time.perf_counter()
        for _ in range(int(n_steps)):
            one.step()
        print(json.dumps({"seconds": time.perf_counter() - start}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
