"""Show a net's shapes, parameters, products, memory.

It prints a line for each layer: with -ranks how ranks best share it, with -memory
what of it leaves limited memory.
"""

from __future__ import annotations

from argparse import Namespace
from typing import Any

from scaffe.errors import UserError
from scaffe.flags import Flags, whole
from scaffe.nets import graph

DIMENSION = whole(1)


def main(argv: list[str]) -> int:
    """``summary NET [-phase TEST] [-shape 1,3,224,224] [-ranks 8] [-memory 2GB]``. Returns the exit code."""
    from scaffe.atomic_files import refuse_input
    from scaffe.data.feeds.layer_feed import Share
    from scaffe.layers.base.random import Stream
    from scaffe.memory.problem.activations import arena_bytes
    from scaffe.memory.problem.device_bytes import training_bytes, unfolded_bytes
    from scaffe.nets.devices import Compute, load_kernels
    from scaffe.nets.fusion import fuse_layers
    from scaffe.nets.setup import Selection, make_context, make_net
    from scaffe.nets.summary import summarize, table, without_data

    options = _flags().parse(argv)
    if options.precision != "fp32" and options.memory and options.memory_of == "host":
        raise UserError(f"-precision {options.precision} with -memory is for GPUs: say which by -memory_of")
    refuse_input(options.output, [options.net], UserError)
    message = graph.upgraded(graph.read_net(options.net), options.net)
    if options.shape:
        message = without_data(message, _dims(options.shape))
    phase = "TRAIN" if options.ranks or options.memory else options.phase
    selection = Selection.of(options, phase)

    def build() -> Any:
        context = make_context(load_kernels(1), Stream(0), Share(), 0, dtype=Compute.of(options).dtype)
        return make_net(message, selection, context, options.net)

    net = build()
    print("\n".join(table(summarize(net))))
    fuse_layers(net, backward=False)
    to_run = arena_bytes(net, False)
    fuse_layers(net, backward=True)
    print(f"on a GPU: {training_bytes(net, 1):,} bytes to train with one history, {arena_bytes(net, True):,} of them "
          f"activations and their gradients ({to_run:,} to run forward only); without cuDNN "
          f"{unfolded_bytes(net):,} more for its convolutions to work in")
    if options.ranks:
        print("\n".join(_shared(net, options)))
    net.close()
    if options.memory:
        _limit(build(), options)
    return 0


def _flags() -> Flags:
    from scaffe.memory.options import amount
    from scaffe.memory.plan.placements import PLACEMENTS
    from scaffe.memory.problem.cards import CARDS
    from scaffe.nets.devices import ON_OFF, PRECISIONS
    from scaffe.nets.setup import add_state_flags
    from scaffe.training.partition.options import MOST_PLANNED, PARTITIONS, add_machine_flags

    flags = Flags("summary", __doc__ or "")
    flags.argument("net", "the net's prototxt")
    flags.flag("phase", "TEST", "the net's phase", choices=("TRAIN", "TEST"))
    add_state_flags(flags)
    flags.flag("shape", "", "shape of the data, in place of data layers' own", metavar="N,C,H,W")
    flags.section("Training in limited memory")
    flags.flag("memory", "", "the limit: 2GB, 40%; implies -phase TRAIN", kind=amount, metavar="AMOUNT")
    flags.flag("memory_of", "host", "what has the limit: the host, with a disk below it;"
               " the GPU of this machine; or another card",
               choices=("host", "gpu", *CARDS))
    flags.flag("precision", "fp32", "type of activations, on a GPU", choices=PRECISIONS)
    flags.flag("tf32", "on", "whether float32 products may use TF32, on a GPU", choices=ON_OFF)
    flags.flag("placement", "auto", "the way: auto, geeps, move, recompute", choices=tuple(PLACEMENTS),
               metavar="NAME")
    flags.flag("output", "", "a picture to write, .svg: memory in an iteration, or the plan for -ranks",
               metavar="FILE")
    flags.section("How ranks share the net")
    flags.flag("ranks", 0, "how many ranks, each with a batch of the net, in phase TRAIN", kind=whole(0, MOST_PLANNED))
    flags.flag("ranks_per_node", 1, "how many of them on a node", kind=whole(1, MOST_PLANNED))
    flags.flag("partitions", "auto", "ranks that share one replica; auto: the best", kind=PARTITIONS, metavar="K")
    add_machine_flags(flags)
    return flags


def _shared(net: Any, options: Namespace) -> list[str]:
    """The plan of model parallelism for ``-ranks`` as lines; as a picture, too, where ``-output`` asks for one."""
    from scaffe.atomic_files import write_whole
    from scaffe.cli.plan_picture import plan_picture
    from scaffe.pictures.net_picture import to_svg
    from scaffe.training.partition.options import plan_lines, plan_of, ranks_of
    from scaffe.training.partition.planner.shapes import images_of, shapes_of

    layers = shapes_of(net)
    ranks = ranks_of(options, options.ranks, images_of(net), options.ranks_per_node)
    plan = plan_of(options.partitions, layers, ranks)
    if options.output and not options.memory:
        write_whole(options.output, to_svg(plan_picture(layers, plan)), UserError)
    return plan_lines(layers, plan, plan_of("1", layers, ranks), ranks)


def _limit(net: Any, options: Namespace) -> None:
    """Print the plan for ``-memory``, and draw it."""
    from scaffe.atomic_files import write_whole
    from scaffe.memory.problem.cards import speeds_of
    from scaffe.memory.problem.scratch import estimated_workspaces
    from scaffe.memory.run.card_here import speeds_here
    from scaffe.memory.run.report import chart, forecast, forecast_on_gpu, lines
    from scaffe.nets.devices import Compute

    compute, card = Compute.of(options), options.memory_of
    if card == "host":
        found = forecast(net, options.memory, options.placement)
    elif card == "gpu":
        speeds, works = speeds_here(compute.dtype, compute.tf32), _workspaces() or estimated_workspaces(compute.tf32)
        found = forecast_on_gpu(net, options.memory, options.placement, speeds, works)
    else:
        speeds, works = speeds_of(card, compute.dtype, compute.tf32), estimated_workspaces(compute.tf32)
        found = forecast_on_gpu(net, options.memory, options.placement, speeds, works)
    net.close()
    print("\n".join(lines(found)))
    if options.output:
        write_whole(options.output, chart(found).svg().encode(), UserError)


def _workspaces() -> Any:
    """What passes work in on this machine's first GPU; None where it has none."""
    from scaffe.layers.kernels import device
    from scaffe.memory.problem.scratch import workspaces_here
    from scaffe.nets.devices import Compute, load_kernels

    if device.missing():
        return None
    load_kernels(1, Compute(gpus="0"))
    return workspaces_here()


def _dims(text: str) -> list[int]:
    try:
        return [DIMENSION(word) for word in text.split(",")]
    except ValueError:
        raise UserError(f"-shape must be whole numbers from {DIMENSION} with commas between, got {text!r}") from None
