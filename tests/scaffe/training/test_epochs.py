"""A run that is stopped and resumed reads each record of an epoch once, on any number of ranks before and after."""

import subprocess
import sys
from collections import Counter

import numpy as np
import pytest

from scaffe.data.convert.writers import write_lmdb
from scaffe.data.feeds.layer_feed import TRAIN, ReaderOptions, Share, open_layer_feed
from scaffe.data.records.datum import encode_floats
from scaffe.files import read_state
from scaffe.nets import graph
from tests.mpirun import mpirun

N_RECORDS, BATCH = 24, 4


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """24 records with labels 0 to 23, as LMDB, as two HDF5 files and as image files."""
    cv2, h5py = pytest.importorskip("cv2"), pytest.importorskip("h5py")
    folder = tmp_path_factory.mktemp("records")
    values = np.arange(N_RECORDS, dtype=np.float32)
    write_lmdb(folder / "db", [(b"%08d" % i, encode_floats(np.full((1, 1, 2), i, np.float32), i))
                               for i in range(N_RECORDS)])
    for number, part in enumerate((slice(0, 10), slice(10, N_RECORDS))):
        with h5py.File(folder / f"{number}.h5", "w") as file:
            file["data"], file["label"] = np.stack([values[part]] * 2, 1), values[part]
    (folder / "h5.txt").write_text(f"{folder}/0.h5\n{folder}/1.h5\n")
    for i in range(N_RECORDS):
        cv2.imwrite(str(folder / f"{i}.png"), np.full((2, 3, 3), i, np.uint8))
    (folder / "images.txt").write_text("".join(f"{folder}/{i}.png {i}\n" for i in range(N_RECORDS)))
    return folder


LAYERS = {
    "LMDB": 'type: "Data" data_param {{ source: "{0}/db" batch_size: 4 }}',
    "HDF5": 'type: "HDF5Data" hdf5_data_param {{ source: "{0}/h5.txt" batch_size: 4 shuffle: true }}',
    "images": 'type: "ImageData" image_data_param {{ source: "{0}/images.txt" batch_size: 4 shuffle: true }}',
}


def text_of(kind, folder):
    return f'layer {{ name: "d" top: "data" top: "label" {LAYERS[kind].format(folder)} }}'


def labels_read(param, n_ranks, weak, start, n_iterations):
    """All ranks' labels of some iterations; ``start`` is (iteration, batches read before)."""
    labels = []
    for rank in range(n_ranks):
        share = Share(rank, n_ranks, weak)
        share.start_at(*start, iter_size=1)
        feed = open_layer_feed(param, TRAIN, share, iter(range(7, 99)).__next__, ReaderOptions(2))
        labels += [int(label) for _ in range(n_iterations) for label in feed.next()[1]]
        feed.close()
    return labels, share.batches_read(start[0] + n_iterations, 1)


@pytest.mark.parametrize("weak", [False, True])
@pytest.mark.parametrize("ranks", [(1, 1, 1), (2, 1, 4), (1, 2, 1), (4, 2, 1)])
@pytest.mark.parametrize("kind", list(LAYERS))
def test_each_record_once_an_epoch(folder, tmp_path, kind, ranks, weak):
    """Three runs on different ranks, one after the other, read two epochs."""
    (tmp_path / "net.prototxt").write_text(text_of(kind, folder))
    param = graph.read_net(tmp_path / "net.prototxt").layer[0]
    seen, iteration, read = [], 0, 0
    for n_ranks in ranks:
        n_iterations = 1 if weak else 3
        found, read = labels_read(param, n_ranks, weak, (iteration, read), n_iterations)
        iteration += n_iterations
        seen += found
        assert len(seen) == read * BATCH
        assert set(Counter(seen).values()) <= {len(seen) // N_RECORDS, -(-len(seen) // N_RECORDS)}
    rest, read = labels_read(param, 1, weak, (iteration, read), 2 * N_RECORDS // BATCH - read)
    assert Counter(seen + rest) == dict.fromkeys(range(N_RECORDS), 2)


SCRIPT = """
import sys, os
from scaffe.cli import main as cli
from scaffe.layers.data.data import Data
from scaffe.collectives.communicator import Communicator
forward = Data.forward
def note(self, bottom, top):
    forward(self, bottom, top)
    with open(f"labels.{os.environ.get('OMPI_COMM_WORLD_RANK', '0')}", "a") as file:
        file.write("".join(f"{int(label)} " for label in top[1].data))
Data.forward = note
sys.exit(cli.main(sys.argv[1:]))
"""


@pytest.mark.mpi_job
@pytest.mark.parametrize(("kind", "ending"), [pytest.param("images", "", marks=pytest.mark.thorough), ("LMDB", ".h5")])
def test_killed_and_resumed_through_the_command(folder, tmp_path, kind, ending):
    """No random_seed: the state tells the order. 2 ranks read 3 batches of 4, 1 rank the other 3 of the epoch."""
    (tmp_path / "net.prototxt").write_text(
        text_of(kind, folder) + 'layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip" '
        'inner_product_param { num_output: 24 } } layer { name: "l" type: "SoftmaxWithLoss" bottom: "ip" '
        'bottom: "label" top: "l" }')
    (tmp_path / "run.py").write_text(SCRIPT)
    seen = []
    for n_ranks, end, resumes in ((2, 3, []), (1, 6, ["-snapshot", f"run_iter_3.solverstate{ending}"])):
        (tmp_path / "solver.prototxt").write_text(
            f'net: "net.prototxt" base_lr: 0.0001 lr_policy: "fixed" max_iter: {end} snapshot_prefix: "run" '
            f'snapshot_format: {"HDF5" if ending else "BINARYPROTO"}')
        launcher = mpirun(n_ranks) if n_ranks > 1 else []
        done = subprocess.run([*launcher, sys.executable, "run.py", "train", "-solver", "solver.prototxt", *resumes],
                              cwd=tmp_path, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        for path in tmp_path.glob("labels.*"):
            seen += [int(word) for word in path.read_text().split()]
            path.unlink()
    assert sorted(seen) == list(range(N_RECORDS))
    states = [read_state(tmp_path / f"run_iter_{i}.solverstate{ending}") for i in (3, 6)]
    assert [state.batches_read for state in states] == [3, 6]
    assert states[0].seed == states[1].seed
