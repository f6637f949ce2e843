"""Setting a message's field of whatever kind."""

from __future__ import annotations

from typing import Any


def put(message: Any, name: str, value: Any) -> None:
    """Set a field: a repeated one gets the value (or values) appended, a message is copied, a plain one assigned."""
    target = getattr(message, name)
    if hasattr(target, "append"):
        target.extend(value if hasattr(value, "append") else [value])
    elif hasattr(target, "CopyFrom"):
        target.CopyFrom(value)
    else:
        setattr(message, name, value)
