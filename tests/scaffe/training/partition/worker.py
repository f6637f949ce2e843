"""One rank of the test of shared nets: trains the same net in many ways, each among some of the ranks.

    mpirun -np 4 python -m tests.scaffe.training.partition.worker FOLDER

Every run ends with a snapshot named after it; what else came out is pickled to FOLDER/results by rank 0.
"""

import pickle
import sys
from argparse import Namespace
from pathlib import Path

import numpy as np
from google.protobuf import text_format

from scaffe import log
from scaffe.collectives.communicator import Communicator
from scaffe.collectives.failure import install_excepthook
from scaffe.errors import UserError
from scaffe.proto import caffe_pb2
from scaffe.training.assembly import build_solver
from scaffe.training.checkpoint import restore_checkpoint, save_checkpoint
from scaffe.training.observers.test import Test
from scaffe.training.partition.options import ranks_of
from scaffe.training.partition.speeds import with_links, with_rate
from scaffe.training.partitioning import divided
from scaffe.training.solver import Observer
from scaffe.training.strategies import Role, look_up
from tests.scaffe.training.partition import large
from tests.scaffe.training.partition.image_nets import WAYS as IMAGE_WAYS
from tests.scaffe.training.partition.image_nets import image_net
from tests.scaffe.training.partition.nets import SOLVER, net

CLIP = "clip_gradients: 0.5"
# name: (way, ranks, partitions, strategy, bucket bytes, more of the solver)
RUNS = {"one": ("", 1, "1", "auto", "auto"), "outputs_2": ("outputs", 2, "2", "auto", "auto"),
        "inputs_3": ("inputs", 3, "3", "auto", "0"), "mixed_4": ("mixed", 4, "4", "auto", "0"),
        "inputs_4_2": ("inputs", 4, "2", "sc-obr", "300"), "mixed_4_2": ("mixed", 4, "2", "sc-rs", "auto"),
        "served_4_2": ("mixed", 4, "2", "ssp", "300"), "clipped": ("", 1, "1", "auto", "auto", CLIP),
        "clipped_b_4_2": ("mixed", 4, "2", "sc-b", "auto", CLIP),
        "clipped_rs_4_2": ("inputs", 4, "2", "sc-rs", "300", CLIP),
        "clipped_served_4_2": ("inputs", 4, "2", "ssp", "auto", CLIP),
        "planned_4": ("planned", 4, "auto", "auto", "auto"),
        "uneven_1": ("", 1, "1", "auto", "auto"), "uneven_4_2": ("mixed", 4, "2", "sc-rs", "auto"),
        "uneven_served_4_2": ("outputs", 4, "2", "ssp", "auto"),
        "images": ("images", 1, "1", "auto", "auto"), "channels_4": ("channels", 4, "4", "auto", "auto"),
        "bands_3": ("bands", 3, "3", "auto", "0"), "alternating_2": ("alternating", 2, "2", "sc-rs", "auto")}
N_ITERATIONS, N_HALF = 8, 4
RESUMED = {"outputs_2": "inputs_3", "one": "served_4_2", "mixed_4_2": "one"}
"""A run of N_HALF iterations → the run that goes on from it to N_ITERATIONS."""
UNEVEN = 22
"""The batch of uneven runs: 6, 6, 5 and 5 images for 4 ranks, 12 and 10 for two replicas of 2."""
ASYNCHRONOUS = {"ssp": {"slack": 2}, "downpour": {"n_fetch": 2, "n_push": 2, "warm_start": 2}}
REFUSED = {"divides": {"partitions": "3"}, "server": {"partitions": "2", "strategy": "ssp", "servers": 1},
           "lost": {"partitions": "2", "on_rank_loss": "shrink"}, "uneven refused": {"partitions": "2"}}


def options(strategy="auto", partitions="1", bucket="auto", **others):
    """The flags of ``train``."""
    values = {"strategy": strategy, "reduce": "auto", "wire": "", "bucket": bucket, "scal": "strong", "threads": 1,
              "readers": 1, "level": 0, "stage": "", "gpu": "", "allow_nan": False, "skip_bad_records": 0,
              "partitions": partitions, "memory": "", "on_rank_loss": "stop", "link_bandwidth": 1e6,
              "multiply_adds": 1e10, "slack": 0, "servers": 0, "n_fetch": 1, "n_push": 1, "n_sync": 0, "warm_start": 0}
    return Namespace(**(values | others))


def build(ranks, folder, name, way, given, extra=""):
    """A solver, divided as the flags say."""
    param = text_format.Parse(SOLVER.format(prefix=folder / name) + extra, caffe_pb2.SolverParameter())
    is_image_net = way == "images" or way in IMAGE_WAYS
    if is_image_net:
        param.iter_size = 1  # messages enough
    text = (image_net if is_image_net else net)(way, folder / "list.txt")
    if name.startswith("uneven"):
        text = text.replace("batch_size: 24", f"batch_size: {UNEVEN if name != 'uneven refused' else UNEVEN - 1}")
    text_format.Parse(text, param.net_param)
    strategy = look_up(given.strategy, "auto", ranks, solver_type="SGD")
    role = divided(strategy.roles.place(ranks, given), strategy, param, given)
    return build_solver(ranks, param, given, role)


def solver_of(ranks, folder, name, run, prefix=None):
    """The solver of one of RUNS."""
    way, _, partitions, strategy, bucket, *extra = run
    return build(ranks, folder, prefix or name, way, options(strategy, partitions, bucket), *extra)


def train(ranks, folder, name, run):
    """Train N_ITERATIONS; snapshots before the first and after the last.

    Returns:
        the parameters that this rank holds, what a test said, and whether a replica's ranks have the same
        parameters where they are not split.
    """
    solver = solver_of(ranks, folder, name, run)
    solver.strategy.begin()
    save_checkpoint(solver)
    seen = Seen()
    solver.observers.append(seen)
    solver.step(N_ITERATIONS)
    save_checkpoint(solver)
    Test().test_all(solver)
    solver.strategy.finish()
    held = sum(param.blob.n_elems for param in solver.net.params.params)
    common = [param.blob.data.tobytes() for param in solver.net.params.params if is_common(solver.net, param)]
    solver.close()
    return {"held": ranks.allgather_objects(held), "test": seen.values,
            "common": ranks.allgather_objects(common)}


def is_common(net, param):
    """Whether every rank has the whole of a parameter."""
    node = net.nodes[param.layer_index]
    number = next(i for i, blob in enumerate(node.layer.blobs) if blob is param.blob)
    return net.parts is None or net.parts.portion(node.name, number) is None


class Seen(Test):
    """Keeps what a test measured."""

    def before_iteration(self, solver):
        """Nothing."""

    def measured(self, solver, phase, values):
        """Keep the values."""
        self.values = values


def go_on(ranks, folder, first, second):
    """Train N_HALF iterations as one run, and go on to N_ITERATIONS as another, on other ranks in another way."""
    name = f"{first}_then_{second}"
    for run in (RUNS[first], RUNS[second]):
        with_ranks = ranks.split(0 if ranks.rank < run[1] else None, ranks.rank)
        if with_ranks is not None:
            solver = solver_of(with_ranks, folder, first, run, name)
            state = folder / f"{name}_iter_{N_HALF}.solverstate"
            if run is not RUNS[first]:
                restore_checkpoint(solver, state)
            solver.strategy.begin()
            solver.step(N_HALF)
            save_checkpoint(solver)
            solver.strategy.finish()
            solver.close()
        ranks.barrier()


class Wish(Observer):
    """One rank, which is no replica's first, wants all ranks to meet after the same iteration."""

    def __init__(self):
        self.met = []

    def gradients_ready(self, solver, loss, rate):
        """Agree, as signals do."""
        wants = solver.communicator.rank == 3 and solver.iteration == 7
        if solver.strategy.in_step.agree(int(wants), solver.iteration):
            self.met.append(solver.iteration)


def asynchronous(ranks, folder, strategy):
    """The losses of tests before and after replicas that share nets, and are not in step, have trained; and after which
    iterations each rank has met the others."""
    solver = build(ranks, folder, strategy, "mixed", options(strategy, "2", **ASYNCHRONOUS[strategy]))
    seen, wish, losses = Seen(), Wish(), []
    solver.observers += [seen, wish]
    solver.strategy.begin()
    for n_iterations in (0, 30):
        solver.step(n_iterations)
        Test().test_all(solver)
        losses.append(seen.values["loss"])
    solver.strategy.finish()
    solver.close()
    return losses, ranks.allgather_objects(wish.met)


def refusal(ranks, folder, name, given):
    """The error of a run that cannot be had, on every rank."""
    try:
        build(ranks, folder, name, "", options(**given))
    except UserError as error:
        return ranks.allgather_objects(str(error))
    return None


def statistics(ranks, folder):
    """BatchNorm's statistics of a divided net after ``settle``: those of all ranks."""
    param = text_format.Parse(SOLVER.format(prefix=folder / "norm"), caffe_pb2.SolverParameter())
    text = net("outputs", folder / "list.txt").replace('layer { name: "relu0"', """
        layer { name: "norm" type: "BatchNorm" bottom: "conv" top: "conv"
          parallel_param { split: REPLICATED } }
        layer { name: "relu0" """)
    text_format.Parse(text, param.net_param)
    given = options("sc-b", "2")
    solver = build_solver(ranks, param, given, divided(Role.worker(ranks, given), look_up("sc-b", "auto", ranks), param,
                                                       given))
    solver.strategy.begin()
    solver.step(2)
    solver.strategy.synchronize_parameters()
    found = ranks.allgather_objects(solver.net.node("norm").layer.blobs[0].data.tobytes())
    solver.close()
    return found


def main(folder):
    """Run everything."""
    log.silence(True)
    world = Communicator.world(node_of_rank=[0, 0, 1, 1])
    install_excepthook(world)
    results = {"large": large.run(world, folder, options)}  # first: before much is given back to malloc
    for name, run in RUNS.items():
        ranks = world.split(0 if world.rank < run[1] else None, world.rank)
        if ranks is not None:
            results[name] = train(ranks, folder, name, run)
        world.barrier()
    for first, second in RESUMED.items():
        go_on(world, folder, first, second)
    results["asynchronous"] = {name: asynchronous(world, folder, name) for name in ASYNCHRONOUS}
    results["refused"] = {name: refusal(world, folder, name, given) for name, given in REFUSED.items()}
    results["statistics"] = statistics(world, folder)
    results["measured"] = world.allgather_objects(with_links(with_rate(ranks_of(options(), 4, 8, 2), world), world, ()))
    if world.rank == 0:
        (folder / "results").write_bytes(pickle.dumps(results))


def write_data(folder):
    """Random images and labels."""
    import h5py

    rng = np.random.default_rng(0)
    with h5py.File(folder / "data.h5", "w") as file:
        file["data"] = rng.standard_normal((96, 3, 9, 7)).astype(np.float32)
        file["label"] = rng.integers(0, 10, 96).astype(np.float32)
    (folder / "list.txt").write_text(f"{folder / 'data.h5'}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
