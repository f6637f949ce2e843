"""python -m tests.fuzz [--seconds 60] [--kind NAME]... [--seed N] [--failed FOLDER] [ZIP...]

Damages inputs of every kind at random and has our code read them, until the time is over. An input that crashes a
reader, that raises anything but one line naming its file, that takes more than 10 s of processor time or 2 GB, is kept
in --failed, and the exit code is 1. Compiled code runs with bounds checks. Command lines run as processes, under limits
of their own (tests/fuzz/commands.py). With ZIPs, only those kept inputs are read.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
import time
from pathlib import Path


def main() -> int:
    """Run the command; returns the exit code."""
    options = _options()
    os.environ["GLOG_minloglevel"] = "2"  # noqa: SIM112 - its real name
    with tempfile.TemporaryDirectory(prefix="fuzz-kernels-") as folder:
        # before numba is imported: its bounds checks, and code that nobody else finds in a cache
        os.environ |= {"NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": folder}
        from tests.fuzz.campaign import Campaign, replay

        if options.zips:
            return replay(options.zips)
        print(f"seed {options.seed}", flush=True)
        campaign = Campaign(options.kind, options.seed, options.failed)
        campaign.run(time.monotonic() + options.seconds)
        print(campaign.summary())
    return 1 if campaign.n_failed else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("zips", nargs="*", type=Path)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--kind", action="append", help="one of tests/fuzz/kinds; again for more; all by default")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    parser.add_argument("--failed", type=Path, default=Path("fuzz-failed"), help="where inputs that fail are kept")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
