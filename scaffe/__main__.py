"""``python -m scaffe COMMAND ...``"""

import sys

from scaffe.training import early_signals


def main() -> int:
    """Run the command line of this process. Returns the exit code."""
    if sys.argv[1:2] in (["train"], ["join"]):
        early_signals.note_signals()  # ahead of all that takes time, imports too
    with early_signals.ended_by_interrupt():
        from scaffe.cli import streams
        from scaffe.cli.main import main as run

        streams.open_closed_ones()
        with streams.quiet_without_a_reader():
            code = run()
    early_signals.ignore_signals()
    return code


if __name__ == "__main__":
    sys.exit(main())
