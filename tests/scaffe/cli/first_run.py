"""Run the command line and say on standard error what is compiled for it.

    python tests/scaffe/cli/first_run.py COMMAND ...
"""

from __future__ import annotations

import sys

from numba.core import event

from scaffe.__main__ import main

MARK = "COMPILED"


class Teller(event.Listener):
    def on_start(self, event: event.Event) -> None:
        sys.stderr.write(f"{MARK} {event.data['dispatcher']}\n")

    def on_end(self, event: event.Event) -> None:
        pass


if __name__ == "__main__":
    event.register("numba:compile", Teller())
    sys.exit(main())
