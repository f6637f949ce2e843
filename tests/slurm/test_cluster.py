"""The tests' own SLURM leaves nothing behind."""

from contextlib import suppress
from pathlib import Path

import pytest

from tests.slurm.cluster import Cluster, missing


@pytest.mark.skipif(bool(missing()), reason=f"no SLURM here: {missing()}")
def test_no_process_and_no_file_is_left():
    with Cluster(n_nodes=1) as cluster:
        job = cluster.run("sbatch", "--parsable", "--output=/dev/null", "--wrap=sleep 1000")
        assert job in cluster.run("squeue", "-h", "-o", "%i")
    lines = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # gone by now
            lines.append((process / "cmdline").read_bytes() + (process / "environ").read_bytes())
    assert lines
    assert not [line for line in lines if str(cluster.folder).encode() in line]
    assert not Path(cluster.folder).exists()
