"""A solver's prototxt of any age in today's form."""

from __future__ import annotations

from scaffe.cli.upgrade_text import upgrade_text
from scaffe.nets import graph

GROUP = "Nets and weights"


def main(argv: list[str]) -> int:
    """``upgrade_solver_proto_text OLD NEW``. Returns the exit code."""
    return upgrade_text("upgrade_solver_proto_text", __doc__ or "",
                        lambda path: (graph.read_solver_as_written(path), []), argv)
