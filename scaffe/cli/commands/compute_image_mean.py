"""The mean image of a database, as a BlobProto.

With the arguments of Caffe's compute_image_mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from scaffe.atomic_files import write_whole
from scaffe.data.convert.mean import mean_image
from scaffe.data.errors import DataError
from scaffe.data.sources.database import open_database
from scaffe.flags import Flags

GROUP = "Data"


def main(argv: Sequence[str]) -> int:
    """Run the tool on its arguments (without the program's name). Raises DataError for a user's mistake."""
    flags = Flags("compute_image_mean", __doc__ or "")
    flags.flag("backend", "", "Caffe's; not needed here: the folder's files tell")
    flags.argument("INPUT_DB", "the database's folder")
    flags.argument("OUTPUT_FILE", "the .binaryproto to write", default="")
    args = flags.parse(argv)
    source = open_database(args.INPUT_DB)
    mean = mean_image(source)
    print(f"Processed {source.n_records} files.")
    if args.OUTPUT_FILE:
        write_mean(args.OUTPUT_FILE, mean)
        print(f"Write to {args.OUTPUT_FILE}")
    print(f"Number of channels: {len(mean)}")
    for channel, plane in enumerate(mean):
        print(f"mean_value channel [{channel}]: {plane.mean(dtype=np.float64):g}")
    return 0


def write_mean(path: str | Path, mean: np.ndarray) -> None:
    """Write a float32 (channels, height, width) mean as a BlobProto file, whole or not at all. Raises DataError."""
    from scaffe.proto import caffe_pb2

    blob = caffe_pb2.BlobProto(num=1, channels=mean.shape[0], height=mean.shape[1], width=mean.shape[2])
    blob.data.extend(mean.reshape(-1))
    write_whole(path, blob.SerializeToString(), DataError)
