"""The tests' own SLURM leaves nothing behind."""

import subprocess
from pathlib import Path

import pytest

from tests.slurm.cluster import Cluster, missing


@pytest.mark.skipif(bool(missing()), reason=f"no SLURM here: {missing()}")
def test_no_process_and_no_file_is_left():
    with Cluster(n_nodes=1) as cluster:
        job = cluster.run("sbatch", "--parsable", "--output=/dev/null", "--wrap=sleep 1000")
        assert job in cluster.run("squeue", "-h", "-o", "%i")
    everything = subprocess.run(["ps", "-A", "e", "-o", "stat,args"], capture_output=True, text=True, check=True).stdout
    assert not [line for line in everything.splitlines() if str(cluster.folder) in line and line[0] != "Z"]
    assert not Path(cluster.folder).exists()
