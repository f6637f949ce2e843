"""``python -m scaffe COMMAND ...``"""

import sys

from scaffe.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
