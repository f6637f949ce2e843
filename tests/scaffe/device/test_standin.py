"""Real CuPy over libraries that stand in for CUDA's (tests/standin): what is called, on which device, in which thread.

`make test-standin` builds them and asks for these tests.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from scaffe.data.convert.writers import write_lmdb
from scaffe.data.records.datum import encode_file
from tests.collectives.test_mpi import ENVIRONMENT
from tests.mpirun import mpirun
from tests.mutation.__main__ import SITE
from tests.mutation.mutants import ROOT
from tests.scaffe.runs import write_solver

FOLDER = os.environ.get("SCAFFE_STANDIN", "")
pytestmark = [pytest.mark.mpi_job, pytest.mark.skipif(not FOLDER, reason="make test-standin asks for it")]
WORKER = str(Path(__file__).with_name("standin_worker.py"))
KINDS = {"ipc": {}, "staged": {"SCAFFE_CUDA_IPC": "0", "SCAFFE_CUDA_AWARE": "0"},
         "aware": {"SCAFFE_CUDA_IPC": "0", "SCAFFE_CUDA_AWARE": "1"}}
DECODED = """layer { name: "d" type: "Data" top: "data" top: "label" transform_param { crop_size: 14 mirror: true }
        data_param { source: "db" batch_size: 32 } }
layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip" inner_product_param { num_output: 4 } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }"""
NO_DEVICE, ALLOCATES = "on a thread without a device", "allocates while capturing"
COPIES, REFUSED = "copies from the host while capturing", "CUDA refuses it"


def run(folder, *arguments, n_ranks=1, kind="", mutant=None):
    """What each rank recorded; three devices are pretended. A mutant's job may fail, and leave some ranks' records."""
    changed = {"MUTANT": json.dumps(mutant)} if mutant else {}
    environment = os.environ | ENVIRONMENT | KINDS.get(kind, {}) | changed | {
        "SCAFFE_STANDIN_DEVICES": "3", "SCAFFE_STANDIN_KIND": kind, "SCAFFE_TEST_GPU": "1",
        "CUPY_CACHE_DIR": str(Path(FOLDER, "kernels")), "XDG_CACHE_HOME": str(folder / "cache"),
        "PYTHONPATH": os.pathsep.join([str(SITE), str(ROOT)]), "PYTHONDONTWRITEBYTECODE": "1"}
    launcher = mpirun(n_ranks) if n_ranks > 1 else []
    done = subprocess.run([*launcher, sys.executable, WORKER, str(folder), *arguments], cwd=folder, env=environment,
                          capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0 or mutant, (done.stdout + done.stderr)[-6000:]
    records = sorted(folder.glob("rank-*.json"))
    assert len(records) == n_ranks or (records and mutant), (done.stdout + done.stderr)[-6000:]
    return [json.loads(path.read_text()) for path in records]


def expect_clean(found, device):
    """No rule is broken, and the only context is the rank's own device's."""
    assert {rule: faults[:5] for rule, faults in found["faults"].items() if faults} == {}
    assert found["contexts"] == [device]


def train(folder, lenet, precision="fp32"):
    """The command that trains LeNet for eight iterations with tests, on the second of three devices."""
    write_solver(folder, lenet, max_iter=8, test_interval=4, test_iter=2)
    return f"train -solver solver.prototxt -gpu 1 -precision {precision} -threads 1"


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_a_net_trains_on_its_own_device_alone(tmp_path, lenet, precision):
    found, = run(tmp_path, "commands", train(tmp_path, lenet, precision))
    expect_clean(found, 1)
    calls = found["calls"]
    for name in ("cudaStreamBeginCapture", "cudaGraphLaunch", "cudnnBackendExecute", "cublasGemmEx", "cuLaunchKernel"):
        assert calls.get(name, 0) > 0, name


def in_limited_memory(folder, lenet):
    """The same with batches whose arrays are so long that they lie in pages, within a limit."""
    return train(folder, lenet.replace("batch_size: 64", "batch_size: 1024")) + " -memory 70%"


def test_a_net_in_limited_memory_lies_in_pages(tmp_path, lenet):
    found, = run(tmp_path, "commands", in_limited_memory(tmp_path, lenet))
    expect_clean(found, 1)
    for name in ("cuMemCreate", "cuMemAddressReserve", "cuMemMap", "cuMemSetAccess", "cuEventRecordWithFlags"):
        assert found["calls"].get(name, 0) > 0, name


def test_an_event_of_recordings_outside_of_one_is_noticed(tmp_path, lenet):
    mutant = "scaffe/memory/backing/device_clock.py", "if not self._in_recording:", "if False:"
    found, = run(tmp_path, "commands", in_limited_memory(tmp_path, lenet), mutant=mutant)
    assert found["faults"][REFUSED], found["faults"]


def test_readers_decode_on_the_nets_device_alone(tmp_path):
    """The decoder is a pretend one over real CuPy: decoded images are copied, though kernels do nothing."""
    cv2, rng = pytest.importorskip("cv2"), np.random.default_rng(0)
    files = [cv2.imencode(".jpg", rng.integers(0, 256, (20, 24, 3), np.uint8))[1].tobytes() for _ in range(64)]
    write_lmdb(tmp_path / "db", [(b"%08d" % i, encode_file(file, i % 4)) for i, file in enumerate(files)])
    write_solver(tmp_path, DECODED, max_iter=8, test_iter=None, test_interval=0)
    found, = run(tmp_path, "commands", "train -solver solver.prototxt -gpu 1 -threads 1 -readers 3 -decode gpu")
    expect_clean(found, 1)
    assert {name.startswith("reader-") for name in found["decoded_by"]} == {True, False}  # the first image is tried


@pytest.mark.parametrize("what", ["collectives", "strategies"])
@pytest.mark.parametrize("kind", KINDS)
def test_each_rank_stays_on_its_own_device(tmp_path, kind, what):
    for rank, found in enumerate(run(tmp_path, what, n_ranks=2, kind=kind)):
        expect_clean(found, rank + 1)
        assert found["threads"] > 1  # the helper's calls are among them
        assert ("cudaIpcOpenMemHandle" in found["calls"]) == (kind == "ipc")


POOLING = "layers/kernels/cuda/pooling_lrn.py", "self._check(x, y, mask)"
MUTANTS = {
    "a copy in a recording": (COPIES, *POOLING,
                              "device.load().cuda.runtime.memcpyAsync(y.data.ptr, np.zeros(9).ctypes.data, 4, 1, "
                              "device.load().cuda.get_current_stream().ptr)"),
    "an array in a recording": (ALLOCATES, "layers/kernels/cuda/arena.py", "pool.malloc(AHEAD_BYTES)", "pass"),
    "products without their memory": (REFUSED, "layers/kernels/cuda/cublas.py",
                                      'self._check("cublasSetWorkspace_v2"', '(lambda *given: None)("no"'),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_broken_rule_is_noticed(tmp_path, lenet, name):
    rule, *mutant = MUTANTS[name]
    found, = run(tmp_path, "commands", train(tmp_path, lenet), mutant=mutant)
    assert found["faults"][rule], found["faults"]


def test_a_helper_without_its_device_is_noticed(tmp_path):
    mutant = "collectives/runtime/device_on_demand.py", "make_current(self._gpu)", "pass"
    found = run(tmp_path, "collectives", n_ranks=2, kind="staged", mutant=mutant)
    assert all(each["faults"][NO_DEVICE] and 0 in each["contexts"] for each in found)


def test_a_device_that_is_given_back_is_noticed(tmp_path, lenet):
    """As CuPy's own `with Device` did: since CUDA 12, going back to device 0 makes a context there."""
    mutant = "layers/kernels/device.py", "cupy.cuda.Device(number).use()", "cupy.cuda.Device(number).use(), " \
        "cupy.cuda.Device(0).use(), cupy.cuda.Device(number).use()"
    found, = run(tmp_path, "commands", train(tmp_path, lenet), mutant=mutant)
    assert found["contexts"] == [0, 1]
