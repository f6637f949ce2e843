"""`python -m scaffe` whose ranks wait for others of which nothing is heard 15 s, not 30, beyond the deadline."""

import sys

from scaffe.__main__ import main
from scaffe.collectives.runtime import ranks

if __name__ == "__main__":
    ranks.OUTLAST_SECONDS = 15.0
    sys.exit(main())
