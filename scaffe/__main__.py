"""``python -m scaffe COMMAND ...``"""

import signal
import sys

if __name__ == "__main__" and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # without a word while this imports, too

from scaffe import start_watch  # noqa: E402
from scaffe.training import early_signals  # noqa: E402


def main() -> int:
    """Run the command line of this process. Returns the exit code."""
    if sys.argv[1:2] in (["train"], ["join"]):
        early_signals.note_signals()  # ahead of all that takes time, imports too
        start_watch.begin()
    with early_signals.ended_by_interrupt():
        from scaffe.cli import main as cli

        cli.open_closed_streams()
        with cli.quiet_without_a_reader():
            code = cli.main()
    early_signals.ignore_signals()
    return code


if __name__ == "__main__":
    sys.exit(main())
