"""LeNet, CIFAR-10 quick, CaffeNet, AdamLike, GoogLeNet, ResNet-50, VGG-16 and MobileNet as lists of operations.

Standard library only: peers read them too.

Sources: LeCun et al. 1998 in Caffe's variant; Krizhevsky's cuda-convnet in Caffe's variant; Krizhevsky et al. 2012
with pooling before normalisation; Cui et al. (GeePS, EuroSys 2016), 5.1; Szegedy et al. 2014 (arXiv 1409.4842),
table 1, with both auxiliary heads; He et al. 2015 (arXiv 1512.03385), table 1, strides in the first convolution of a
block; Simonyan and Zisserman 2014 (arXiv 1409.1556), table 1, D; Howard et al. 2017 (arXiv 1704.04861), table 1.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

LABEL = "label"


@dataclass(frozen=True)
class Op:
    """One operation; ``kind`` is conv, fc, max, ave, lrn, concat, add, loss, or in place relu, dropout or bn."""

    kind: str
    name: str
    bottoms: tuple[str, ...]
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def top(self) -> str:
        """The blob written."""
        return self.bottoms[0] if self.kind in ("relu", "dropout", "bn") else self.name


@dataclass
class Architecture:
    """A net.

    Attributes:
        image: (C, H, W) of an image.
        n_classes: number of labels.
        ops: in order.
        channels: of each blob.
    """

    image: tuple[int, int, int]
    n_classes: int
    ops: list[Op] = field(default_factory=list)
    channels: dict[str, int] = field(default_factory=dict)

    def add(self, kind: str, name: str, bottoms: tuple[str, ...], n_channels: int, **options: Any) -> str:
        """Append an operation. Returns its top."""
        op = Op(kind, name, bottoms, options)
        self.ops.append(op)
        self.channels[op.top] = n_channels
        return op.top

    def conv(self, x: str, name: str, n: int, kernel: int, stride: int = 1, pad: int = 0, group: int = 1,
             relu: bool = True, normalised: bool = False) -> str:
        """A convolution, with ReLU unless told otherwise; or without bias, batch normalisation behind it."""
        n_in = self.channels.get(x, self.image[0])
        y = self.add("conv", name, (x,), n, n_in=n_in, kernel=kernel, stride=stride, pad=pad, group=group,
                     bias=not normalised)
        if normalised:
            self.add("bn", f"bn_{y}", (y,), n)
        return self.relu(y) if relu else y

    def relu(self, x: str) -> str:
        """ReLU in place."""
        return self.add("relu", f"relu_{x}", (x,), self.channels[x])

    def fc(self, x: str, name: str, n: int) -> str:
        """An inner product."""
        return self.add("fc", name, (x,), n)

    def pool(self, x: str, name: str, kernel: int, stride: int, pad: int = 0, method: str = "max") -> str:
        """A pooling whose size rounds up."""
        return self.add(method, name, (x,), self.channels[x], kernel=kernel, stride=stride, pad=pad)

    def lrn(self, x: str, name: str) -> str:
        """Normalisation over five channels."""
        return self.add("lrn", name, (x,), self.channels[x], alpha=1e-4, beta=0.75)

    def dropout(self, x: str, ratio: float) -> str:
        """Dropout in place."""
        return self.add("dropout", f"drop_{x}", (x,), self.channels[x], ratio=ratio)

    def loss(self, x: str, name: str, weight: float = 1.0) -> str:
        """Softmax and the logistic loss."""
        return self.add("loss", name, (x, LABEL), 1, weight=weight)


def lenet() -> Architecture:
    """LeNet on 28 x 28."""
    net = Architecture((1, 28, 28), 10)
    x = net.pool(net.conv("data", "conv1", 20, 5, relu=False), "pool1", 2, 2)
    x = net.pool(net.conv(x, "conv2", 50, 5, relu=False), "pool2", 2, 2)
    x = net.relu(net.fc(x, "ip1", 500))
    net.loss(net.fc(x, "ip2", 10), "loss")
    return net


def cifar10_quick() -> Architecture:
    """The quick net on 32 x 32."""
    net = Architecture((3, 32, 32), 10)
    x = net.relu(net.pool(net.conv("data", "conv1", 32, 5, pad=2, relu=False), "pool1", 3, 2))
    x = net.pool(net.conv(x, "conv2", 32, 5, pad=2), "pool2", 3, 2, method="ave")
    x = net.pool(net.conv(x, "conv3", 64, 5, pad=2), "pool3", 3, 2, method="ave")
    net.loss(net.fc(net.fc(x, "ip1", 64), "ip2", 10), "loss")
    return net


def caffenet() -> Architecture:
    """CaffeNet on 227 x 227."""
    net = Architecture((3, 227, 227), 1000)
    x = net.lrn(net.pool(net.conv("data", "conv1", 96, 11, 4), "pool1", 3, 2), "norm1")
    x = net.lrn(net.pool(net.conv(x, "conv2", 256, 5, pad=2, group=2), "pool2", 3, 2), "norm2")
    x = net.conv(net.conv(x, "conv3", 384, 3, pad=1), "conv4", 384, 3, pad=1, group=2)
    x = net.pool(net.conv(x, "conv5", 256, 3, pad=1, group=2), "pool5", 3, 2)
    for name in ("fc6", "fc7"):
        x = net.dropout(net.relu(net.fc(x, name, 4096)), 0.5)
    net.loss(net.fc(x, "fc8", 1000), "loss")
    return net


def adamlike() -> Architecture:
    """After Project Adam, for 22,000 classes: five convolutions, two inner products, 2.4 billion connections an image.

    Widths were not published: these give that number, with CaffeNet's kernels and no groups.
    """
    net = Architecture((3, 227, 227), 22_000)
    x = net.lrn(net.pool(net.conv("data", "conv1", 128, 11, 4), "pool1", 3, 2), "norm1")
    x = net.lrn(net.pool(net.conv(x, "conv2", 448, 5, pad=2), "pool2", 3, 2), "norm2")
    x = net.conv(net.conv(x, "conv3", 512, 3, pad=1), "conv4", 512, 3, pad=1)
    x = net.pool(net.conv(x, "conv5", 384, 3, pad=1), "pool5", 3, 2)
    for name in ("fc6", "fc7"):
        x = net.dropout(net.relu(net.fc(x, name, 4096)), 0.5)
    net.loss(net.fc(x, "fc8", 22_000), "loss")
    return net


INCEPTIONS = {  # 1x1, 3x3 reduce, 3x3, 5x5 reduce, 5x5, pool projection
    "3a": (64, 96, 128, 16, 32, 32), "3b": (128, 128, 192, 32, 96, 64),
    "4a": (192, 96, 208, 16, 48, 64), "4b": (160, 112, 224, 24, 64, 64), "4c": (128, 128, 256, 24, 64, 64),
    "4d": (112, 144, 288, 32, 64, 64), "4e": (256, 160, 320, 32, 128, 128),
    "5a": (256, 160, 320, 32, 128, 128), "5b": (384, 192, 384, 48, 128, 128),
}
HEADS = {"4a": "loss1", "4d": "loss2"}


def googlenet() -> Architecture:
    """GoogLeNet on 224 x 224, both heads weighted 0.3."""
    net = Architecture((3, 224, 224), 1000)
    x = net.lrn(net.pool(net.conv("data", "conv1", 64, 7, 2, 3), "pool1", 3, 2), "norm1")
    x = net.lrn(net.conv(net.conv(x, "conv2_reduce", 64, 1), "conv2", 192, 3, pad=1), "norm2")
    x = net.pool(x, "pool2", 3, 2)
    for name, widths in INCEPTIONS.items():
        x = _inception(net, x, name, widths)
        if name in HEADS:
            _head(net, x, HEADS[name])
        if name in ("3b", "4e"):
            x = net.pool(x, f"pool{name[0]}", 3, 2)
    x = net.dropout(net.pool(x, "pool5", 7, 1, method="ave"), 0.4)
    net.loss(net.fc(x, "classifier", 1000), "loss3")
    return net


def _inception(net: Architecture, x: str, name: str, widths: tuple[int, ...]) -> str:
    one, three_reduce, three, five_reduce, five, projection = widths
    parts = (
        net.conv(x, f"{name}_1x1", one, 1),
        net.conv(net.conv(x, f"{name}_3x3_reduce", three_reduce, 1), f"{name}_3x3", three, 3, pad=1),
        net.conv(net.conv(x, f"{name}_5x5_reduce", five_reduce, 1), f"{name}_5x5", five, 5, pad=2),
        net.conv(net.pool(x, f"{name}_pool", 3, 1, 1), f"{name}_pool_proj", projection, 1),
    )
    return net.add("concat", f"{name}_output", parts, one + three + five + projection)


def _head(net: Architecture, x: str, name: str) -> None:
    y = net.conv(net.pool(x, f"{name}_pool", 5, 3, method="ave"), f"{name}_conv", 128, 1)
    y = net.dropout(net.relu(net.fc(y, f"{name}_fc", 1024)), 0.7)
    net.loss(net.fc(y, f"{name}_classifier", 1000), name, 0.3)


STAGES = ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2))  # width, blocks, stride of the first


def resnet50() -> Architecture:
    """ResNet-50 on 224 x 224."""
    net = Architecture((3, 224, 224), 1000)
    x = net.pool(net.conv("data", "conv1", 64, 7, 2, 3, normalised=True), "pool1", 3, 2)
    for stage, (width, n_blocks, stride) in enumerate(STAGES, 2):
        for block in range(n_blocks):
            x = _bottleneck(net, x, f"res{stage}{'abcdef'[block]}", width, stride if block == 0 else 1, block == 0)
    net.loss(net.fc(net.pool(x, "pool5", 7, 1, method="ave"), "fc1000", 1000), "loss")
    return net


def _bottleneck(net: Architecture, x: str, name: str, width: int, stride: int, projects: bool) -> str:
    shortcut = net.conv(x, f"{name}_1", 4 * width, 1, stride, relu=False, normalised=True) if projects else x
    y = net.conv(x, f"{name}_2a", width, 1, stride, normalised=True)
    y = net.conv(y, f"{name}_2b", width, 3, pad=1, normalised=True)
    y = net.conv(y, f"{name}_2c", 4 * width, 1, relu=False, normalised=True)
    return net.relu(net.add("add", name, (shortcut, y), 4 * width))


def vgg16() -> Architecture:
    """VGG-16 on 224 x 224."""
    net = Architecture((3, 224, 224), 1000)
    x = "data"
    for stage, (width, n_convs) in enumerate(((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)), 1):
        for i in range(n_convs):
            x = net.conv(x, f"conv{stage}_{i + 1}", width, 3, pad=1)
        x = net.pool(x, f"pool{stage}", 2, 2)
    for name in ("fc6", "fc7"):
        x = net.dropout(net.relu(net.fc(x, name, 4096)), 0.5)
    net.loss(net.fc(x, "fc8", 1000), "loss")
    return net


MOBILE = ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *[(512, 1)] * 5, (1024, 2), (1024, 1))


def mobilenet() -> Architecture:
    """MobileNet on 224 x 224, width 1."""
    net = Architecture((3, 224, 224), 1000)
    x = net.conv("data", "conv1", 32, 3, 2, 1, normalised=True)
    for i, (width, stride) in enumerate(MOBILE, 2):
        n = net.channels[x]
        x = net.conv(x, f"conv{i}_dw", n, 3, stride, 1, group=n, normalised=True)
        x = net.conv(x, f"conv{i}_sep", width, 1, normalised=True)
    net.loss(net.fc(net.pool(x, "pool6", 7, 1, method="ave"), "fc7", 1000), "loss")
    return net


ARCHITECTURES: dict[str, Callable[[], Architecture]] = {
    "lenet": lenet, "cifar10_quick": cifar10_quick, "caffenet": caffenet, "adamlike": adamlike, "googlenet": googlenet,
    "resnet50": resnet50, "vgg16": vgg16, "mobilenet": mobilenet,
}
BATCHES = {"lenet": 64, "cifar10_quick": 100, "caffenet": 16, "adamlike": 16, "googlenet": 8, "resnet50": 8, "vgg16": 4,
           "mobilenet": 8}  # on a CPU
