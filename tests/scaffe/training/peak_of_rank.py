"""One rank of `scaffe train` that says what it had in memory at most: `peak_of_rank.py FOLDER train's flags ...`."""

import os
import sys
from pathlib import Path

from scaffe.cli.commands import train

if __name__ == "__main__":
    status = train.main(sys.argv[2:])
    peak = next(line.split()[1] for line in Path("/proc/self/status").read_text().splitlines()
                if line.startswith("VmHWM"))
    rank = os.environ.get("OMPI_COMM_WORLD_RANK", os.environ.get("PMI_RANK"))
    (Path(sys.argv[1]) / f"peak.{rank}").write_text(peak)
    sys.exit(status)
