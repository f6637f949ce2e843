"""Shapes, parameters, operations, memory of a net.

A line a layer.
"""

from __future__ import annotations

from scaffe.errors import UserError
from scaffe.flags import Flags
from scaffe.nets import graph

GROUP = "Nets and weights"


def main(argv: list[str]) -> int:
    """``summary NET [-phase TEST] [-shape 1,3,224,224]``. Returns the exit code."""
    from scaffe.data.feeds.layer_feed import Share
    from scaffe.layers.base.random import Stream
    from scaffe.nets.activation_memory import arena_bytes, training_bytes
    from scaffe.nets.devices import load_kernels
    from scaffe.nets.fusion import fuse_layers
    from scaffe.nets.layer_memory import unfolded_bytes
    from scaffe.nets.setup import PHASES, Selection, make_context, make_net
    from scaffe.nets.summary import summarize, table, without_data

    flags = Flags("summary", __doc__ or "")
    flags.argument("net", "the net's prototxt")
    flags.flag("phase", "TEST", "the net's phase", choices=tuple(PHASES))
    flags.flag("level", 0, "the net state's level")
    flags.flag("stage", "", "the net state's stages", metavar="NAME,...")
    flags.flag("shape", "", "shape of the data, in place of data layers' own", metavar="N,C,H,W")
    options = flags.parse(argv)
    message = graph.upgraded(graph.read_net(options.net), options.net)
    if options.shape:
        message = without_data(message, _dims(options.shape))
    selection = Selection(PHASES[options.phase], options.level, tuple(filter(None, options.stage.split(","))))
    net = make_net(message, selection, make_context(load_kernels(1), Stream(0), Share(), 0), options.net)
    print("\n".join(table(summarize(net))))
    fuse_layers(net, backward=False)
    to_run = arena_bytes(net, False)
    fuse_layers(net, backward=True)
    print(f"on a GPU: {training_bytes(net, 1):,} bytes to train with one history, {arena_bytes(net, True):,} of them "
          f"activations and their gradients ({to_run:,} to run forward only); without cuDNN "
          f"{unfolded_bytes(net):,} more for its convolutions to work in")
    net.close()
    return 0


def _dims(text: str) -> list[int]:
    try:
        return [int(word) for word in text.split(",")]
    except ValueError:
        raise UserError(f"-shape must be whole numbers with commas between, got {text!r}") from None
