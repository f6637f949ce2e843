"""Time a net's layers, forward and backward.

It does what `caffe time` does, and says how many GFLOP/s each layer's products reach, and which share of the
machine's peak that is; on a GPU images/s, GB/s and share of the roofline of each layer too.
"""

from __future__ import annotations

import time
from argparse import Namespace
from collections import defaultdict
from collections.abc import Callable

from scaffe import threads
from scaffe.cli.job import run_job
from scaffe.collectives.communicator import Communicator
from scaffe.data.feeds.layer_feed import Share
from scaffe.flags import MOST_THREADS, REQUIRED, Flags, whole
from scaffe.layers.kernels import device
from scaffe.layers.kernels.backend import is_device
from scaffe.log import info
from scaffe.memory.backing.file_backed import StagedOnHost
from scaffe.memory.options import add_memory_flags
from scaffe.memory.run.limited_passes import limit_passes
from scaffe.nets.devices import Compute, add_flags, load_kernels
from scaffe.nets.net import Net
from scaffe.nets.profiler_ranges import name_layers
from scaffe.nets.roofline import Peaks, operations_a_clock, roofline_lines
from scaffe.nets.setup import PHASES, Selection, add_state_flags, net_from_file
from scaffe.nets.summary import measured_peak, speed_lines
from scaffe.training.assembly import images_per_pass
from scaffe.training.ranks import threads_per_rank, together


def main(argv: list[str]) -> int:
    """Run the command; returns the exit code."""
    flags = Flags("time", __doc__ or "")
    flags.flag("model", REQUIRED, "the net's prototxt", metavar="FILE")
    flags.flag("iterations", 50, "passes to time", kind=whole(1))
    flags.flag("phase", "TRAIN", "the net's phase", choices=tuple(PHASES))
    add_state_flags(flags)
    flags.flag("threads", 0, threads.HELP, kind=whole(0, MOST_THREADS))
    add_flags(flags)
    add_memory_flags(flags)
    flags.pass_over("weights", "solver", "snapshot", "sigint_effect", "sighup_effect")
    options = flags.parse(argv)
    return run_job(lambda communicator: _time(communicator, options), options)


def _time(communicator: Communicator, options: Namespace) -> int:
    compute = Compute.of(options, communicator.node_rank)
    kernels = together(communicator, lambda: load_kernels(threads_per_rank(communicator, options.threads), compute))
    selection = Selection.of(options, options.phase)
    made_in = StagedOnHost() if options.memory and is_device(kernels) else None
    net = together(communicator, lambda: net_from_file(options.model, selection, kernels, Share(), dtype=compute.dtype,
                                                       memory=made_in))
    limited = together(communicator, lambda: limit_passes(net, options.memory, options.placement, options.spill)
                       if options.memory else None)
    name_layers(net, options.nvtx)
    info("Performing Forward")
    info(f"Initial loss: {float(net.forward()):g}")
    info("Performing Backward")
    net.backward()
    _time_once(net)  # layers that run alone take memory that those in one pass with others do without
    if limited is not None:
        limited.replan()
        info(f"Memory: planned again with measured times: {limited.text()}")
    info("*** Benchmark begins ***")
    info(f"Testing for {options.iterations} iterations.")
    forward, backward, passes = _measure(net, options.iterations)
    _report(net, forward, backward, passes, options.iterations)
    if limited is None or not is_device(kernels):
        _report_speed(net, forward, backward, options.iterations)
    info("*** Benchmark ends ***")
    if limited is not None:
        info(f"Memory: {limited.spent()}")
    net.close()
    return 0


def _measure(net: Net, n_iterations: int) -> tuple[dict[int, float], dict[int, float], list[tuple[float, float]]]:
    forward: dict[int, float] = defaultdict(float)
    backward: dict[int, float] = defaultdict(float)
    passes = []
    for iteration in range(n_iterations):
        started = time.perf_counter()
        once = _time_once(net)
        for total, part in zip((forward, backward), once, strict=True):
            for index, seconds in part.items():
                total[index] += seconds
        passes.append((sum(once[0].values()), sum(once[1].values())))
        info(f"Iteration: {iteration + 1} forward-backward time: {(time.perf_counter() - started) * 1e3:g} ms.")
    return forward, backward, passes


def _time_once(net: Net) -> tuple[dict[int, float], dict[int, float]]:
    """Seconds of each layer's forward and backward, of one pass layer by layer."""
    net.clear_param_diffs()
    indices = range(len(net.nodes))
    return ({index: _seconds(net, net.forward, index) for index in indices},
            {index: _seconds(net, net.backward, index) for index in reversed(indices)})


def _seconds(net: Net, run: Callable[[int, int], object], index: int) -> float:
    started = time.perf_counter()
    run(index, index)
    net.context.kernels.synchronize()
    return time.perf_counter() - started


def _report(net: Net, forward: dict[int, float], backward: dict[int, float], passes: list[tuple[float, float]],
            n_iterations: int) -> None:
    info("Average time per layer: ")
    for index, node in enumerate(net.nodes):
        info(f"{node.name:>10}\tforward: {forward[index] * 1e3 / n_iterations:g} ms.")
        info(f"{node.name:>10}\tbackward: {backward[index] * 1e3 / n_iterations:g} ms.")
    total_forward, total_backward = (sum(part) * 1e3 for part in zip(*passes, strict=True))
    info(f"Average Forward pass: {total_forward / n_iterations:g} ms.")
    info(f"Average Backward pass: {total_backward / n_iterations:g} ms.")
    info(f"Average Forward-Backward: {(total_forward + total_backward) / n_iterations:g} ms.")
    info(f"Total Time: {total_forward + total_backward:g} ms.")


def _report_speed(net: Net, forward: dict[int, float], backward: dict[int, float], n_iterations: int) -> None:
    """GFLOP/s beside the peak, which takes memory of its own to measure; on a device the roofline too."""
    peak = measured_peak(net.context.kernels, net.context.dtype)
    info(f"Layers' products compared with this machine's peak, {peak:.0f} GFLOP/s (a direct convolution's now):")
    once = [{index: seconds / n_iterations for index, seconds in part.items()} for part in (forward, backward)]
    for line in speed_lines(net, once[0], once[1], peak):
        info(line)
    if is_device(net.context.kernels):
        _report_roofline(net, once, peak * 1e9)


def _report_roofline(net: Net, once: list[dict[int, float]], measured: float) -> None:
    """``once``: seconds of each layer, both ways; ``measured``: operations a second, for a card that is not known."""
    from scaffe.layers.kernels.cuda.cublas import precision

    capability, clocks, n_bytes = device.clocks()
    known = operations_a_clock(capability, net.context.dtype, precision.tf32)
    peaks = Peaks(known * clocks if known else measured, n_bytes)
    info(f"Layers compared with the roofline of {peaks.operations / 1e12:.3g} TFLOP/s "
         f"({'by its clock' if known else 'measured'}) and {n_bytes / 1e9:,.0f} GB/s:")
    for line in roofline_lines(net, once[0], once[1], peaks, images_per_pass(net)):
        info(line)
