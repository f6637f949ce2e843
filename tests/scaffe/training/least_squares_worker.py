"""One rank of the least-squares runs: trains every solver file of a folder and snapshots."""

import sys
from pathlib import Path

import scaffe as caffe

for path in sorted(Path(sys.argv[1]).glob("solver_*.prototxt")):
    solver = caffe.get_solver(str(path))
    solver.solve()
