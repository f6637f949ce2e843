"""What a launcher's variables say before MPI starts."""

import os
import subprocess
import sys

import pytest

from scaffe.collectives import launch


@pytest.mark.parametrize(("variables", "number"), [
    ({}, None), ({"OMPI_COMM_WORLD_LOCAL_RANK": "3", "SLURM_LOCALID": "0"}, 3), ({"MPI_LOCALRANKID": "1"}, 1),
    ({"SLURM_LOCALID": "5"}, 5), ({"SLURM_LOCALID": "x"}, None),
    ({"OMPI_COMM_WORLD_LOCAL_RANK": "3", "SCAFFE_RANKS_PER_NODE": "2"}, None)])
def test_a_ranks_number_on_its_node(variables, number):
    assert launch.node_rank(variables) == number


@pytest.mark.parametrize(("variables", "expected"), [
    ({}, None),
    ({"OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_SIZE": "5", "PMIX_RANK": "2"}, (2, 5)),
    ({"PMI_RANK": "0", "PMI_SIZE": "3", "SLURM_PROCID": "7"}, (0, 3)),
    ({"SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "4"}, (1, 4)),
    ({"SLURM_PROCID": "0"}, None),  # a batch script, which no srun has started
    ({"PMI_RANK": "x", "PMI_SIZE": "3"}, None)])
def test_the_place_among_all_ranks(variables, expected):
    assert launch.place(variables) == expected


ALONE = {"SLURM_STEP_NUM_TASKS": "1", "SLURM_JOB_ID": "7", "SLURM_PROCID": "0", "SLURM_LOCALID": "0"}
PMIX = {"PMIX_RANK": "0", "PMIX_NAMESPACE": "slurm.pmix.7.0"}


@pytest.mark.parametrize(("variables", "needs_mpi"), [
    (ALONE, False), (ALONE | PMIX, False), (ALONE | {"PMI_SIZE": "1", "PMI_RANK": "0"}, False),
    (ALONE | {"SLURM_STEP_NUM_TASKS": "2"}, True), (ALONE | PMIX | {"SLURM_STEP_NUM_TASKS": "2"}, True),
    (ALONE | {"SLURM_HET_SIZE": "2"}, True),
    (ALONE | {"OMPI_COMM_WORLD_SIZE": "4", **PMIX}, True), (ALONE | {"PMI_SIZE": "4"}, True),  # a launcher within it
    (ALONE | PMIX | {"PMIX_NAMESPACE": "prterun-node1-77@1"}, True), (ALONE | {"PMIX_RANK": "0"}, True)])
def test_a_task_that_srun_starts_alone_needs_no_mpi(variables, needs_mpi):
    assert launch.launched(variables) == needs_mpi
    assert launch.has_launcher(variables)
    assert not launch.launched({}) and not launch.has_launcher({})


def test_such_a_task_does_not_load_mpi(monkeypatch):
    """MPI would leave its shared memory behind."""
    for name in (*launch.COUNT_VARIABLES, *launch.RANK_VARIABLES):
        monkeypatch.delenv(name, raising=False)
    code = ("import sys; from scaffe.collectives import Communicator; "
            "print(Communicator.world().n_ranks, 'mpi4py.MPI' in sys.modules)")
    done = subprocess.run([sys.executable, "-c", code], env=os.environ | ALONE | PMIX, capture_output=True, text=True)
    assert done.stdout == "1 False\n", done.stderr
