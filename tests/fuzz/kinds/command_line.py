"""Command lines: all flags of all commands, with values at and beyond the edges, alone and in pairs."""

from __future__ import annotations

import os
import random
import shutil
import signal
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

import lmdb
import numpy as np

from scaffe import environment, start_watch
from scaffe.cli.main import main
from scaffe.errors import UsageError
from scaffe.flags import Flags
from scaffe.flags.flag import Flag, Range, truth
from scaffe.proto import caffe_pb2
from scaffe.threads import OPENMP
from tests.fuzz.children import Files
from tests.fuzz.commands import verdict
from tests.fuzz.kind import Kind
from tests.fuzz.kinds.log import LOG
from tests.fuzz.mutators import numbers
from tests.fuzz.records import datums, png

NET = """layer { name: "d" type: "DummyData" top: "x" dummy_data_param { shape { dim: 2 dim: 3 } } }
layer { name: "ip" type: "InnerProduct" bottom: "x" top: "ip" inner_product_param { num_output: 4 } }
layer { name: "loss" type: "EuclideanLoss" bottom: "ip" bottom: "ip" top: "loss" }
"""
DATA = """layer { name: "d" type: "Data" top: "x" data_param { source: "db" batch_size: 2 } }
layer { name: "ip" type: "InnerProduct" bottom: "x" top: "ip" inner_product_param { num_output: 4 } }
"""
SOLVER = 'net: "net.prototxt" base_lr: 0.1 lr_policy: "fixed" max_iter: 2 display: 1 snapshot_prefix: "run"'
TRACE = '{"traceEvents": [{"ph": "X", "name": "forward", "pid": 0, "tid": 0, "ts": 0, "dur": 5}]}'
LINES = """train -solver solver.prototxt
test -model net.prototxt -weights w.caffemodel -iterations 2
time -model net.prototxt -iterations 2
extract_features w.caffemodel net.prototxt ip features 1 lmdb
summary net.prototxt
summary data.prototxt -shape 1,2
bench reduce -m 64 -x 1 -i 2
bench clock -m 64 -x 1 -i 2
tune -o table.json -c reduce -m 64 -x 1 -i 1
simulate -ranks 4 -ranks_per_node 2 -max_bytes 1024
simulate -server
plot trace.json
convert_imageset ./ list.txt made
convert_annoset ./ list.txt made
export_onnx net.prototxt w.caffemodel net.onnx
export_torch net.prototxt w.caffemodel net.py
draw_net net.prototxt net.svg
upgrade_net_proto_text net.prototxt new.prototxt
upgrade_net_proto_binary w.caffemodel new.caffemodel
upgrade_solver_proto_text solver.prototxt new.prototxt
report log trace.json
parse_log log .
scaling -strong log
compute_image_mean db mean.binaryproto
convert_cifar_data none made
convert_leveldb none made
convert_mnist none test made
convert_mnist_data log log made
create_label_map log map.prototxt
get_image_size ./ list.txt sizes.txt
device_query
doctor
warm up
join in
install_tools made"""
N_LARGE = 14  # the lines of the commands with the most flags come first
CHEAP = {"level", "seed", "slack", "n_sync", "n_push", "n_fetch", "warm_start", "servers", "bucket", "partitions",
         "link_bandwidth", "multiply_adds", "skip_bad_records", "history_copies", "bytes", "compute", "late_times",
         "ports", "root", "start", "end", "step"}
"""Numbers that cost nothing, however large; of the others the largest that is allowed is not tried."""
TEXTS = ("", " ", "none", "x,y", ",", "=", "-", "--", "a" * 300, "a" * 5000, "\x07\x1b[31m", "\u202e",
         "\udcff\udcfe", "%s%n", "log", "net.prototxt", "db", "\n", "nan", "auto", "all", "0", "1e400", "9" * 5000,
         "\N{SUPERSCRIPT TWO}")
"""None of them leads out of the folder, which -force and outputs may remove."""
VALUES = ("", " ", "x", "0x10", "-1", "0", "1", "2", "1.5", "1e-9", "nan", "inf", "1e400", "9" * 22, "2,1",
          "\udcff\udcfe", "\x07\n", "a" * 300, "a" * 5000, ".", "db", "log", "table.json", "none/x", "/dev/null",
          "/dev/full", "gpu", "srun", "prterun-x-1@1")
VARIABLES = {"COLUMNS": VALUES, OPENMP: VALUES, **dict.fromkeys(start_watch.VARIABLES, VALUES),
             **{variable.name: VALUES for variable in environment.VARIABLES}}
del VARIABLES[environment.TRACEBACK.name]  # a traceback is what it asks for
VARIABLES["PMIX_RANK"] = tuple(value for value in VALUES if not value.isdigit() or value == "0")  # others leave it to 0


def seeds(folder: Path) -> list[Files]:
    """A command line for each command; what they name lies in ``_template``."""
    return [{"command": line.replace(" ", "\0").encode()} for line in LINES.splitlines()]


_kept: list[tempfile.TemporaryDirectory[str]] = []


@cache
def _template() -> Path:
    """A folder with what the command lines name."""
    _kept.append(tempfile.TemporaryDirectory(prefix="fuzz-template-"))
    folder = Path(_kept[0].name)
    for name, text in (("net.prototxt", NET), ("solver.prototxt", SOLVER), ("data.prototxt", DATA),
                       ("trace.json", TRACE), ("log", LOG),
                       ("list.txt", "a.png 1\n")):
        (folder / name).write_text(text)
    (folder / "a.png").write_bytes(png(np.zeros((3, 4, 3), np.uint8)))
    blobs = [caffe_pb2.BlobProto(shape=caffe_pb2.BlobShape(dim=dims), data=[0.5] * n)
             for dims, n in (([4, 3], 12), ([4], 4))]
    weights = caffe_pb2.NetParameter(layer=[caffe_pb2.LayerParameter(name="ip", type="InnerProduct", blobs=blobs)])
    (folder / "w.caffemodel").write_bytes(weights.SerializeToString())
    with lmdb.open(str(folder / "db"), map_size=1 << 20) as environment, environment.begin(write=True) as transaction:
        for i, record in enumerate(datums(3)[::3]):
            transaction.put(b"%08d" % i, record)
    return folder


@cache
def _flags(command: str) -> Flags:
    """A command's flags, as it makes them before it parses."""
    found: list[Flags] = []

    def keep(self: Flags, argv: Any) -> None:
        found.append(self)
        raise UsageError("enough")

    with mock.patch.object(Flags, "parse", keep), mock.patch("scaffe.cli.main.fail_before_mpi"):
        main([command])
    return found[0]


def mutate(rng: random.Random, files: Files) -> Files:
    """One flag or two are added, or an argument is another one; now and then a variable is set. Half of the lines are
    of the commands with the most flags."""
    line = files["command"].decode().replace("\0", " ")
    words = (rng.choice(LINES.splitlines()[:N_LARGE]) if rng.randrange(2) else line).split()
    flags = _flags(words[0])
    for _ in range(rng.choice([1, 2, 2])):
        kind = rng.randrange(12)
        if kind == 0 and len(words) > 1:
            words[rng.randrange(1, len(words))] = rng.choice(TEXTS)
        elif kind == 1 or not flags.flags:
            words.insert(rng.randrange(1, len(words) + 1), rng.choice(TEXTS))
        else:
            flag = rng.choice(list(flags.flags.values()))
            value = value_of(rng, flag)
            words += [f"-{flag.name}={value}"] if rng.randrange(2) else [f"--{flag.name}", value]
    for _ in range(rng.choice([0, 0, 0, 0, 0, 1, 1, 2])):
        name = rng.choice(list(VARIABLES))
        words.insert(0, f"{name}={rng.choice(VARIABLES[name])}")
    return {"command": "\0".join(words).encode(errors="surrogateescape")}


def value_of(rng: random.Random, flag: Flag) -> str:
    """A value for a flag, more often than not one that it cannot have."""
    kind: Callable[[str], Any] = flag.kind
    good = flag.choices or (("true", "false") if kind is truth else ())
    if good and rng.randrange(4):
        return rng.choice(good)
    if not isinstance(kind, Range) or rng.randrange(5) == 0:
        return rng.choice(TEXTS)
    ends = [kind.least, kind.least + 1, *(word for word, _ in kind.words)]
    ends += [kind.most] if flag.name in CHEAP else []
    beyond = [*(edge for edge in numbers.EDGES if not kind.least <= edge <= kind.most), kind.least - 1, kind.most + 1]
    return str(rng.choice([rng.choice(ends), rng.choice(ends), rng.choice(beyond), rng.choice(numbers.FLOATS[:3])]))


def read(folder: Path) -> None:
    """Run it there. Raises RuntimeError where it does not end as it should."""
    signal.setitimer(signal.ITIMER_REAL, 0)  # another process waits for its end
    words = os.fsdecode((folder / "command").read_bytes()).split("\0")
    variables = {}
    while words[0].partition("=")[0] in VARIABLES:
        name, _, variables[name] = words.pop(0).partition("=")
    shutil.copytree(_template(), folder / "there")
    if wrong := verdict(words, variables, folder / "there"):
        raise RuntimeError(f"{words[0]}: {wrong}; of {variables} {[word[:99] for word in words]}")


KIND = Kind(seeds, read, mutate, n_at_once=10)
