"""Write a solver's prototxt of whatever generation in today's form."""

from __future__ import annotations

from scaffe import graph
from scaffe.files import write_text
from scaffe.flags import Flags


def main(argv: list[str]) -> int:
    """``upgrade_solver_proto_text OLD NEW``. Returns the exit code."""
    flags = Flags("upgrade_solver_proto_text", __doc__ or "")
    flags.add_argument("old", help="a solver's prototxt")
    flags.add_argument("new", help="the file to write")
    options = flags.parse_args(argv)
    solver = graph.read_solver_as_written(options.old)
    new = graph.upgraded(solver, options.old)
    if new == solver:
        print(f"{options.old} is in today's form already")
    write_text(options.new, new)
    print(f"Wrote upgraded SolverParameter text proto to {options.new}")
    return 0
