"""A net that one rank has no memory for, trained by four, whose memory is limited from planning to reading files.

The limit is the system's on a process's own data (RLIMIT_DATA), some megabytes above what the process has already.
"""

import gc
import resource
import threading
from contextlib import contextmanager
from pathlib import Path

from google.protobuf import text_format

from scaffe.errors import UserError
from scaffe.nets.weights import load_weights
from scaffe.proto import caffe_pb2
from scaffe.training.assembly import build_solver
from scaffe.training.checkpoint import restore_checkpoint, save_checkpoint
from scaffe.training.partitioning import divided
from scaffe.training.strategies import Role, look_up

WIDTH, N_LAYERS = 1536, 8
N_PARAMETERS = 189 * WIDTH + (N_LAYERS - 1) * WIDTH**2 + 10 * WIDTH + N_LAYERS * WIDTH + 10
ROOM = 134 << 20
"""Bytes that a rank may take: parameters, gradients and histories of the whole net are 202 MB. As measured, one
rank fails with 140 MiB and four train with 128: buffers in memory that ranks share do not count."""
SOLVER = """base_lr: 0.01 momentum: 0.9 lr_policy: "fixed" random_seed: 3 max_iter: 4 snapshot_prefix: "{prefix}" """


def net(source):
    """Wide layers, split by outputs and inputs in turn."""
    layers = [f'layer {{ name: "data" type: "HDF5Data" top: "data" top: "label" hdf5_data_param {{ source: "{source}" '
              'batch_size: 8 } }']
    for n in range(1, N_LAYERS + 1):
        below = f"h{n - 1}" if n > 1 else "data"
        layers.append(f'layer {{ name: "fc{n}" type: "InnerProduct" bottom: "{below}" top: "h{n}" '
                      f'inner_product_param {{ num_output: {WIDTH} weight_filler {{ type: "xavier" }} }} '
                      f'parallel_param {{ split: {("INPUTS", "OUTPUTS")[n % 2]} }} }}')
    return "\n".join([*layers, f'layer {{ name: "fc" type: "InnerProduct" bottom: "h{N_LAYERS}" top: "fc" '
                      'inner_product_param { num_output: 10 weight_filler { type: "xavier" } } } '
                      'layer { name: "loss" type: "SoftmaxWithLoss" bottom: "fc" bottom: "label" top: "loss" }'])


def trained(ranks, folder, name, given, n_iterations, start=None):
    """Train some iterations, from a state if one is given, and write a snapshot."""
    param = text_format.Parse(SOLVER.format(prefix=folder / name), caffe_pb2.SolverParameter())
    text_format.Parse(net(folder / "list.txt"), param.net_param)
    role = divided(Role.worker(ranks, given), look_up("auto", "auto", ranks, solver_type="SGD"), param, given)
    solver = build_solver(ranks, param, given, role)
    if start is not None:
        load_weights(solver.net, start.with_suffix(".caffemodel"))  # as -weights; the state's are the same
        restore_checkpoint(solver, start)
    solver.strategy.begin()
    solver.step(n_iterations)
    save_checkpoint(solver)
    solver.close()


@contextmanager
def little_memory():
    """Let this process take ROOM bytes more than it has."""
    gc.collect()
    held = next(int(line.split()[1]) << 10 for line in Path("/proc/self/status").read_text().splitlines()
                if line.startswith("VmData"))
    old, stack = resource.getrlimit(resource.RLIMIT_DATA), threading.stack_size(1 << 20)  # stacks count, used or not
    resource.setrlimit(resource.RLIMIT_DATA, (held + ROOM, old[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, old)
        threading.stack_size(stack)


def run(world, folder, options):
    """What one rank says that has no memory for the net; four with the same limit train it, and go on from files."""
    alone, said = world.split(0 if world.rank == 0 else None, 0), ""
    if alone is not None:
        with little_memory():  # first: what a run gives back to malloc would count as room
            try:
                trained(alone, folder, "alone", options("auto", "1"), 1)
            except (UserError, MemoryError) as error:
                said = f"{type(error).__name__}: {error}"
        trained(alone, folder, "roomy", options("auto", "1"), 4)
    world.barrier()
    with little_memory():
        trained(world, folder, "shared", options("auto", "4"), 2)
        gc.collect()
        trained(world, folder, "shared", options("auto", "4"), 2, folder / "shared_iter_2.solverstate")
    return said
