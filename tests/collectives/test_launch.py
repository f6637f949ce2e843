"""What a launcher's variables say before MPI starts."""

import pytest

from scaffe.collectives import launch


@pytest.mark.parametrize(("variables", "number"), [
    ({}, None), ({"OMPI_COMM_WORLD_LOCAL_RANK": "3", "SLURM_LOCALID": "0"}, 3), ({"MPI_LOCALRANKID": "1"}, 1),
    ({"SLURM_LOCALID": "5"}, 5), ({"SLURM_LOCALID": "x"}, None),
    ({"OMPI_COMM_WORLD_LOCAL_RANK": "3", "SCAFFE_RANKS_PER_NODE": "2"}, None)])
def test_a_ranks_number_on_its_node(variables, number):
    assert launch.node_rank(variables) == number
