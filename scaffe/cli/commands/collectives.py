"""Commands about collectives: measure, tune and simulate them.

Each takes its arguments without the program's name, and returns the exit code.
"""

from __future__ import annotations


def bench(argv: list[str]) -> int:
    """Measure collectives, in OSU's columns."""
    from scaffe.collectives.bench.sweep import main

    return main(argv)


def tune(argv: list[str]) -> int:
    """Measure algorithms and write the table of `auto`."""
    from scaffe.collectives.tuning.tune import main

    return main(argv)


def simulate(argv: list[str]) -> int:
    """Model reductions on up to thousands of GPUs.

    S-Caffe's Figures 11 and 12 from the cost model.
    """
    from scaffe.collectives.model.paper_figures import main

    return main(argv)
