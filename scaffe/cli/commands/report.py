"""Logs and traces of runs as one page of HTML.

Folders stand for the logs and traces inside. The page needs no network.
"""

from __future__ import annotations

from scaffe.atomic_files import refuse_input, write_whole
from scaffe.errors import UserError
from scaffe.flags import Flags
from scaffe.report.find import files_of, find_runs
from scaffe.report.page import html

GROUP = "Logs and pictures"


def main(argv: list[str]) -> int:
    """``report LOG|TRACE|FOLDER ... [-output report.html] [-title TITLE]``. Returns the exit code."""
    flags = Flags("report", __doc__ or "")
    flags.rest("runs", "logs of train, traces of train -timeline, or folders with them")
    flags.flag("output", "report.html", "the page to write", metavar="FILE")
    flags.flag("title", "", "the page's title; none: the runs' names")
    options = flags.parse(argv)
    refuse_input(options.output, files_of(options.runs), UserError)
    runs = find_runs(options.runs)
    page = html(runs, options.title or ", ".join(run.name for run in runs))
    write_whole(options.output, page.encode(), UserError)
    print(options.output)
    return 0
