"""These tests run on every rank of an MPI job, on device buffers; tests/collectives/cuda/test_jobs.py starts it.

CuPy is the pretend one, whose streams work as late as CUDA's rules allow; with SCAFFE_TEST_GPU=1 it is CuPy itself
(tests/gpu/test_collectives.py). Without a launcher nothing here is collected.
"""

import os
import sys
from pathlib import Path

import pytest

from scaffe.collectives.launch import launched
from tests.collectives.everywhere import last, pytest_runtest_makereport  # noqa: F401

collect_ignore_glob = [] if launched() else ["test_*.py"]
sys.path.insert(0, str(Path(__file__).parents[1] / "mpi"))  # reference.py
IS_REAL = bool(os.environ.get("SCAFFE_TEST_GPU"))

if launched() and not IS_REAL:
    from tests import pretend
    from tests.pretend import nccl, pool

    sys.modules.update(pretend.make())
    nccl.install()
    pool.Settings.shared = True
    pretend.settings.deferred = True
    pretend.device.Settings.n_devices = 2

    from scaffe.collectives.cuda.ipc import node, windows
    from scaffe.collectives.cuda.messages import aware

    node.STAGE_BYTES, windows.GRAIN_BYTES = 1 << 20, 4096  # here every page of them is written with poison
    aware.LENGTHS = (1 << 10, 1 << 16, 1 << 20)

KINDS = {  # what carries device buffers -> what the environment says while it is set up
    "ipc": {},
    "cards": {},
    "flags": {},
    "nccl": {},
    "staged": {"SCAFFE_CUDA_IPC": "0", "SCAFFE_CUDA_AWARE": "0"},
    "aware": {"SCAFFE_CUDA_IPC": "0", "SCAFFE_CUDA_AWARE": "1"},
}
PLACES = {"cards": "{rank}"} if IS_REAL else {"ipc": "0", "flags": "0", "nccl": "{rank}"}
"""Where kinds' GPUs seem to be: on one card (where one rank works for all), or on one each. The two pretend ones of
`cards` are given out in turn."""
if IS_REAL and launched():
    from scaffe.collectives.cuda.messages.aware import is_cuda_aware

    # a library that is not aware would read device memory as the host's
    KINDS = KINDS if is_cuda_aware() else {kind: KINDS[kind] for kind in ("ipc", "cards", "flags", "nccl", "staged")}
_made = {}


def make(kind):
    """A communicator whose device buffers travel by `kind`; a peer that is missing for 60 s ends the job."""
    from scaffe.collectives import Communicator
    from scaffe.collectives.cuda import device

    communicator = Communicator.world(deadline=120)
    communicator.install_excepthook()
    device.use_by_rank(communicator.node_rank)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in KINDS[kind].items():
            patch.setenv(name, value)
        if kind in PLACES:
            place = PLACES[kind].format(rank=communicator.rank)
            patch.setattr(device.load().cuda.runtime, "deviceGetPCIBusId", lambda number: place)
        if kind == "flags" and communicator.rank == communicator.n_ranks - 1:
            patch.setattr(device.load().cuda.runtime, "ipcGetEventHandle", _refused)
        communicator.describe_device()
    return communicator


def _refused(event):
    raise RuntimeError("events cannot be shared here")


@pytest.fixture
def communicator(request):
    """One communicator for each kind that tests ask for, for the whole job; `ipc` where they ask for none."""
    kind = getattr(request, "param", "ipc")
    if kind not in KINDS:
        pytest.skip("this MPI does not take device memory")
    if kind not in _made:
        _made[kind] = make(kind)
    if kind == "nccl" and _made[kind]._ranks.engine.backends["device"].calls["nccl"].fault:
        pytest.skip("NCCL cannot be had here")
    return _made[kind]


@pytest.fixture
def cp():
    """CuPy, or what stands for it."""
    import cupy

    return cupy
