"""Random sequences of calls as scripts make them, of random nets, beside the same layers run one after another."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import scaffe as caffe
from scaffe.layers.base.blob import Blob
from scaffe.nets.fusion import unfuse_backward
from scaffe.nets.net import Net
from scaffe.nets.weights import load_weights, save_weights
from tests.scaffe.pycaffe.random_nets import RandomNet

TOLERANCES = {"fp32": 2e-4, "bf16": 2e-2}  # beside the largest value of a blob


class Pair:
    """A net as a script sees it, ``view``, and ``plain``: a net of the same parameters that runs layer after layer."""

    def __init__(self, view: caffe.Net, plain: Net, rng: np.random.Generator) -> None:
        self.view, self.plain = view, plain
        self.held: list[tuple[np.ndarray, np.ndarray]] = []  # arrays of both that somebody holds
        for mine, node in zip(self.plain.nodes, self.view._built.nodes, strict=True):
            for i, (blob, theirs) in enumerate(zip(mine.layer.blobs, node.layer.blobs, strict=True)):
                values = parameter(node.param.type, i, blob.shape, rng)
                for each in (blob, theirs):
                    write(self.plain, each, values)

    def blob(self, name: str, part: str) -> np.ndarray:
        """What the plain net's blob holds, on the host, in float32."""
        return read(self.plain, self.plain.blobs[name], part)


def read(net: Net, blob: Blob, part: str = "data") -> np.ndarray:
    return np.array(net.context.kernels.to_host(getattr(blob, part))).astype(np.float32)


def write(net: Net, blob: Blob, values: np.ndarray, part: str = "data", index: Any = ...) -> None:
    target, kernels = getattr(blob, part), net.context.kernels
    if isinstance(target, np.ndarray):
        target[index] = values
        return
    whole = np.array(kernels.to_host(target))
    whole[index] = values
    target[...] = kernels.to_device(whole, target.dtype)


def parameter(kind: str, index: int, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """Values of a parameter, with which blobs do not grow."""
    if kind == "BatchNorm":
        return [rng.uniform(-0.2, 0.2, shape), rng.uniform(0.5, 1.5, shape), np.ones(shape)][index]
    return rng.uniform(-1, 1, shape) / np.sqrt(max(np.prod(shape[1:]), 1))


class Calls:
    """One random sequence; ``run`` raises AssertionError at the first call that gives anything else.

    Args:
        seed: of the net and the calls.
        folder: an empty one.
        precision: see ``set_precision``.
        is_mirrored: whether arrays are copies of what the net has, and none is written once it has run.
    """

    def __init__(self, seed: int, folder: Path, precision: str = "fp32", is_mirrored: bool = False) -> None:
        self.rng, self.values = random.Random(seed), np.random.default_rng(seed)
        self.sharing = random.Random(seed + 1)
        self.net, self.folder, self.log = RandomNet(self.rng), folder, [f"seed {seed}"]
        self.tolerance, self.is_mirrored = TOLERANCES[precision], is_mirrored or precision != "fp32"
        self.numbers = [0, 0, 0, 1]  # of pairs, as often as they are taken
        self.calls = [self.forward] * 6 + [self.look] * 3 + [self.write] * 3 + [self.hold] + [
            self.part, self.backward, self.write_diff, self.look_at_parameter, self.write_parameter, self.write_held,
            self.reshape, self.save, self.load, self.share, self.change_output]
        caffe.set_random_seed(seed)
        self.pairs = [Pair(view, plain, self.values) for view, plain in self.nets()]
        for pair in self.pairs:
            pair.plain.unfused = precision == "fp32"  # the fused layers of a half type round otherwise
        self.names = list(self.pairs[0].plain.blobs)

    def nets(self) -> list[tuple[caffe.Net, Net]]:
        """Nets as a script sees them, each with a plain one."""
        path = self.folder / "net.prototxt"
        path.write_text(self.net.text)
        made = [caffe.Net(str(path), caffe.TEST) for _ in range(4)]
        return [(view, plain._built) for view, plain in zip(made[::2], made[1::2], strict=True)]

    def run(self) -> None:
        """Some calls, then a look at everything."""
        for pair in self.pairs:
            self.forward(pair)
        for _ in range(self.rng.randint(1, 14)):
            self.call(self.rng.choice(self.calls))
        for pair in self.pairs:
            self.agree_all(pair)

    def call(self, call: Callable[[Pair], None]) -> None:
        number = self.rng.choice(self.numbers)
        self.log.append(f"{number} {call.__name__}")
        call(self.pairs[number])

    def both(self, on_view: Callable[[], Any], on_plain: Callable[[], Any]) -> tuple[Any, Any]:
        """Each with the same random numbers."""
        seed = self.rng.randrange(1000)
        found = []
        for act in (on_view, on_plain):
            caffe.set_random_seed(seed)
            found.append(act())
        return found[0], found[1]

    # -- looks ---------------------------------------------------------------------------------------------
    def agree(self, found: np.ndarray, expected: np.ndarray, what: str, largest: float = 1) -> None:
        """``largest``: of the numbers that may have been added up."""
        assert found.shape == expected.shape, self.said(what)
        least = self.tolerance * max(1, largest, np.abs(expected).max(initial=0))
        away = np.abs(found - expected).max(initial=0)
        assert away <= least, self.said(f"{what} is {away:g} away")

    def said(self, what: str) -> str:
        return f"{what} after {', '.join(self.log)}\n{self.net.text}"

    def agree_all(self, pair: Pair) -> None:
        for name in self.rng.sample(self.names, len(self.names)):
            for part in ("data", "diff"):
                largest = self.largest(pair, part)
                self.agree(getattr(pair.view.blobs[name], part), pair.blob(name, part), f"{name}.{part}", largest)
        self.agree_parameters(pair)
        for layer, node in zip(pair.view.layers, pair.plain.nodes, strict=True):
            if hasattr(layer, "n_passes"):
                assert layer.n_passes == getattr(node.layer, "inner", node.layer).user.n_passes, self.said(node.name)
        for mine, expected in pair.held:
            self.agree(mine, expected, "an array that is held")

    def agree_parameters(self, pair: Pair, parts: tuple[str, ...] = ("data", "diff")) -> None:
        for name, blobs in pair.view.params.items():
            for i, (mine, blob) in enumerate(zip(blobs, pair.plain.node(name).layer.blobs, strict=True)):
                for part in parts:
                    largest = self.largest(pair, part)
                    self.agree(getattr(mine, part), read(pair.plain, blob, part), f"{name}[{i}].{part}", largest)

    def largest(self, pair: Pair, part: str) -> float:
        """Gradients are sums in which large numbers may cancel out."""
        return max(np.abs(pair.blob(name, part)).max(initial=0) for name in self.names) if part == "diff" else 1

    def look(self, pair: Pair) -> None:
        for name in self.rng.sample(self.names, min(len(self.names), self.rng.choice([1, 1, 2, 4]))):
            self.log.append(name)
            self.agree(pair.view.blobs[name].data, pair.blob(name, "data"), name)

    def look_at_parameter(self, pair: Pair) -> None:
        self.agree_parameters(pair, ("data",))

    def hold(self, pair: Pair) -> None:
        if not self.is_mirrored:
            name = self.rng.choice(self.names)
            self.log.append(name)
            pair.held.append((self.array(pair.view.blobs[name]), pair.plain.blobs[name].data))
            if pair.view.params and self.rng.random() < 0.5:
                name = self.rng.choice(list(pair.view.params))
                self.log.append(f"{name}[0]")
                pair.held.append((self.array(pair.view.params[name][0]), pair.plain.node(name).layer.blobs[0].data))

    def array(self, blob: Any) -> np.ndarray:
        """The data's array, or one of the same memory by DLPack, which NumPy before 2.1 cannot write."""
        shared = np.from_dlpack(blob) if self.sharing.random() < 0.5 else blob.data
        return shared if shared.flags.writeable else blob.data

    # -- writes --------------------------------------------------------------------------------------------
    def write(self, pair: Pair, part: str = "data") -> None:
        name = self.rng.choice([*self.names, "x", "x"])
        self.log.append(f"{name}.{part}")
        index = self.rng.choice([..., (0,)])
        shape = np.empty(pair.plain.blobs[name].shape)[index].shape
        values = self.values.uniform(-1, 1, shape).astype(np.float32)
        getattr(pair.view.blobs[name], part)[index] = values
        write(pair.plain, pair.plain.blobs[name], values, part, index)

    def write_diff(self, pair: Pair) -> None:
        self.write(pair, "diff")

    def write_parameter(self, pair: Pair) -> None:
        if pair.view.params:
            name = self.rng.choice(list(pair.view.params))
            i = self.rng.randrange(len(pair.view.params[name]))
            self.log.append(f"{name}[{i}]")
            node = pair.plain.node(name)
            values = parameter(node.param.type, i, node.layer.blobs[i].shape, self.values).astype(np.float32)
            pair.view.params[name][i].data[...] = values
            write(pair.plain, node.layer.blobs[i], values)

    def write_held(self, pair: Pair) -> None:
        if pair.held:
            factor = self.rng.choice([0.5, 0.75])
            for array in self.rng.choice(pair.held):
                array *= factor

    def change_output(self, pair: Pair) -> None:
        if not self.is_mirrored:
            self.forward(pair)
            name = self.rng.choice(pair.view.outputs)
            for array in (pair.view.blobs[name].data, pair.plain.blobs[name].data):
                array /= 2

    # -- passes --------------------------------------------------------------------------------------------
    def forward(self, pair: Pair) -> None:
        if self.rng.random() < 0.7:
            self.fill(pair)
        wanted = self.rng.sample(self.names, self.rng.choice([0, 0, 0, 1]))
        self.log.append(str(wanted))
        out, _ = self.both(lambda: pair.view.forward(blobs=wanted), lambda: self.forward_plain(pair.plain))
        for name, array in out.items():
            self.agree(array, pair.blob(name, "data"), name)

    @staticmethod
    def forward_plain(net: Net, start: int = 0, end: int | None = None) -> None:
        if not net.unfused:
            net.forward(start, end)
            unfuse_backward(net.nodes)
            return
        for index in range(start, len(net.nodes) if end is None else end + 1):
            net.forward(index, index)

    def fill(self, pair: Pair) -> None:
        for name in pair.view.inputs:
            shape = pair.plain.blobs[name].shape
            values = (np.ones(shape) if "cont" in name else self.values.uniform(-1, 1, shape)).astype(np.float32)
            pair.view.blobs[name].data[...] = values
            write(pair.plain, pair.plain.blobs[name], values)

    def part(self, pair: Pair) -> None:
        nodes = pair.plain.nodes
        start = self.rng.randrange(len(nodes))
        end = self.rng.choice([len(nodes) - 1, self.rng.randrange(start, len(nodes))])
        self.log.append(f"{nodes[start].name}..{nodes[end].name}")
        self.both(lambda: pair.view.forward(start=nodes[start].name, end=nodes[end].name),
                  lambda: self.forward_plain(pair.plain, start, end))

    def backward(self, pair: Pair) -> None:
        nodes = pair.plain.nodes
        for name in pair.view.outputs:
            values = self.values.uniform(-1, 1, pair.plain.blobs[name].shape).astype(np.float32)
            pair.view.blobs[name].diff[...] = values
            write(pair.plain, pair.plain.blobs[name], values, "diff")
        start = self.rng.choice([len(nodes) - 1, self.rng.randrange(len(nodes))])
        end = self.rng.choice([0, self.rng.randrange(start + 1)])
        self.log.append(f"{nodes[start].name}..{nodes[end].name}")
        pair.view.backward(start=nodes[start].name, end=nodes[end].name)
        for index in range(start, end - 1, -1):
            pair.plain.backward(index, index)

    # -- the net -------------------------------------------------------------------------------------------
    def reshape(self, pair: Pair) -> None:
        """A reshape of all inputs; blobs of other sizes hold nothing until the next pass."""
        if not self.net.is_resizable:
            return
        batch = self.rng.choice([1, 2, 3, 5, 8])
        self.log.append(str(batch))
        sizes = {name: blob.n_elems for name, blob in pair.plain.blobs.items()}
        pair.held.clear()
        for name in pair.view.inputs:
            dims = (batch, *pair.plain.blobs[name].shape[1:])
            pair.view.blobs[name].reshape(*dims)
            pair.plain.blobs[name].reshape(dims)
        if self.rng.random() < 0.6:
            self.both(pair.view.reshape, pair.plain.reshape)
        same = [name for name, blob in pair.plain.blobs.items() if blob.n_elems == sizes[name] and "split" not in name]
        for name in self.rng.sample(same, min(len(same), self.rng.choice([0, 0, 1]))):
            self.agree(pair.view.blobs[name].data, pair.blob(name, "data"), name)
        self.fill(pair)
        self.forward(pair)

    def save(self, pair: Pair) -> None:
        pair.view.save(str(self.folder / "view.caffemodel"))
        save_weights(pair.plain, self.folder / "plain.caffemodel")
        found, expected = ((self.folder / f"{name}.caffemodel").read_bytes() for name in ("view", "plain"))
        if found != expected:  # statistics of activations, which folding rounds otherwise
            self.agree_parameters(pair)

    def load(self, pair: Pair) -> None:
        if (self.folder / "plain.caffemodel").exists():
            pair.view.copy_from(str(self.folder / "plain.caffemodel"))
            load_weights(pair.plain, self.folder / "plain.caffemodel")

    def share(self, pair: Pair) -> None:
        other = self.pairs[pair is self.pairs[0]]
        for each in self.pairs:
            each.held.clear()
        pair.view.share_with(other.view)
        pair.plain.share_trained_layers(other.plain)
