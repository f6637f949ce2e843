"""From a whole net's message and a plan to the message of one rank's net: moves inserted, columns counted; pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from scaffe.training.partition.kinds import BY_COLUMNS, COLUMNS, INPUTS, KINDS, OUTPUTS, REPLICATED, ROWS, WHOLE
from scaffe.training.partition.shapes import ELEMENTWISE

MOVE = "Move"
"""The type of the layers between."""


@dataclass
class Lying:
    """How one blob lies while layers are gone through.

    Attributes:
        name: of the blob now, after its last move.
        how: in rows, in columns, or whole.
    """

    name: str
    how: str


@dataclass
class Rewritten:
    """One rank's net.

    Attributes:
        message: the NetParameter.
        kinds: layer name → kind, in this net.
        moves: name of a layer between → (how its bottom lies, how its top lies).
    """

    message: Any
    kinds: dict[str, str] = field(default_factory=dict)
    moves: dict[str, tuple[str, str]] = field(default_factory=dict)


def rewrite(message: Any, kinds: Mapping[str, str], is_training: bool) -> Rewritten:
    """The message of a rank's net.

    Where nets are trained, what is not split lies in rows: every rank has its own images. In tests all ranks of a
    replica read the same batch: what is not split lies whole.

    Args:
        message: a NetParameter with Split layers, as ``graph.prepare`` makes it; left as it is.
        kinds: layer name → kind in training; other layers are replicated, in tests they follow their bottoms.
        is_training: whether the net is trained.
    """
    made = Rewritten(type(message)())
    made.message.CopyFrom(message)
    del made.message.layer[:]
    common = ROWS if is_training else WHOLE
    lying: dict[str, Lying] = {}
    for original in message.layer:
        bottoms = [lying.get(name, Lying(name, common)) for name in original.bottom]
        kind = kinds.get(original.name, REPLICATED) if is_training else _kind_in_tests(original, bottoms, kinds)
        way, layer = KINDS[kind], type(original)()
        layer.CopyFrom(original)
        for i, (name, bottom) in enumerate(zip(original.bottom, bottoms, strict=True)):
            needed = common if way.need(i) == ROWS else way.need(i)
            _move(made, original, i, bottom, needed)
            layer.bottom[i] = bottom.name
            lying[name] = bottom
        made.kinds[layer.name] = kind
        _name_tops(layer, original, common if way.gives == ROWS else way.gives, lying)
        made.message.layer.append(layer)
    return made


def _kind_in_tests(layer: Any, bottoms: list[Lying], kinds: Mapping[str, str]) -> str:
    kind = kinds.get(layer.name, REPLICATED)
    if kind in (OUTPUTS, INPUTS) and layer.type == "InnerProduct":
        return kind
    follows = layer.type in ELEMENTWISE and all(bottom.how == COLUMNS for bottom in bottoms)
    return BY_COLUMNS if follows else REPLICATED


def _move(made: Rewritten, reader: Any, index: int, bottom: Lying, needed: str) -> None:
    """Put a layer in front of the reader's bottom if it does not lie as needed; ``bottom`` says then how it lies."""
    if bottom.how == needed:
        return
    name = f"{reader.name}_{index}_{needed}"
    top = f"{bottom.name}_{name}"
    made.message.layer.append(type(reader)(name=name, type=MOVE, bottom=[bottom.name], top=[top], phase=reader.phase))
    made.moves[name] = (bottom.how, needed)
    bottom.name, bottom.how = top, needed


def _name_tops(layer: Any, original: Any, how: str, lying: dict[str, Lying]) -> None:
    """Write down how the tops lie; a layer in place stays in place where its bottom has moved."""
    for i, name in enumerate(original.top):
        if i < len(original.bottom) and original.bottom[i] == name:
            layer.top[i] = layer.bottom[i]
        lying[name] = Lying(layer.top[i], how)
