"""Write blobs of a trained net on its data into databases, with Caffe's arguments."""

from __future__ import annotations

import os
from argparse import Namespace

from scaffe.cli.flags import Flags
from scaffe.errors import UserError
from scaffe.log import info


def main(argv: list[str]) -> int:
    """``extract_features WEIGHTS NET BLOB[,BLOB] DB[,DB] N_BATCHES lmdb|leveldb [CPU]``. Returns the exit code."""
    flags = Flags("extract_features", __doc__ or "")
    flags.add_argument("weights", help="trained weights, a .caffemodel")
    flags.add_argument("net", help="the net's prototxt, with a data layer")
    flags.add_argument("blobs", help="the blobs to write, with commas between")
    flags.add_argument("databases", help="the database for each of them, with commas between")
    flags.add_argument("n_batches", type=int, help="batches to run")
    flags.add_argument("kind", help="the kind of database: lmdb or leveldb")
    flags.add_argument("mode", nargs="?", default="CPU", choices=("CPU", "GPU"), help="where to compute")
    flags.add_argument("device", nargs="?", help="the GPU's number; without one the first, if there is one")
    options = flags.parse_args(argv)
    if options.n_batches < 1:
        raise UserError(f"the number of batches must be at least 1, got {options.n_batches}")
    return _extract(options)


def _extract(options: Namespace) -> int:
    from scaffe.data.feeds.layer_feed import Share
    from scaffe.nets.devices import Compute, load_kernels
    from scaffe.nets.setup import PHASES, Selection, net_from_file
    from scaffe.nets.weights import load_weights
    from scaffe.pycaffe.features import extract_features

    compute = Compute(gpus=options.device or "", wants_gpu=options.mode == "GPU")
    kernels = load_kernels(len(os.sched_getaffinity(0)), compute)
    net = net_from_file(options.net, Selection(PHASES["TEST"]), kernels, Share())
    try:
        load_weights(net, options.weights)
        names = options.blobs.split(",")
        counts = extract_features(net, names, options.databases.split(","), options.n_batches, options.kind)
    finally:
        net.close()
    for name, n_records in zip(names, counts):
        info(f"Extracted features of {n_records} query images for feature blob {name}")
    return 0
