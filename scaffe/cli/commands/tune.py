"""Measure algorithms and write the table of `auto`."""

from __future__ import annotations

GROUP = "Collectives"


def main(argv: list[str]) -> int:
    """Run the command; returns the exit code."""
    from scaffe.collectives.tuning.tune import main as tune

    return tune(argv)
