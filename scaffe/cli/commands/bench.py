"""Measure collectives, in OSU's columns."""

from __future__ import annotations

GROUP = "Collectives"


def main(argv: list[str]) -> int:
    """Run the command; returns the exit code."""
    from scaffe.collectives.bench import main as bench

    return bench(argv)
