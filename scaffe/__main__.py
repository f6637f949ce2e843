"""``python -m scaffe COMMAND ...``"""

import sys

from scaffe.cli import main

if __name__ == "__main__":
    sys.exit(main())
