"""A parameter server: tables of rows on shards, read and updated in batches, under bounded staleness.

After GeePS (Cui et al., EuroSys 2016) and DistBelief (Dean et al., NIPS 2012). Usable without nets:
``from scaffe.collectives.server import ParameterServer``.
"""

from scaffe.collectives.server.server import ParameterServer
from scaffe.collectives.server.shards.shard import Add, Rule
from scaffe.collectives.server.workers.batch import Batch

__all__ = ["Add", "Batch", "ParameterServer", "Rule"]
