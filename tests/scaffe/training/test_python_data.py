"""Data layers written in Python: ranks read parts of their own, and loaders that they fork end with the run."""

import numpy as np
import pytest

from scaffe.files.weights import read_model
from tests.scaffe.runs import run, write_solver

MODULE = """
import multiprocessing
import numpy as np
import caffe

BATCH, N_RECORDS = 8, 24
PARTS = caffe.solver_count()  # known when the module is imported, too

def load(pipe, first, step):
    while True:  # as long as it is not ended
        for number in range(first, N_RECORDS, step):
            pipe.send(number)

class Records(caffe.Layer):
    def setup(self, bottom, top):
        context = multiprocessing.get_context("fork")
        self.numbers, end = context.Pipe(duplex=False)
        first, step = caffe.solver_rank(), caffe.solver_count()
        self.n = BATCH // step if self.phase == caffe.TRAIN else BATCH
        assert first < PARTS
        context.Process(target=load, args=(end, first, step), daemon=True).start()

    def reshape(self, bottom, top):
        top[0].reshape(self.n, 6), top[1].reshape(self.n)

    def forward(self, bottom, top):
        for place in range(self.n):
            number = self.numbers.recv()
            top[0].data[place] = np.random.RandomState(number).randn(6)
            top[1].data[place] = number % 3

    def backward(self, top, propagate_down, bottom):
        pass
"""
NET = """
layer { name: "data" type: "Python" top: "data" top: "label" python_param { module: "records" layer: "Records" } }
layer { name: "wide" type: "InnerProduct" bottom: "data" top: "wide" inner_product_param { num_output: 6
  weight_filler { type: "xavier" } } parallel_param { split: OUTPUTS } }
layer { name: "ip" type: "InnerProduct" bottom: "wide" top: "ip" inner_product_param { num_output: 3
  weight_filler { type: "xavier" } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
"""


def trained(folder, n_ranks, *flags):
    """The parameters after four iterations, and the log. A run that waits for its loaders is a TimeoutExpired."""
    (folder / "records.py").write_text(MODULE)
    write_solver(folder, NET, lr_policy="fixed", base_lr=0.1, max_iter=4, test_iter=2, test_interval=3, snapshot=4)
    done = run(folder, "train", "-solver", "solver.prototxt", *flags, n_ranks=n_ranks, timeout=200)
    assert done.returncode == 0, done.stderr
    layers = read_model(folder / "run_iter_4.caffemodel")
    return np.concatenate([np.ravel(blob) for _, _, blobs in layers for blob in blobs]), done.stderr


@pytest.mark.mpi_job
@pytest.mark.parametrize(("n_ranks", "flags"), [(2, ()), *(pytest.param(*case, marks=pytest.mark.thorough) for case in (
    (4, ("-partitions", "2")), (3, ("-strategy", "ssp", "-slack", "0", "-servers", "1"))))])
def test_ranks_train_on_what_one_rank_trains_on(tmp_path, n_ranks, flags):
    """Each record passes once in an epoch: the parameters are those of one rank that reads all."""
    one, several = tmp_path / "one", tmp_path / "several"
    one.mkdir(), several.mkdir()
    expected, _ = trained(one, 1)
    found, log = trained(several, n_ranks, *flags)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)
    assert "solver_rank" not in log  # no warning
