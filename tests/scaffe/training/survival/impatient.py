"""`python -m scaffe` whose ranks wait 15 s for others of which nothing is heard, in place of 30, beyond the deadline."""

import sys

from scaffe.__main__ import main
from scaffe.collectives.runtime import ranks

if __name__ == "__main__":
    ranks.OUTLAST_SECONDS = 15.0
    sys.exit(main())
