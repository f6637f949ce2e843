"""Benchmarks of collectives, in the manner of the OSU micro-benchmarks: `python -m scaffe bench reduce`."""

from __future__ import annotations


def main(argv: list[str]) -> int:
    """Runs the command `bench`. Returns 0, or 1 when an element was wrong or the benchmark cannot run."""
    from scaffe.collectives.bench.sweep import main as run

    return run(argv)
