"""Ranks that die, fail or do not come while others wait for them: one line that names them, and the job ends."""

import re
from pathlib import Path

import pytest

from tests.collectives.test_mpi import job

pytestmark = pytest.mark.mpi_job

PRELUDE = """
import os, signal, sys
import numpy as np
from scaffe.collectives import Communicator
from scaffe.collectives.server import ParameterServer
ranks = Communicator.world(deadline=60)
ranks.install_excepthook()
class Broken:
    n_histories = 0
    def step(self, values, update, histories, first, settings):
        raise ZeroDivisionError("no rule at all")
server = ParameterServer(ranks)
batch = server.batch(server.table("t", 9, 5, Broken() if os.environ.get("BROKEN") else None), range(9))
server.start()
for clock in range(5):
    if ranks.rank == 1 and clock == 2:
        BODY
    batch.read(), batch.post_read()
    batch.pre_update()[:] = 1
    batch.update()
    server.clock()
    if clock == 2 and "LIMIT" in os.environ:  # the others have done what rank 1 has not, however slow the machine
        ranks.messages.isend(np.zeros(1), 2 - ranks.rank, 7)
        ranks.messages.recv(np.zeros(1), 2 - ranks.rank, 7)
        ranks.patience = float(os.environ["LIMIT"])
server.close()
"""


@pytest.mark.parametrize(("body", "environment", "words"), [
    ("os.kill(os.getpid(), signal.SIGKILL)", {}, r"rank \d waits for .*rank 1, process \d+, is dead|rank 1|signal 9"),
    ("import threading; threading.Event().wait()", {"LIMIT": "2"},
     r"rank [02] waited \d s for rows of table 't'; the slowest is rank 1, in iteration 2"),
    ("import threading; threading.Event().wait()", {"LIMIT": "2", "SCAFFE_RANKS_PER_NODE": "1"},
     r"rank [02] waited \d s for rows of table 't'; the slowest is rank 1, in iteration 2"),
    ("pass", {"BROKEN": "1", "SCAFFE_RANKS_PER_NODE": "2"}, r"rank \d: its shard of the parameter server has failed"),
    ("batch.read(); server.clock()", {},
     r"rank 1: worker 1 ends an iteration while it reads batch 0 of table 't'; post_read comes first"),
    ("pass", {"BROKEN": "1"}, r"rank \d: its shard of the parameter server has failed: no rule at all")])
def test_the_job_ends_with_a_line(body, environment, words):
    result = job(3, ["-c", PRELUDE.replace("BODY", body)], **environment)
    assert result.returncode != 0
    assert re.search(words, result.stderr), result.stderr[-3000:]


def test_the_example_learns():
    """The accuracy that one worker reaches with batches of 50 from the same images is 0.80."""
    example = Path(__file__).parents[3] / "examples" / "logistic_regression.py"
    result = job(3, [str(example)])
    assert result.returncode == 0, result.stderr[-3000:]
    found = re.fullmatch(r"accuracy (0\.\d+), reads (\d\.\d+) iterations old\n", result.stdout)
    assert float(found[1]) > 0.76
    assert float(found[2]) <= 1
