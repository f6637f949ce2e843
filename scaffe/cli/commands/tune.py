"""Measure collective algorithms on this job's ranks and write the table that `auto` reads."""

from __future__ import annotations


def main(argv: list[str]) -> int:
    """Run the command; returns the exit code."""
    from scaffe.collectives.tuning.tune import main as tune

    return tune(argv)
