"""What a launcher's variables say before MPI starts."""

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
