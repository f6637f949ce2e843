"""A user's mistakes: one line that names file and layer, exit code 1 on every rank, nothing half-written."""

import os
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest

from scaffe.cli import main as cli
from scaffe.files import StoredLayer, write_model
from scaffe.proto import caffe_pb2
from tests.mpirun import mpirun
from tests.scaffe.runs import ROOT, run, write_solver

IP = 'layer { name: "ip1" type: "InnerProduct" bottom: "data" top: "ip1" inner_product_param { num_output: 10 } }'
DATA = ('layer {{ name: "d" type: "Data" top: "data" top: "label" '
        'data_param {{ source: "{}" batch_size: 50 backend: LMDB }} }}')
LOSS = 'layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip1" bottom: "label" top: "loss" }'


def train(folder, net, capfd, *args, **solver):
    """Train in this process. Returns the exit code and what was said."""
    write_solver(folder, net, **({"test_iter": None, "test_interval": 0, "max_iter": 2} | solver))
    code = cli.main(["train", "-solver", str(folder / "solver.prototxt"), "-threads", "1", *args])
    return code, capfd.readouterr().err


@pytest.fixture(autouse=True)
def in_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(("change", "said"), [
    (("inner_product_param", "inner_product_parm"), "net.prototxt:2:68: LayerParameter has no field "
     "'inner_product_parm'; did you mean 'inner_product_param'? (in layer 'ip1')"),
    (('"InnerProduct"', '"InerProduct"'), "net.prototxt: layer 'ip1' (InerProduct): unknown layer type 'InerProduct'; "
     "did you mean 'InnerProduct'?"),
    (('bottom: "data"', 'bottom: "dat"'), "layer 'ip1' (InnerProduct): bottom 'dat' is not the top of any layer"),
    (("num_output: 10", "num_output: 3"), "layer 'loss' (SoftmaxWithLoss): label 9 is not one of the 3 classes"),
    (("batch_size: 50", "batch_size: 0"), "layer 'd' (Data): batch_size must be at least 1"),
    (('bottom: "label"', ''), "layer 'loss' (SoftmaxWithLoss): takes 2 bottom blob(s), got 1"),
    (('name: "ip1"', 'name: "ip1" include { phase: TRAIN } exclude { phase: TEST }'), "'ip1': give include rules or"),
    (('"InnerProduct"', '"Convolution" convolution_param { num_output: 2 kernel_size: 40 }'),
     "layer 'ip1' (Convolution): kernel (40, 40) does not fit"),
])
def test_mistakes_in_a_net(tmp_path, capfd, databases, change, said):
    net = "\n".join([DATA.format(databases / "train"), IP, LOSS])
    code, err = train(tmp_path, net.replace(*change, 1), capfd)
    assert code == 1
    last = err.strip().splitlines()[-1]
    assert said in last
    assert "Traceback" not in err


def test_missing_and_truncated_lmdb(tmp_path, capfd, databases):
    code, err = train(tmp_path, "\n".join([DATA.format("nowhere"), IP, LOSS]), capfd)
    assert (code, "nowhere" in err) == (1, True)
    shutil.copytree(databases / "train", "cut")
    os.truncate("cut/data.mdb", (tmp_path / "cut/data.mdb").stat().st_size // 2)
    code, err = train(tmp_path, "\n".join([DATA.format("cut"), IP, LOSS]), capfd)
    assert code == 1
    assert "cut" in err.strip().splitlines()[-1]
    assert len(err.strip().splitlines()[-1]) < 300


def test_weights_that_do_not_fit(tmp_path, capfd, databases):
    param = caffe_pb2.LayerParameter(name="ip1", type="InnerProduct")
    write_model("w.caffemodel", "n", [StoredLayer(param, [np.zeros((7, 784), np.float32), np.zeros(7, np.float32)])])
    net = "\n".join([DATA.format(databases / "train"), IP, LOSS])
    code, err = train(tmp_path, net, capfd, "-weights", "w.caffemodel")
    assert code == 1
    assert "w.caffemodel: layer 'ip1' blob 0 has shape 7x784 in the file, 10x784 in the net" in err


@pytest.mark.parametrize(("solver", "said"), [
    ({"lr_policy": "stairs"}, "lr_policy 'stairs' is unknown; known: exp, fixed, inv"),
    ({"type": "Sgdd"}, "unknown solver type 'Sgdd'; did you mean 'SGD'?"),
    ({"snapshot_prefix": "no/such/folder/run"}, "there is no folder no/such/folder"),
    ({"base_lr": 1e30, "max_iter": 9}, "the loss is nan on rank 0"),
    ({"type": "Adam", "momentum": 1}, "Adam needs a momentum of at least 0 and below 1, got 1"),
])
def test_mistakes_in_a_solver(tmp_path, capfd, databases, solver, said):
    code, err = train(tmp_path, "\n".join([DATA.format(databases / "train"), IP, LOSS]), capfd, **solver)
    assert code == 1
    assert said in err.strip().splitlines()[-1]


def test_a_full_disk_keeps_the_snapshot_before(tmp_path, capfd, databases, monkeypatch):
    net = "\n".join([DATA.format(databases / "train"), IP, LOSS])
    assert train(tmp_path, net, capfd, snapshot=1, max_iter=1)[0] == 0
    before = (tmp_path / "run_iter_1.caffemodel").read_bytes()

    def no_space(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", no_space)
    code, err = train(tmp_path, net, capfd, snapshot=1, max_iter=3)
    assert code == 1
    assert "run_iter_1.caffemodel cannot be written: no space left on device" in err
    assert (tmp_path / "run_iter_1.caffemodel").read_bytes() == before
    assert not [p for p in tmp_path.iterdir() if p.name.startswith(".")]


def test_wrong_command_lines(capfd):
    assert cli.main(["trian"]) == 2
    assert "did you mean train?" in capfd.readouterr().err
    assert cli.main(["train", "-solvr", "x"]) == 2
    assert "train: unknown flag -solvr; did you mean -solver?" in capfd.readouterr().err


@pytest.mark.mpi_job
def test_every_rank_stops_and_one_speaks(tmp_path, lenet):
    write_solver(tmp_path, lenet.replace("batch_size: 64", "batch_size: 2"))
    done = run(tmp_path, "train", "-solver", "solver.prototxt", n_ranks=3)
    said = [line for line in done.stderr.splitlines() if "batch_size" in line]
    assert done.returncode == 1
    assert len(said) == 1
    assert "layer 'mnist' (Data): batch_size 2 is less than one image for each of 3 ranks; change it" in said[0]
    assert "Traceback" not in done.stderr


@pytest.mark.mpi_job
def test_one_ranks_own_mistake_ends_all(tmp_path, databases):
    """A label out of range meets rank 1 first or alone; the job ends with that rank's line."""
    net = "\n".join([DATA.format(databases / "train"), IP.replace("10", "9"), LOSS])
    write_solver(tmp_path, net, test_iter=None, test_interval=0)
    done = run(tmp_path, "train", "-solver", "solver.prototxt", n_ranks=2, timeout=120)
    assert done.returncode != 0
    assert re.search(r"rank [01]: .*layer 'loss' \(SoftmaxWithLoss\): label 9 is not one of the 9 classes", done.stderr)


@pytest.mark.mpi_job
def test_a_wrong_command_line_is_said_though_rank_0_starts_last(tmp_path):
    """The launcher kills the others as soon as one rank has ended with an error: the line used to be lost."""
    late = 'test "$OMPI_COMM_WORLD_RANK" != 0 || sleep 3; exec "$0" -m scaffe train -slack many -strategy ssp'
    done = subprocess.run([*mpirun(3), "sh", "-c", late, sys.executable], cwd=tmp_path, capture_output=True, text=True,
                          timeout=60)
    assert done.returncode == 2
    assert done.stderr.count("train: -slack must be inf or a whole number from 0 to 2^31-1, got 'many'") == 1


WITHIN_MPI = """
import sys
from scaffe.cli import main as cli
from scaffe.cli.commands import collectives
from scaffe.collectives import Communicator
from scaffe.errors import UserError
def body(argv):
    if Communicator.world().n_ranks == 2:
        raise UserError("wrong on all ranks")
collectives.bench = body
sys.exit(cli.main(["bench"]))
"""


@pytest.mark.mpi_job
@pytest.mark.parametrize(("words", "said"), [
    (("-m", "scaffe", "bench", "reduce", "-m", "4:8", "-i", "1"),
     "scaffe: table {}/none.json: no such file or directory\n"),
    (("-c", WITHIN_MPI), "scaffe: wrong on all ranks\n")])
def test_an_error_that_all_ranks_have_ends_them_at_once_before_and_after_mpi_starts(tmp_path, words, said):
    """The others wait some seconds before they say it too: they have not come to that."""
    variables = {"SCAFFE_TABLE": str(tmp_path / "none.json")} if "-m" in words else {}
    done = subprocess.run([*mpirun(2), sys.executable, *words], env=os.environ | variables, capture_output=True,
                          text=True, timeout=120)
    assert done.returncode == 1
    assert done.stderr.count(said.format(tmp_path)) == 1
    assert "rank 1:" not in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize(("words", "code", "said"), [
    (("upgrade_net_proto_text", "absent", "new"), 1, "scaffe: rank 2: absent: no such file or directory\n"),
    (("trian",), 2, "")])
def test_a_rank_that_rank_0_leaves_alone_says_its_own_error(tmp_path, capfd, monkeypatch, words, code, said):
    waits = []
    monkeypatch.setenv("OMPI_COMM_WORLD_RANK", "2")
    monkeypatch.setattr(cli.time, "sleep", waits.append)
    assert cli.main([*words]) == code
    assert capfd.readouterr().err == said
    assert sum(waits) == cli.ROOT_SPEAKS_FIRST_SECONDS


DEFECT = """
import os, scaffe as caffe
class Layer(caffe.Layer):
    def setup(self, bottom, top): pass
    def reshape(self, bottom, top): top[0].reshape(1)
    def forward(self, bottom, top):
        if os.environ.get("OMPI_COMM_WORLD_RANK", "1") == "1":
            raise {}
    def backward(self, top, propagate_down, bottom): pass
"""
OWN = 'layer { name: "own" type: "Python" top: "loss" loss_weight: 1 python_param { module: "own" layer: "Layer" } }'


@pytest.mark.parametrize("error", ["ValueError('a defect')", "KeyError('a defect')", "OSError('a defect')"])
def test_what_is_not_expected_keeps_its_traceback(tmp_path, capfd, error):
    """Only what is said to be expected becomes a line; a ValueError from anywhere used to pass for a user's mistake."""
    (tmp_path / "own.py").write_text(DEFECT.format(error))
    write_solver(tmp_path, "\n".join([OWN]), test_iter=None, test_interval=0, max_iter=2)
    done = run(tmp_path, "train", "-solver", "solver.prototxt")
    assert done.returncode == 1
    assert "Traceback" in done.stderr
    assert f'raise {error}' in done.stderr


@pytest.mark.mpi_job
def test_a_defect_on_one_rank_ends_all_and_keeps_its_traceback(tmp_path):
    (tmp_path / "own.py").write_text(DEFECT.format("ValueError('a defect')"))
    write_solver(tmp_path, "\n".join([OWN]), test_iter=None, test_interval=0, max_iter=2)
    done = run(tmp_path, "train", "-solver", "solver.prototxt", n_ranks=3, timeout=60)
    assert done.returncode != 0
    assert done.stderr.count("Traceback") == 1
    assert "raise ValueError('a defect')" in done.stderr
    assert re.search(r"^rank 1: layer 'own' \(Python\): Layer.forward raised ValueError: a defect", done.stderr, re.M)


@pytest.mark.parametrize(("policy", "said"), [
    ('lr_policy: "inv" gamma: -1 power: 0.5', "lr_policy 'inv' has no rate at iteration 1: 0.0 cannot be raised"),
    ('lr_policy: "inv" gamma: -2 power: 0.5', "lr_policy 'inv' has no rate at iteration 1: a power of a number below"),
])
def test_a_policy_without_a_rate(tmp_path, capfd, databases, policy, said):
    net = "\n".join([DATA.format(databases / "train"), IP, LOSS])
    write_solver(tmp_path, net, test_iter=None, test_interval=0, max_iter=3, lr_policy=None, gamma=None, power=None)
    with (tmp_path / "solver.prototxt").open("a") as file:
        file.write(policy)
    assert cli.main(["train", "-solver", "solver.prototxt", "-threads", "1"]) == 1
    assert said in capfd.readouterr().err.strip().splitlines()[-1]


def test_a_net_without_parameters_trains(tmp_path, capfd):
    """Caffe runs it; nothing is learned."""
    net = 'layer { name: "d" type: "DummyData" top: "x" dummy_data_param { shape { dim: 2 } } }'
    assert train(tmp_path, net, capfd)[0] == 0


@pytest.mark.parametrize("text", ['{"traceEvents": [{"ph": "X"}]}', '{"traceEvents": 3}', '{"traceEvents": [1]}'])
def test_a_trace_that_is_none(tmp_path, capfd, text):
    (tmp_path / "trace.json").write_text(text)
    assert cli.main(["plot", "trace.json"]) == 1
    assert "trace.json: not a trace that train -timeline wrote" in capfd.readouterr().err


def test_a_log_with_no_time_of_this_world(tmp_path, capfd):
    (tmp_path / "log").write_text("I9999 99:99:99.000000 7 solver.py:98] Solving\n")
    assert cli.main(["parse_log", "log", "."]) == 1
    assert "expected a log line with its time, got 'I9999" in capfd.readouterr().err


def test_a_users_own_layers_and_data_do_not_get_in_the_way(tmp_path, databases):
    (tmp_path / "layers.py").write_text("raise RuntimeError('the wrong layers')")
    (tmp_path / "data").mkdir()
    (tmp_path / "data/__init__.py").write_text("raise RuntimeError('the wrong data')")
    write_solver(tmp_path, "\n".join([DATA.format(databases / "train"), IP, LOSS]), test_iter=None, test_interval=0)
    done = run(tmp_path, "train", "-solver", "solver.prototxt")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("start", [
    "import scaffe", "from scaffe.layers.base.layer import layer_types; layer_types.names()"])
def test_importing_is_light(start):
    """scaffe itself, and all layers: a layer imports its compiled loops when it runs."""
    heavy = f"{start}; import sys; print([m for m in ('numba', 'mpi4py', 'cupy', 'lmdb', 'h5py') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", heavy], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


MINE = """
import caffe

class Mine(caffe.Layer):
    def setup(self, bottom, top):
        self.fail_in("setup")
    def reshape(self, bottom, top):
        top[0].reshape(*bottom[0].shape)
    def forward(self, bottom, top):
        self.fail_in("forward")
    def fail_in(self, place):
        if self.param_str == place:
            {}["missing"]
"""


@pytest.mark.parametrize("place", ["setup", "forward"])
@pytest.mark.parametrize("n_ranks", [1, pytest.param(2, marks=pytest.mark.mpi_job)])
def test_a_users_own_layer_gets_its_own_traceback_below_the_line(tmp_path, monkeypatch, place, n_ranks):
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    (tmp_path / "mine.py").write_text(MINE)
    mine = ('layer { name: "m" type: "Python" bottom: "data" top: "x" '
            f'python_param {{ module: "mine" layer: "Mine" param_str: "{place}" }} }}')
    dummy = 'layer { name: "d" type: "DummyData" top: "data" dummy_data_param { shape { dim: 8 dim: 20 } } }'
    write_solver(tmp_path, "\n".join([dummy, mine]), test_iter=None, test_interval=0, max_iter=2)
    done = run(tmp_path, "train", "-solver", "solver.prototxt", n_ranks=n_ranks)
    said = [line for line in done.stderr.splitlines() if not re.match("I\\d{4} ", line)]
    assert done.returncode == 1
    assert re.fullmatch(rf"(scaffe|rank \d): layer 'm' \(Python\): Mine.{place} raised KeyError: 'missing' "
                        r"\(.*mine.py, line 13\)", said[0])
    trace = said[1 : said.index("KeyError: 'missing'")]
    assert trace[0] == "Traceback of the layer's own code (most recent call last):"
    assert [line.split(", ", 1)[1] for line in trace if line.startswith("  File ")] == [
        f"line {6 if place == 'setup' else 10}, in {place}", "line 13, in fail_in"]
