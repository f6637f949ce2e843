"""Draw a timeline that train -timeline wrote."""

from __future__ import annotations

from pathlib import Path

from scaffe.atomic_files import refuse_input, write_whole
from scaffe.errors import UserError
from scaffe.flags import Flags, number
from scaffe.pictures.timeline import lay_out, to_png, to_svg
from scaffe.report.trace import read_trace

GROUP = "Logs and pictures"
MOST_MS = 1e15
WRITERS = {".svg": to_svg, ".png": to_png}


def main(argv: list[str]) -> int:
    """Run the command; returns the exit code."""
    flags = Flags("plot", __doc__ or "")
    flags.argument("trace", "the trace's JSON")
    flags.flag("output", "", "the .svg or .png to write; none: the trace's name with .svg", metavar="FILE")
    flags.flag("start", 0.0, "milliseconds from which to draw", kind=number(0, MOST_MS))
    flags.flag("end", 0.0, "milliseconds up to which to draw; 0: the end", kind=number(0, MOST_MS))
    options = flags.parse(argv)
    output = Path(options.output or Path(options.trace).with_suffix(".svg"))
    if output.suffix.lower() not in WRITERS:
        raise UserError(f"{output}: cannot draw {output.suffix or 'a file without an ending'}; expected .svg or .png")
    refuse_input(output, [options.trace], UserError)
    events = read_trace(options.trace).events
    try:
        picture = lay_out(events, options.start, options.end or None)
    except UserError as error:
        raise UserError(f"{options.trace}: {error}") from error
    write_whole(output, WRITERS[output.suffix.lower()](picture), UserError)
    print(output)
    return 0
