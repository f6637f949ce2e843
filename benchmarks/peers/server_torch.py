"""PyTorch's parameter server for ``benchmarks/server.py``: ``server_torch.py N_WORKERS N_BYTES N_TIMED``.

The pattern of PyTorch's tutorial "Implementing Batch RPC Processing Using Asynchronous Executions": trainers send their
gradients in one RPC to one server, which answers all with the new parameters once the last has come.
"""

import json
import os
import sys
import tempfile
import threading
import time

import torch
import torch.distributed.rpc as rpc
import torch.multiprocessing as mp

N_WARM = 2
SERVER = "server"


class Server:
    """The parameters, and the futures of the trainers that wait for the others."""

    def __init__(self, n_workers, n_elems):
        self.n_workers, self.parameters = n_workers, torch.zeros(n_elems)
        self.sum, self.n_come = torch.zeros(n_elems), 0
        self.lock, self.future = threading.Lock(), torch.futures.Future()

    @staticmethod
    @rpc.functions.async_execution
    def update_and_fetch(server, update):
        """The new parameters, when all have sent theirs."""
        self = server.local_value()
        with self.lock:
            self.sum += update
            self.n_come += 1
            future = self.future
            if self.n_come == self.n_workers:
                self.parameters += self.sum
                self.sum.zero_()
                self.n_come, self.future = 0, torch.futures.Future()
                future.set_result(self.parameters)
        return future


def work(server, number, n_workers, n_elems, n_timed):
    """A trainer: it checks every element, and returns when its clocks began and ended."""
    update, sums, times = torch.full((n_elems,), float(number + 1)), n_workers * (n_workers + 1) // 2, []
    for index in range(-N_WARM, n_timed):
        start = time.monotonic()
        got = rpc.rpc_sync(SERVER, Server.update_and_fetch, args=(server, update))
        times += [(start, time.monotonic())] * (index >= 0)
        if not (got == sums * (index + N_WARM + 1)).all():
            raise RuntimeError(f"trainer {number}: wrong elements")
    return times


def run(rank, n_workers, n_elems, n_timed, folder):
    """One process: the server is rank 0 and tells the trainers to begin."""
    torch.set_num_threads(1)
    options = rpc.TensorPipeRpcBackendOptions(num_worker_threads=max(16, n_workers + 1), rpc_timeout=0,
                                              init_method=f"file://{folder}/rendezvous")
    name = SERVER if rank == 0 else f"trainer{rank}"
    rpc.init_rpc(name, rank=rank, world_size=n_workers + 1, rpc_backend_options=options)
    if rank == 0:
        server = rpc.RRef(Server(n_workers, n_elems))
        asked = [rpc.rpc_async(f"trainer{worker + 1}", work, args=(server, worker, n_workers, n_elems, n_timed))
                 for worker in range(n_workers)]
        clocks = zip(*[future.wait() for future in asked], strict=True)
        print(json.dumps({"rpc": [(max(e for _, e in one) - max(s for s, _ in one)) * 1e3 for one in clocks]}))
    rpc.shutdown()


if __name__ == "__main__":
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    workers, n_bytes, timed = map(int, sys.argv[1:])
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(run, (workers, n_bytes // 4, timed, folder), workers + 1)
