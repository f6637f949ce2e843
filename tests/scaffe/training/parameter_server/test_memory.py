"""What the server takes of a rank's memory: tables of 1,000 bytes, or of 96 MiB, of which pieces of 4 MiB are there."""

import pytest

from scaffe.collectives.server.protocol.mailbox import mailbox_bytes
from scaffe.collectives.server.tables.roles import Roles
from scaffe.collectives.topology import Topology
from scaffe.training.parameter_server.options import Consistency, MemoryAccounting

PIECE, MAIL = 4 << 20, mailbox_bytes(32)  # of 3 senders with up to 3 messages a table and 5 more, a power of two


def resident(n_servers, n_bytes, in_file, slack=0.0, n_histories=1, keeps_copies=False, nodes=(0, 0, 0, 0)):
    how = Consistency(slack, n_servers, keeps_copies=keeps_copies)
    return MemoryAccounting(how, Roles.of(Topology(nodes), n_servers), 1, n_bytes, n_histories, in_file)


@pytest.mark.parametrize(("n_servers", "n_bytes", "in_file", "expected"), [
    (1, 1000, False, (1 + 1 + 3) * 1000), (1, 1000, True, (1 + 1 + 3) * 1000), (2, 1001, True, (1 + 1 + 2) * 501),
    (1, 96 << 20, False, 5 * 96 << 20), (1, 96 << 20, True, 5 * PIECE), (2, 96 << 20, False, 4 * 48 << 20)])
def test_a_server_has_its_shard_histories_and_updates_and_its_nodes_mailboxes(n_servers, n_bytes, in_file, expected):
    found = resident(n_servers, n_bytes, in_file).of_server()
    assert found == expected + 4 * MAIL


def test_a_server_has_anothers_copies_where_ranks_of_a_node_may_be_lost():
    alone, kept = (resident(1, 1000, True, keeps_copies=each, nodes=(0, 0, 1, 1)).of_server() for each in (False, True))
    assert kept == alone + 1000


def test_without_such_ranks_there_is_nothing_to_count():
    assert resident(0, 1000, False).of_server() == 0


@pytest.mark.parametrize(("n_servers", "n_bytes", "in_file", "slack", "expected"), [
    (0, 1000, False, 0.0, 1000 + 2 * 250), (0, 1000, False, 2.0, 2000 + 2 * 250), (1, 1000, False, 2.0, 2000),
    (0, 96 << 20, True, 2.0, PIECE + (2 + 4) * PIECE), (1, 96 << 20, True, 2.0, PIECE)])
def test_a_worker_has_what_it_pushes_and_pulls_and_its_shard(n_servers, n_bytes, in_file, slack, expected):
    assert resident(n_servers, n_bytes, in_file, slack).of_worker(on_device=False) == expected


@pytest.mark.parametrize("slack", [0.0, 2.0])
@pytest.mark.parametrize("in_file", [False, True])
def test_on_a_device_it_has_what_it_pushes_and_pulls(slack, in_file):
    assert resident(0, 96 << 20, in_file, slack).of_worker(on_device=True) == 2 * 96 << 20
