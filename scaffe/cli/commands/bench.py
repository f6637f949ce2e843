"""Measure collectives among this job's ranks, as the OSU micro-benchmarks do."""

from __future__ import annotations


def main(argv: list[str]) -> int:
    """Run the command; returns the exit code."""
    from scaffe.collectives.bench import main as bench

    return bench(argv)
