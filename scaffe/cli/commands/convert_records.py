"""Commands that convert and average records: archives of MNIST and CIFAR-10, LevelDB, mean images.

Each takes its arguments without the program's name, and returns the exit code.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from scaffe import threads
from scaffe.data.convert import archives
from scaffe.data.convert.mean import mean_image
from scaffe.data.convert.writers import WRITERS, write_lmdb
from scaffe.data.sources.database import open_database
from scaffe.data.sources.leveldb import LevelDbSource
from scaffe.errors import UserError
from scaffe.files import write_mean
from scaffe.flags import Flags

MNIST_STEMS = {"train": "train", "test": "t10k"}


def convert_mnist(argv: Sequence[str]) -> int:
    """Convert a folder of MNIST's files into an LMDB.

    Their names are the usual four, gzipped or not.
    """
    flags = Flags.of(convert_mnist)
    flags.argument("folder", "where the four IDX files lie")
    flags.argument("part", "the set", choices=tuple(MNIST_STEMS))
    flags.argument("lmdb", "the folder to write")
    flags.flag("force", False, "replace the output folder if it exists")
    options = flags.parse(argv)
    stem = MNIST_STEMS[options.part]
    images, labels = (_idx_file(Path(options.folder), f"{stem}-{what}")
                      for what in ("images-idx3-ubyte", "labels-idx1-ubyte"))
    n_records = archives.convert_mnist(str(images), str(labels), options.lmdb, options.force)
    print(f"{options.lmdb}: {n_records} records")
    return 0


def _idx_file(folder: Path, name: str) -> Path:
    for path in (folder / f"{name}.gz", folder / name):
        if path.exists():
            return path
    raise UserError(f"{folder}: there is no {name} or {name}.gz")


def convert_mnist_data(argv: Sequence[str]) -> int:
    """Convert MNIST's images and labels into a database.

    With the arguments of Caffe's convert_mnist_data.
    """
    flags = Flags.of(convert_mnist_data)
    flags.flag("backend", "lmdb", "the kind of database", choices=tuple(WRITERS))
    flags.flag("force", False, "replace the output folder if it exists")
    flags.argument("input_image_file", "the images, an IDX file, gzipped or not")
    flags.argument("input_label_file", "their labels, an IDX file")
    flags.argument("output_db_file", "the database's folder to write")
    args = flags.parse(argv)
    n_records = archives.convert_mnist(args.input_image_file, args.input_label_file, args.output_db_file, args.force,
                                       args.backend)
    print(f"Processed {n_records} files.")
    return 0


def convert_cifar_data(argv: Sequence[str]) -> int:
    """Convert CIFAR-10's binary files into two databases.

    With the arguments of Caffe's convert_cifar_data.
    """
    flags = Flags.of(convert_cifar_data)
    flags.flag("force", False, "replace the databases if they exist")
    flags.argument("input_folder", "where data_batch_1.bin ... test_batch.bin lie")
    flags.argument("output_folder", "the folder for cifar10_train_* and cifar10_test_*")
    flags.argument("db_type", "the kind of database", default="lmdb", choices=tuple(WRITERS))
    args = flags.parse(argv)
    converted = archives.convert_cifar(args.input_folder, args.output_folder, args.force, args.db_type)
    for part, n_records in converted.items():
        print(f"cifar10_{part}_{args.db_type}: {n_records} records")
    return 0


def convert_leveldb(argv: Sequence[str]) -> int:
    """Convert a LevelDB into an LMDB.

    An LMDB opens at once at any length; a LevelDB is read through first.
    """
    flags = Flags.of(convert_leveldb)
    flags.flag("force", False, "replace the output folder if it exists")
    flags.argument("INPUT_DB", "the LevelDB's folder")
    flags.argument("OUTPUT_DB", "the LMDB's folder to write")
    args = flags.parse(argv)
    n_records = write_lmdb(args.OUTPUT_DB, LevelDbSource(args.INPUT_DB).items(), args.force)
    print(f"Processed {n_records} files.")
    return 0


def compute_image_mean(argv: Sequence[str]) -> int:
    """Compute a database's mean image, as a BlobProto.

    With the arguments of Caffe's compute_image_mean.
    """
    flags = Flags.of(compute_image_mean)
    flags.flag("backend", "", "Caffe's; not needed here: the folder's files tell")
    flags.argument("INPUT_DB", "the database's folder")
    flags.argument("OUTPUT_FILE", "the .binaryproto to write", default="")
    args = flags.parse(argv)
    source = open_database(args.INPUT_DB)
    mean = mean_image(source, threads.n_threads())
    print(f"Processed {source.n_records} files.")
    if args.OUTPUT_FILE:
        write_mean(args.OUTPUT_FILE, mean[None])
        print(f"Write to {args.OUTPUT_FILE}")
    print(f"Number of channels: {len(mean)}")
    for channel, plane in enumerate(mean):
        print(f"mean_value channel [{channel}]: {plane.mean(dtype=np.float64):g}")
    return 0
