"""Random nets for tests of what scripts see, and the layers in Python that they use."""

from __future__ import annotations

import random
from math import prod

import numpy as np

import scaffe as caffe

Shape = tuple[int, ...]
FILLED = 'weight_filler { type: "xavier" } bias_filler { type: "uniform" min: -0.5 max: 0.5 }'


class Triple(caffe.Layer):
    """1.5 times the bottom, in place or not."""

    def reshape(self, bottom, top):
        top[0].reshape(*bottom[0].shape)

    def forward(self, bottom, top):
        top[0].data[...] = 1.5 * np.array(bottom[0].data)

    def backward(self, top, propagate_down, bottom):
        bottom[0].diff[...] = 1.5 * np.array(top[0].diff)


class Counter(Triple):
    """Adds the number of passes so far, and halves what it has read."""

    n_passes = 0

    def forward(self, bottom, top):
        self.n_passes += 1
        top[0].data[...] = np.array(bottom[0].data) + self.n_passes / 10
        bottom[0].data[...] *= 0.5


class RandomNet:
    """A random prototxt with the input x, and others for its recurrent layers.

    Attributes:
        text: the prototxt.
        batch: how many images each input has.
        is_resizable: whether inputs may have another number of images.
    """

    def __init__(self, rng: random.Random) -> None:
        self._rng, self._layers, self._last, self.is_resizable = rng, [], "", True
        self.shapes: dict[str, Shape] = {}  # of images, 3, and rows, 1, without the first axis
        self.batch = rng.choice([1, 2, 3, 8])
        self._input("x", (rng.choice([1, 2, 3]), rng.choice([2, 4, 5]), rng.choice([2, 4, 5])))
        makers = [self._convolution] * 5 + [self._in_place] * 4 + [self._out_of_place] * 3 + [self._product] * 2 + [
            self._pool, self._sum, self._join, self._flatten, self._slice, self._user]
        makers += [self._state, self._lstm, self._data] if rng.random() < 0.5 else []
        for _ in range(rng.randint(2, 9)):
            rng.choice(makers)()
        self.text = "force_backward: true\n" + "\n".join(self._layers)

    def _add(self, kind: str, bottoms: list[str], shape: Shape | None, more: str = "", top: str = "") -> str:
        name = f"l{len(self._layers)}"
        top = top or name.replace("l", "b")
        read = " ".join(f'bottom: "{bottom}"' for bottom in bottoms)
        self._layers.append(f'layer {{ name: "{name}" type: "{kind}" {read} top: "{top}" {more} }}')
        self._last = top
        if shape is not None:
            self.shapes[top] = shape
        return top

    def _input(self, name: str, shape: Shape) -> None:
        dims = " ".join(f"dim: {n}" for n in (self.batch, *shape))
        self._add("Input", [], shape, f"input_param {{ shape {{ {dims} }} }}", name)
        self._last = ""

    def _pick(self, n_axes: int = 0) -> tuple[str, Shape]:
        """A blob, a late one more often."""
        found = [(name, shape) for name, shape in self.shapes.items() if n_axes in (0, len(shape))]
        return found[max(self._rng.randrange(len(found)) for _ in range(2))]

    def _same(self, kind: str, more: str = "") -> None:
        """A layer that keeps the shape behind the last layer, in place or not."""
        if self._last not in self.shapes:
            return
        top = self._last if self._rng.random() < 0.6 else ""
        self._add(kind, [self._last], self.shapes[self._last], more, top)

    def _convolution(self) -> None:
        x, (c, h, w) = self._pick(3)
        n = self._rng.choice([1, 2, 4, 8])
        window = self._rng.choice(["kernel_size: 3 pad: 1", "kernel_size: 1"])
        shared = self._shared(f"c{c} {n} {window}")
        self._add("Convolution", [x], (n, h, w), f"{shared} convolution_param {{ num_output: {n} {window} {FILLED} }}")
        if self._rng.random() < 0.5:
            self._same("BatchNorm")
            self._same("Scale", "scale_param { bias_term: true }")
        if self._rng.random() < 0.6:
            self._same("ReLU", self._rng.choice(["", "relu_param { negative_slope: 0.1 }"]))

    def _shared(self, name: str) -> str:
        """Perhaps parameters that all layers of the same shapes share."""
        return f'param {{ name: "{name} w" }} param {{ name: "{name} b" }}' if self._rng.random() < 0.5 else ""

    def _in_place(self) -> None:
        kind = self._rng.choice(["ReLU", "TanH", "Sigmoid", "Dropout", "Power", "PReLU", "BatchNorm"])
        more = "power_param { scale: 0.5 shift: 0.25 }" if kind == "Power" else ""
        draws = kind == "Dropout" and self._rng.random() < 0.3
        self._same(kind, "phase: TRAIN" if draws else more)

    def _out_of_place(self) -> None:
        x, shape = self._pick()
        other = "LRN" if len(shape) == 3 else "PReLU"
        kind = self._rng.choice(["ReLU", "TanH", "Dropout", "Sigmoid", "Softmax", other])
        self._add(kind, [x], shape)

    def _pool(self) -> None:
        x, (c, h, w) = self._pick(3)
        if min(h, w) >= 2:
            self._add("Pooling", [x], (c, -(-h // 2), -(-w // 2)),
                      f"pooling_param {{ pool: {self._rng.choice(['MAX', 'AVE'])} kernel_size: 2 stride: 2 }}")

    def _mate(self, x: str, start: int) -> str:
        """Another blob, of the same shape from an axis on."""
        found = [name for name, shape in self.shapes.items()
                 if name != x and len(shape) == len(self.shapes[x]) and shape[start:] == self.shapes[x][start:]]
        return self._rng.choice(found) if found else ""

    def _sum(self) -> None:
        x, shape = self._pick()
        if other := self._mate(x, 0):
            self._add("Eltwise", [x, other], shape, self._rng.choice(["", "", "eltwise_param { operation: PROD }"]))

    def _join(self) -> None:
        x, shape = self._pick()
        if other := self._mate(x, 1):
            self._add("Concat", [x, other], (shape[0] + self.shapes[other][0], *shape[1:]))

    def _flatten(self) -> None:
        x, shape = self._pick(3)
        kind, more = self._rng.choice([("Flatten", ""), ("Reshape", "reshape_param { shape { dim: 0 dim: -1 } }")])
        self._add(kind, [x], (prod(shape),), more)

    def _product(self) -> None:
        x, shape = self._pick()
        n = self._rng.choice([1, 3, 6])
        shared = self._shared(f"i{prod(shape)} {n}")
        self._add("InnerProduct", [x], (n,), f"{shared} inner_product_param {{ num_output: {n} {FILLED} }}")

    def _slice(self) -> None:
        x, (c, h, w) = self._pick(3)
        if c >= 2:
            other = f"s{len(self._layers)}"
            self._add("Slice", [x], (1, h, w), f'top: "{other}" slice_param {{ axis: 1 slice_point: 1 }}')
            self.shapes[other] = (c - 1, h, w)

    def _user(self) -> None:
        kind = self._rng.choice(["Triple", "Triple", "Counter"])
        more = f'python_param {{ module: "{__name__}" layer: "{kind}" }}'
        if kind == "Triple" and self._rng.random() < 0.5:
            self._same("Python", more)
        else:
            x, shape = self._pick()
            self._add("Python", [x], shape, more)

    def _state(self) -> None:
        x, shape = self._pick(3)
        self._add("BatchNorm", [x], shape, "batch_norm_param { use_global_stats: false }")

    def _lstm(self) -> None:
        x, shape = self._pick()
        row = self._add("Reshape", [x], None, f"reshape_param {{ shape {{ dim: -1 dim: 1 dim: {prod(shape)} }} }}")
        cont = f"cont{len(self._layers)}"
        self._input(cont, (1,))
        self.is_resizable = False
        del self.shapes[cont]
        out = self._add("LSTM", [row, cont], None, f"recurrent_param {{ num_output: 2 {FILLED} }}")
        self._add("Reshape", [out], (2,), "reshape_param { shape { dim: -1 dim: 2 } }")

    def _data(self) -> None:
        dims = " ".join(f"dim: {n}" for n in (self.batch, *self.shapes["x"]))
        self._add("DummyData", [], self.shapes["x"],
                  f'dummy_data_param {{ shape {{ {dims} }} data_filler {{ type: "gaussian" }} }}')
        self._last, self.is_resizable = "", False
