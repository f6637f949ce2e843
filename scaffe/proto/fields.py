"""What differs between protobuf's releases about a message's fields."""

from __future__ import annotations

from typing import Any


def is_repeated(field: Any) -> bool:
    """Whether a field of a descriptor holds any number of values; protobuf before 6 says so by its label alone."""
    return bool(field.is_repeated if hasattr(field, "is_repeated") else field.label == field.LABEL_REPEATED)
