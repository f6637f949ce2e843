"""What a clock of the parameter server between nodes costs in processor time, beside what only sends the same bytes.

    jobs/cluster.sh N RATE -- python benchmarks/server_nodes.py sockets|mpi|server [--bytes N] [--clocks N]

A rank a node; every rank sends each other its part of ``--bytes``, twice a clock: as updates and as rows. ``sockets``:
plain TCP, two threads a connection. ``mpi``: messages as long as the server's, all begun at once. ``server``: tables in
16 batches, slack 0. Milliseconds a clock, and milliseconds of processor time of all ranks.
"""

from __future__ import annotations

import argparse
import resource
import socket
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from mpi4py import MPI

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from scaffe.collectives import Communicator  # noqa: E402
from scaffe.collectives.server import ParameterServer  # noqa: E402
from scaffe.collectives.server.nodes.transfers import CHUNK_BYTES  # noqa: E402

N_BATCHES, N_WARM, PIECE_BYTES = 16, 2, 256 << 10
Clock = Callable[[], None]
Closing = tuple[Clock, Callable[[], None]]
"""What runs one clock, and what ends it all."""


def sockets(n_bytes: int) -> Closing:
    """Connections between all ranks, on which both sides send and receive at once."""
    comm, made = MPI.COMM_WORLD, {}
    listening = socket.create_server(("", 0))
    places = comm.allgather((socket.gethostname(), listening.getsockname()[1]))
    for peer in range(comm.rank):
        made[peer] = socket.create_connection(places[peer])
    for _ in range(comm.size - 1 - comm.rank):
        peer, _ = listening.accept()
        made[len(made) + comm.size] = peer
    part, piece = 2 * (n_bytes // comm.size), bytes(PIECE_BYTES)

    def send(peer: socket.socket) -> None:
        for at in range(0, part, PIECE_BYTES):
            peer.sendall(piece[: part - at])

    def receive(peer: socket.socket) -> None:
        left, buffer = part, memoryview(bytearray(PIECE_BYTES))
        while left:
            left -= peer.recv_into(buffer[:left])

    def clock() -> None:
        threads = [threading.Thread(target=of, args=(peer,)) for peer in made.values() for of in (send, receive)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return clock, listening.close


def mpi(n_bytes: int) -> Closing:
    """Point-to-point messages of one chunk, all begun at once."""
    comm = MPI.COMM_WORLD
    part = n_bytes // comm.size
    own, others = np.ones((comm.size, part), np.uint8), np.empty((comm.size, part), np.uint8)
    peers = [peer for peer in range(comm.size) if peer != comm.rank]
    chunks = [np.s_[at : at + CHUNK_BYTES] for at in range(0, part, CHUNK_BYTES)]

    def clock() -> None:
        for _ in range(2):
            requests = [comm.Irecv(others[peer, chunk], peer) for chunk in chunks for peer in peers]
            requests += [comm.Isend(own[peer, chunk], peer) for chunk in chunks for peer in peers]
            while not MPI.Request.Testall(requests):
                time.sleep(1e-3)
    return clock, lambda: None


def server(n_bytes: int) -> Closing:
    """An update and a read of everything."""
    made = ParameterServer(Communicator.world())
    batches = [made.batch(made.table(str(i), 1, n_bytes // N_BATCHES // 4), [0]) for i in range(N_BATCHES)]
    made.start()

    def clock() -> None:
        for batch in batches:
            batch.pre_update()[:] = 1
            batch.update()
        made.clock()
        for batch in batches:
            batch.read()
            batch.post_read()
    return clock, made.close


def main() -> None:
    """Print one line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("sockets", "mpi", "server"))
    parser.add_argument("--bytes", type=int, default=64 << 20)
    parser.add_argument("--clocks", type=int, default=5)
    args = parser.parse_args()
    comm = MPI.COMM_WORLD
    clock, close = {"sockets": sockets, "mpi": mpi, "server": server}[args.what](args.bytes)
    for _ in range(N_WARM):
        clock()
    comm.Barrier()
    started, used = time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF)
    for _ in range(args.clocks):
        clock()
    now = resource.getrusage(resource.RUSAGE_SELF)
    found = comm.gather((time.perf_counter() - started, now.ru_utime - used.ru_utime, now.ru_stime - used.ru_stime))
    if found is not None:
        seconds, user, system = (1e3 / args.clocks * of(x) for of, x in zip((max, sum, sum), zip(*found, strict=True),
                                                                           strict=True))
        print(f"{args.what}: {seconds:.0f} ms a clock; processor time {user:.0f} ms user, {system:.0f} ms system",
              flush=True)
    close()


if __name__ == "__main__":
    main()
