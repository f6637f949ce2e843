"""Collect the logs of runs on 1..N ranks into one table of strong and weak scaling, and draw it."""

from __future__ import annotations

import json

from scaffe.atomic_files import write_whole
from scaffe.cli.flags import Flags
from scaffe.errors import UserError
from scaffe.pictures.scaling import as_json, as_text, chart, read_run, rows_of


def main(argv: list[str]) -> int:
    """``scaling -strong LOG,LOG -weak LOG,LOG [-json FILE] [-plot FILE.svg]``. Returns the exit code."""
    flags = Flags("scaling", __doc__ or "")
    flags.flag("strong", "", "logs of train -scal strong, with commas between")
    flags.flag("weak", "", "logs of train -scal weak, with commas between")
    flags.flag("json", "", "write the table there as well")
    flags.flag("plot", "", "draw it there, as SVG")
    options = flags.parse_args(argv)
    logs = {kind: [path for path in getattr(options, kind).split(",") if path] for kind in ("strong", "weak")}
    if not any(logs.values()):
        flags.error("needs -strong or -weak")
    rows = rows_of([read_run(path, kind) for kind, paths in logs.items() for path in paths])
    print(as_text(rows))
    if options.json:
        write_whole(options.json, f"{json.dumps(as_json(rows), indent=1)}\n".encode(), UserError)
    if options.plot:
        write_whole(options.plot, chart(rows).svg().encode(), UserError)
    return 0
