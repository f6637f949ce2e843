"""Draw a timeline that train -timeline wrote: plot trace.json [-output trace.svg]."""

from __future__ import annotations

import json
from pathlib import Path

from scaffe.errors import UserError
from scaffe.flags import Flags
from scaffe.timeline_svg import draw


def main(argv: list[str]) -> int:
    """Run the command; returns the exit code."""
    flags = Flags("plot", __doc__ or "")
    flags.add_argument("trace", help="the trace's JSON")
    flags.flag("output", "", "the SVG to write; by default the trace's name with .svg")
    flags.flag("start", 0.0, "milliseconds from which to draw")
    flags.flag("end", 0.0, "milliseconds up to which to draw; 0: the end")
    options = flags.parse_args(argv)
    try:
        events = json.loads(Path(options.trace).read_text())["traceEvents"]
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{options.trace}: not a trace that train -timeline wrote") from error
    output = Path(options.output or Path(options.trace).with_suffix(".svg"))
    output.write_text(draw(events, options.start, options.end or None))
    print(output)
    return 0
