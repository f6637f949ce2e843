"""Nets written in Python, with pycaffe's interface (Caffe 1.0, caffe.net_spec).

    n = NetSpec()
    n.data, n.label = L.Data(source="train_lmdb", backend=P.Data.LMDB, batch_size=64, ntop=2)
    n.conv1 = L.Convolution(n.data, kernel_size=5, num_output=20, weight_filler=dict(type="xavier"))
    n.relu1 = L.ReLU(n.conv1, in_place=True)
    print(n.to_proto())

``L`` is ``layers``, ``P`` is ``params``. A layer that no attribute names is called after its type and a count from 1.
"""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from scaffe.proto import caffe_pb2

ENDING = "_param"


def param_name_dict() -> dict[str, str]:
    """From a layer type to the name of its options in LayerParameter, without "_param": {"ReLU": "relu", ...}."""
    fields = caffe_pb2.LayerParameter.DESCRIPTOR.fields
    return {field.message_type.name.removesuffix("Parameter"): field.name.removesuffix(ENDING)
            for field in fields if field.name.endswith(ENDING)}


def to_proto(*tops: Top) -> Any:
    """A NetParameter of all layers that the tops need, with automatic names."""
    return _Writer({}).net(tops)


def assign_proto(proto: Any, name: str, val: Any) -> None:
    """Set a field from plain Python values, to any depth: a dict makes a message, a sequence a repeated field; a
    single value for a repeated field counts as a sequence of one."""
    target = getattr(proto, name)
    if not hasattr(target, "extend"):
        _assign_single(proto, name, val)
        return
    values = list(val) if isinstance(val, (list, tuple)) or hasattr(val, "tolist") else [val]
    for item in values:
        if isinstance(item, Mapping):
            element = target.add()
            for key, inner in item.items():
                assign_proto(element, key, inner)
        else:
            target.append(item)


def _assign_single(message: Any, name: str, value: Any) -> None:
    if isinstance(value, Mapping):
        target = getattr(message, name)
        target.SetInParent()
        for key, inner in value.items():
            assign_proto(target, key, inner)
    elif hasattr(value, "DESCRIPTOR"):
        getattr(message, name).CopyFrom(value)
    else:
        setattr(message, name, value)


class Top:
    """One output of a layer: ``fn`` the layer, ``n`` which of its outputs."""

    def __init__(self, fn: Function, n: int) -> None:
        self.fn, self.n = fn, n

    def to_proto(self) -> Any:
        """A NetParameter of all layers that this top needs."""
        return to_proto(self)

    def _update(self, params: Mapping[str, Any]) -> None:
        self.fn._update(params)


class Function:
    """A layer of a spec: its type, the tops it reads, its options (``ntop`` and ``in_place`` are not the layer's)."""

    def __init__(self, type_name: str, inputs: tuple[Top, ...], params: dict[str, Any]) -> None:
        for index, top in enumerate(inputs):
            if not isinstance(top, Top):
                raise TypeError(f"{type_name} input {index} is not a Top (type is {type(top)})")
        self.type_name, self.inputs, self.params = type_name, inputs, dict(params)
        self.ntop: int = self.params.pop("ntop", 1)
        self.in_place: bool = self.params.pop("in_place", False)
        self.tops = tuple(Top(self, n) for n in range(self.ntop))

    def _update(self, params: Mapping[str, Any]) -> None:
        self.params.update(params)


class NoSuchTop(AttributeError, KeyError):
    """Raised for a name that a net spec has not given to a top; a KeyError, as in pycaffe."""


class NetSpec:
    """A net by its named tops (and layers without tops), in the order of assignment: ``n.conv1 =``, ``n["a/b"] =``.

    ``keys``, ``vals``, ``update`` and ``del`` are those of SSD's Caffe.
    """

    tops: dict[str, Any]

    def __init__(self) -> None:
        super().__setattr__("tops", {})

    def __setattr__(self, name: str, value: Any) -> None:
        self.tops[name] = value

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name not in self.tops:
            raise NoSuchTop(f"this net spec has no top {name!r}")
        return self.tops[name]

    def __setitem__(self, name: str, value: Any) -> None:
        self.tops[name] = value

    def __getitem__(self, name: str) -> Any:
        return self.tops[name]

    def __delattr__(self, name: str) -> None:
        if name not in self.tops:
            raise NoSuchTop(f"this net spec has no top {name!r}")
        del self.tops[name]

    def __delitem__(self, name: str) -> None:
        del self.tops[name]

    def keys(self) -> list[str]:
        """The names, in the order of assignment."""
        return list(self.tops)

    def vals(self) -> list[Any]:
        """The tops and layers, in the same order."""
        return list(self.tops.values())

    def update(self, name: str, params: Mapping[str, Any]) -> None:
        """Set options of the layer that makes the named top; the others stay."""
        self.tops[name]._update(params)

    def to_proto(self) -> Any:
        """A NetParameter of all layers that the named tops need."""
        return _Writer({top: name for name, top in self.tops.items()}).net(self.tops.values())


class _Writer:
    """Writes functions as messages, each after those it reads. ``names``: names of tops, and of layers without tops."""

    def __init__(self, names: dict[Any, str]) -> None:
        self.names, self.counts = names, Counter[str]()
        self.layers: dict[Function, Any] = {}

    def net(self, tops: Any) -> Any:
        for top in tops:
            self._add(top if isinstance(top, Function) else top.fn)
        net = caffe_pb2.NetParameter()
        net.layer.extend(self.layers.values())
        return net

    def _add(self, last: Function) -> None:
        """Depth first without recursion: nets are deeper than Python's stack."""
        waiting = [last]
        while waiting:
            function = waiting[-1]
            missing = [top.fn for top in function.inputs if top.fn not in self.layers]
            if missing:
                waiting.append(missing[0])
                continue
            waiting.pop()
            if function not in self.layers:
                self.layers[function] = self._message(function)

    def _message(self, function: Function) -> Any:
        layer = caffe_pb2.LayerParameter(type=function.type_name)
        layer.bottom.extend(self.layers[top.fn].top[top.n] for top in function.inputs)
        layer.top.extend(layer.bottom if function.in_place else [self._name(top, function) for top in function.tops])
        layer.name = self._name(function.tops[0] if function.tops else function, function)
        for option, value in function.params.items():
            assign_proto(_home(layer, option), option, value)
        return layer

    def _name(self, what: Any, function: Function) -> str:
        if what not in self.names:
            self.counts[function.type_name] += 1
            self.names[what] = f"{function.type_name}{self.counts[function.type_name]}"
        return self.names[what]


def _home(layer: Any, option: str) -> Any:
    """The message that has the option: the layer's own options, or the layer itself."""
    own = _OWN.get(layer.type)
    if own is not None and not option.endswith("param"):
        options = layer.DESCRIPTOR.fields_by_name[own + ENDING].message_type
        if option in options.fields_by_name:
            return getattr(layer, own + ENDING)
    known = set(layer.DESCRIPTOR.fields_by_name)
    if option not in known:
        if own is not None:
            known |= set(layer.DESCRIPTOR.fields_by_name[own + ENDING].message_type.fields_by_name)
        near = difflib.get_close_matches(option, known, 1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise AttributeError(f"{layer.type} has no option {option!r}{hint}")
    return layer


class Layers:
    """Makes layers of any type: ``layers.Convolution(bottom, ..., kernel_size=3)`` gives a Top, or as many as ``ntop``
    says; with ``ntop=0`` the Function itself."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def make(*inputs: Top, **options: Any) -> Any:
            function = Function(name, inputs, options)
            if function.ntop == 1:
                return function.tops[0]
            return function.tops or function

        return make


class Parameters:
    """Constants of the schema: ``params.Pooling.MAX``, ``params.Data.LMDB``."""

    def __getattr__(self, name: str) -> Any:
        return getattr(caffe_pb2, f"{name}Parameter")


_OWN = param_name_dict()
layers = Layers()
params = Parameters()
