"""Converters by layer type, of one kind of export."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from scaffe.nets.net_layer import Node

Converter = Callable[[Any, Node], None]


class Converters(dict[str, Converter]):
    """By layer type, a function that takes what is being made and the layer in its net."""

    def of(self, *types: str) -> Callable[[Converter], Converter]:
        """Decorator: this function converts those layer types."""

        def enter(converter: Converter) -> Converter:
            self.update(dict.fromkeys(types, converter))
            return converter

        return enter
