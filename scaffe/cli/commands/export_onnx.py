"""Write a deploy net and its weights as ONNX."""

from __future__ import annotations

from scaffe.flags import MOST, Flags, whole

GROUP = "Nets and weights"


def main(argv: list[str]) -> int:
    """``export-onnx NET WEIGHTS MODEL``. Returns the exit code."""
    from scaffe.atomic_files import refuse_input, write_whole
    from scaffe.data.feeds.layer_feed import Share
    from scaffe.errors import UserError
    from scaffe.export.onnx_model import onnx_model
    from scaffe.nets.devices import load_kernels
    from scaffe.nets.setup import PHASES, Selection, net_from_file
    from scaffe.nets.weights import load_weights

    flags = Flags("export_onnx", __doc__ or "")
    flags.argument("net", "the deploy net's prototxt")
    flags.argument("weights", "trained weights, a .caffemodel")
    flags.argument("model", "the .onnx file to write")
    flags.flag("level", 0, "the net state's level", kind=whole(-MOST - 1))
    flags.flag("stage", "", "the net state's stages", metavar="NAME,...")
    options = flags.parse(argv)
    refuse_input(options.model, [options.net, options.weights], UserError)
    selection = Selection(PHASES["TEST"], options.level, tuple(filter(None, options.stage.split(","))))
    net = net_from_file(options.net, selection, load_kernels(1), Share())
    load_weights(net, options.weights)
    content = onnx_model(net).SerializeToString()
    write_whole(options.model, content, UserError)
    print(f"Wrote {options.model}, {len(content):,} bytes")
    return 0
