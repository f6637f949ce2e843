"""Draw a timeline that train -timeline wrote."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from scaffe.atomic_files import write_whole
from scaffe.errors import UserError
from scaffe.flags import Flags
from scaffe.input_files import read_text_input
from scaffe.pictures.timeline_picture import lay_out
from scaffe.pictures.timeline_png import to_png
from scaffe.pictures.timeline_svg import to_svg

GROUP = "Logs and pictures"
NUMBERS = ("pid", "tid", "ts", "dur")
WRITERS = {".svg": to_svg, ".png": to_png}


def main(argv: list[str]) -> int:
    """Run the command; returns the exit code."""
    flags = Flags("plot", __doc__ or "")
    flags.argument("trace", "the trace's JSON")
    flags.flag("output", "", "the .svg or .png to write; none: the trace's name with .svg", metavar="FILE")
    flags.flag("start", 0.0, "milliseconds from which to draw")
    flags.flag("end", 0.0, "milliseconds up to which to draw; 0: the end")
    options = flags.parse(argv)
    output = Path(options.output or Path(options.trace).with_suffix(".svg"))
    if output.suffix.lower() not in WRITERS:
        raise UserError(f"{output}: cannot draw {output.suffix or 'a file without an ending'}; expected .svg or .png")
    events = read_events(options.trace)
    try:
        picture = lay_out(events, options.start, options.end or None)
    except UserError as error:
        raise UserError(f"{options.trace}: {error}") from error
    write_whole(output, WRITERS[output.suffix.lower()](picture), UserError)
    print(output)
    return 0


def read_events(path: str) -> list[dict[str, Any]]:
    """The events of a trace in Chrome's format, spans with their four numbers.

    Raises:
        UserError: the file cannot be read or is something else.
    """
    try:
        events = json.loads(read_text_input(path))["traceEvents"]
        if all(all(isinstance(event[key], (int, float)) for key in NUMBERS) and isinstance(event["name"], str)
               for event in events if event.get("ph") == "X"):
            return list(events)
    except OSError as error:
        raise UserError(f"{path}: {(error.strerror or str(error)).lower()}") from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        pass
    raise UserError(f"{path}: not a trace that train -timeline wrote")
