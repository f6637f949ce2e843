"""Score a trained net on its test data.

It does what `caffe test` does; the ranks share the batches out.
"""

from __future__ import annotations

from argparse import Namespace
from typing import Any

from scaffe import threads
from scaffe.cli.job import run_job
from scaffe.collectives.communicator import Communicator
from scaffe.data.feeds.layer_feed import Share
from scaffe.flags import MOST_THREADS, REQUIRED, Flags, whole
from scaffe.log import info
from scaffe.memory.options import add_memory_flags, param_memory
from scaffe.memory.run.limited_passes import limit_forward
from scaffe.nets.decoding import Decoding, add_decode_flag
from scaffe.nets.devices import Compute, add_flags, load_kernels
from scaffe.nets.inference.passes import Inference
from scaffe.nets.net import Net
from scaffe.nets.profiler_ranges import name_layers
from scaffe.nets.setup import Selection, add_state_flags, net_from_file
from scaffe.nets.weights import listed, load_weights
from scaffe.training.bad_records import BadRecords
from scaffe.training.observers.display import output_lines, values_of
from scaffe.training.observers.test import is_evaluated, mean_of, precisions, results_of
from scaffe.training.ranks import AUTO, most_readers, threads_per_rank, together

DEFAULT_VERSION = "Integral"  # the solver's ap_version where it gives none


def main(argv: list[str]) -> int:
    """Run the command; returns the exit code."""
    flags = Flags("test", __doc__ or "")
    flags.flag("model", REQUIRED, "the net's prototxt", metavar="FILE")
    flags.flag("weights", REQUIRED, "trained weights, .caffemodel or .safetensors files", metavar="FILE,...")
    flags.flag("iterations", 50, "batches to run, over all ranks", kind=whole(1))
    add_state_flags(flags)
    flags.flag("threads", 0, threads.HELP, kind=whole(0, MOST_THREADS))
    add_decode_flag(flags)
    flags.flag("skip_bad_records", 0, "unreadable records to pass over; the next one stands in", kind=whole(0))
    flags.flag("scaled_decode", False, "decode JPEGs that ImageData makes smaller at 1/2, 1/4 or 1/8")
    add_flags(flags)
    add_memory_flags(flags)
    flags.pass_over("solver", "phase", "snapshot", "sigint_effect", "sighup_effect")
    options = flags.parse(argv)
    return run_job(lambda communicator: _test(communicator, options), options)


def _test(communicator: Communicator, options: Namespace) -> int:
    compute = Compute.of(options, communicator.node_rank)
    kernels = together(communicator, lambda: load_kernels(threads_per_rank(communicator, options.threads), compute))
    selection = Selection.of(options, "TEST")
    bad = BadRecords(options.skip_bad_records)
    net = together(communicator, lambda: _load(communicator, options, selection, kernels, bad))
    info(f"Running for {options.iterations} iterations.")
    name_layers(net, options.nvtx)
    passes = Inference(net)
    if is_evaluated(net):
        return _test_detection(communicator, net, passes, options.iterations, bad)
    mine = [(batch, float(passes.forward()), values_of(net)) for batch in range(communicator.rank, options.iterations,
                                                                      communicator.n_ranks)]
    net.close()
    bad.exchange(communicator)
    results = sorted(r for part in communicator.allgather_objects(mine) for r in part)
    names = [name for name, blob, _ in net.outputs() for _ in range(blob.n_elems)]
    for batch, _, values in results:
        for name, value in zip(names, values, strict=True):
            info(f"Batch {batch}, {name} = {value:g}")
    info(f"Loss: {sum(loss for _, loss, _ in results) / options.iterations:g}")
    means = [sum(column) / options.iterations for column in zip(*(values for _, _, values in results), strict=True)]
    for line in output_lines(net, means):
        info(line)
    return 0


def _test_detection(communicator: Communicator, net: Net, passes: Inference, n_iterations: int,
                    bad: BadRecords) -> int:
    """Score a net that ends in DetectionEvaluate: the average precision of each class, and their mean."""
    mine = []
    for batch in range(communicator.rank, n_iterations, communicator.n_ranks):
        passes.forward()
        mine.append((batch, results_of(net)))
    net.close()
    bad.exchange(communicator)
    parts = sorted((part for of_rank in communicator.allgather_objects(mine) for part in of_rank),
                   key=lambda part: part[0])
    for name, by_class in precisions(net, [part for _, part in parts], DEFAULT_VERSION):
        for label, precision in by_class.items():
            info(f"class{label}: {precision:g}")
        info(f"{name} = {mean_of(by_class):g}")
    return 0


def _load(communicator: Communicator, options: Namespace, selection: Selection, kernels: Any, bad: BadRecords) -> Net:
    share = Share(communicator.rank, communicator.n_ranks, n_test_iterations=options.iterations)
    made_in = param_memory(options, kernels)
    reading = Decoding.of(options, kernels).options(
        bad.reader_options(AUTO, most_readers(communicator, kernels), options.scaled_decode))
    net = net_from_file(options.model, selection, kernels, share, reading, Compute.of(options).dtype, made_in)
    for path in listed(options.weights) or [""]:
        load_weights(net, path)
    limited = limit_forward(net, options.memory, options.placement, made_in)
    if limited is not None:
        info(f"Memory: {limited.text()}")
    return net
