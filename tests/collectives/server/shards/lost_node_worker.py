"""A node that holds shards is lost at a known clock; those that are left say what they have of every shard.

Arguments: each rank's node, how many ranks are servers alone, and the node that is lost. Rank 0 prints for every part
of the table whether it is all there, whether it is a second copy, and the different values and histories in it.
"""

import json
import os
import signal
import sys

import numpy as np

from scaffe.collectives import Communicator, RankLost
from scaffe.collectives.server import ParameterServer

N_ELEMS, N_CLOCKS = 1_200_001, 40  # two pieces a shard of two


class Momentum:
    """h <- 0.5 h + u, v <- v - h; the second history counts updates."""

    n_histories, merges = 2, False

    def step(self, values, update, histories, first, settings):
        histories[0][:] = np.float32(0.5) * histories[0] + update
        values -= histories[0]
        histories[1] += 1


def train(server, batch, victims):
    """Iterations with known updates; rank 0 ends the victims in the middle of the last one, until all find it out."""
    for clock in range(N_CLOCKS + 1):
        batch.read(newest=clock == N_CLOCKS)
        batch.post_read()
        if clock == N_CLOCKS - 1 and victims:
            for pid in victims:
                os.kill(pid, signal.SIGKILL)
        batch.pre_update()[:] = clock % 3
        batch.update()
        server.clock()


ranks = Communicator.world(node_of_rank=[int(n) for n in sys.argv[1].split(",")])
server = ParameterServer(ranks, 0, int(sys.argv[2]), keeps_copies=True)
table = server.table("t", 1, N_ELEMS, Momentum())
batch = server.batch(table, range(1)) if server.is_worker else None
server.start()
pids = ranks.allgather_objects(os.getpid())
lost = ranks.topology.nodes[int(sys.argv[3])]
try:
    if batch is not None:
        train(server, batch, [pids[rank] for rank in lost] if ranks.rank == 0 else [])
    server.close()
except RankLost:
    server.abandon()
fewer = ranks.shrink()
left = fewer.allgather_objects(ranks.rank)
found = []
for shard, start, stop, giver, is_whole, is_copy in server.recovery_sources(table, left):
    if giver == ranks.rank:
        values, histories = server.recovery_values(table, shard)
        kinds = np.unique(np.stack([values, *histories], axis=1), axis=0) if is_whole else np.zeros((0, 3))
        found.append((shard, stop - start == len(values), is_copy, kinds.tolist()))
everyone = fewer.gather_objects(found)
if fewer.rank == 0:
    print(json.dumps(sorted(part for own in everyone for part in own)), flush=True)
