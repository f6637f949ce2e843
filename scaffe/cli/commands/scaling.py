"""Logs of runs on 1..N ranks into a scaling table.

And, where asked for, a picture of it.
"""

from __future__ import annotations

import json

from scaffe.atomic_files import refuse_input, write_whole
from scaffe.errors import UserError
from scaffe.flags import Flags
from scaffe.pictures.scaling import as_json, as_text, chart, read_run, rows_of

GROUP = "Logs and pictures"


def main(argv: list[str]) -> int:
    """``scaling -strong LOG,LOG -weak LOG,LOG [-json FILE] [-plot FILE.svg]``. Returns the exit code."""
    flags = Flags("scaling", __doc__ or "")
    flags.flag("strong", "", "logs of train -scal strong", metavar="LOG,...")
    flags.flag("weak", "", "logs of train -scal weak", metavar="LOG,...")
    flags.flag("json", "", "write the table there as well", metavar="FILE")
    flags.flag("plot", "", "draw it there, as SVG", metavar="FILE")
    options = flags.parse(argv)
    logs = {kind: [path for path in getattr(options, kind).split(",") if path] for kind in ("strong", "weak")}
    if not any(logs.values()):
        flags.error("needs -strong or -weak")
    for output in filter(None, (options.json, options.plot)):
        refuse_input(output, logs["strong"] + logs["weak"], UserError)
    rows = rows_of([read_run(path, kind) for kind, paths in logs.items() for path in paths])
    print(as_text(rows))
    if options.json:
        write_whole(options.json, f"{json.dumps(as_json(rows), indent=1)}\n".encode(), UserError)
    if options.plot:
        write_whole(options.plot, chart(rows).svg().encode(), UserError)
    return 0
