"""Goes on when a rank is killed: ``mpirun --with-ft ulfm -np 4 python examples/lost_rank.py`` (Open MPI 5)."""

import os
import signal

from scaffe.collectives import Communicator, RankLost

ranks = Communicator.world()
for step in range(10):
    if step == 5 and ranks.rank == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        x = ranks.alloc(1000)
        ranks.allreduce(x)
    except RankLost as loss:
        print(loss)
        ranks = ranks.shrink()
print(f"rank {ranks.rank} of {ranks.n_ranks} is done")
