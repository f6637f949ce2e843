"""``python -m scaffe COMMAND ...``"""

import sys

from scaffe.cli import streams
from scaffe.cli.main import main as run


def main() -> int:
    """Run the command line of this process. Returns the exit code."""
    streams.open_closed_ones()
    with streams.quiet_without_a_reader():
        return run()


if __name__ == "__main__":
    sys.exit(main())
