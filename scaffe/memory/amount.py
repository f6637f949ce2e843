"""Amounts of memory as people write them: 2GB, 512MiB, 1500000000, 40%."""

from __future__ import annotations

import re

UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12,
         "KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40}
MOST_BYTES = 10**18
WORDS = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*|%)")


def amount(text: str) -> str:
    """The text itself, if it is an amount: a flag's kind. Raises ValueError."""
    if text:
        n_bytes(text, 1)
    return text


def n_bytes(text: str, whole: int) -> int:
    """The bytes that an amount means.

    Args:
        text: a number with a unit or without (bytes), or a share with a percent sign.
        whole: what a share is of, in bytes.

    Raises:
        ValueError: it is neither, is not above 0, or is above MOST_BYTES.
    """
    found = WORDS.fullmatch(text.strip())
    unit = found[2].upper() if found else None
    if found is None or (unit != "%" and unit not in UNITS) or float(found[1]) <= 0:
        raise ValueError("must be an amount of memory such as 2GB, 512MiB or 40%")
    number = float(found[1])
    amount_bytes = number * whole / 100 if unit == "%" else number * UNITS[unit or ""]
    if amount_bytes > MOST_BYTES:
        raise ValueError(f"must be at most {shown(MOST_BYTES)}")
    return int(amount_bytes)


def shown(amount_bytes: float) -> str:
    """Bytes for people: 1.23 GB."""
    for unit in ("TB", "GB", "MB", "KB"):
        if amount_bytes >= UNITS[unit]:
            return f"{amount_bytes / UNITS[unit]:.3g} {unit}"
    return f"{amount_bytes:.0f} B"
