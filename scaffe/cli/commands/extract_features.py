"""Write blobs of a trained net into databases.

With the arguments of Caffe's extract_features.
"""

from __future__ import annotations

from argparse import Namespace

from scaffe import threads
from scaffe.data.convert.writers import WRITERS
from scaffe.flags import Flags, whole
from scaffe.log import info
from scaffe.memory.options import add_memory_flags, param_memory
from scaffe.nets.devices import PRECISIONS


def main(argv: list[str]) -> int:
    """``extract_features WEIGHTS NET BLOB[,BLOB] DB[,DB] N_BATCHES lmdb|leveldb [CPU]``. Returns the exit code."""
    flags = Flags("extract_features", __doc__ or "")
    flags.argument("weights", "trained weights, .caffemodel or .safetensors")
    flags.argument("net", "the net's prototxt, with a data layer")
    flags.argument("blobs", "the blobs to write, with commas between")
    flags.argument("databases", "the database for each of them, with commas between")
    flags.argument("n_batches", "batches to run", kind=whole(1))
    flags.argument("kind", "the kind of database", choices=tuple(WRITERS))
    flags.argument("mode", "where to compute", default="CPU", choices=("CPU", "GPU"))
    flags.argument("device", "the GPU's number; without one the first, if there is one", default="")
    flags.flag("precision", "fp32", "of activations; fp16 on GPUs only", choices=PRECISIONS)
    add_memory_flags(flags)
    options = flags.parse(argv)
    return _extract(options)


def _extract(options: Namespace) -> int:
    from scaffe.data.feeds.layer_feed import ReaderOptions, Share
    from scaffe.memory.run.limited_passes import limit_forward
    from scaffe.nets.devices import Compute, load_kernels
    from scaffe.nets.setup import PHASES, Selection, net_from_file
    from scaffe.nets.weights import load_weights
    from scaffe.pycaffe.features import extract_features

    compute = Compute(gpus=options.device, wants_gpu=options.mode == "GPU", precision=options.precision)
    kernels = load_kernels(threads.n_threads(), compute)
    made_in = param_memory(options, kernels)
    readers = ReaderOptions(most_threads=threads.most_readers(1, kernels.PLACE != "host"))
    net = net_from_file(options.net, Selection(PHASES["TEST"]), kernels, Share(), readers, compute.dtype, made_in)
    try:
        load_weights(net, options.weights)
        names = options.blobs.split(",")
        limit_forward(net, options.memory, options.placement, made_in, names)
        counts = extract_features(net, names, options.databases.split(","), options.n_batches, options.kind)
    finally:
        net.close()
    for name, n_records in zip(names, counts, strict=True):
        info(f"Extracted features of {n_records} query images for feature blob {name}")
    return 0
