# The two commands: `make train` and `make test`. Both make .venv first where there is none.
PYTHON ?= python3
VENV   := .venv
PY     := $(VENV)/bin/python
# An MPI of your own: make MPIRUN=/opt/mpi/bin/mpirun train (mpi4py's wheel loads the libmpi that the launcher brings;
# set MPI4PY_LIBMPI=/path/to/libmpi.so where it does not find it).
MPIRUN ?= $(VENV)/bin/mpirun
NP     ?= 2
MNIST  := examples/fashion_mnist

include mpi.env
export $(shell sed -n 's/^\([A-Z_a-z]*\)=.*/\1/p' mpi.env)

.PHONY: venv train test test-bounds fuzz test-mpich test-slurm gpu test-gpu bench-gpu soak lint types clean
venv: $(VENV)/ready

$(VENV)/ready: pyproject.toml
	test -x $(PY) || $(PYTHON) -m venv $(VENV)
	$(PY) -m pip install --quiet --upgrade pip
	$(PY) -m pip install --quiet --editable '.[mpi,dev]'
	$(PY) -m scaffe warm
	touch $@

train: venv $(MNIST)/train_lmdb $(MNIST)/test_lmdb
	$(MPIRUN) -np $(NP) $(PY) -m scaffe train -solver $(MNIST)/lenet_solver.prototxt

$(MNIST)/%_lmdb: | venv
	$(PY) -m scaffe convert_mnist $(MNIST) $* $@

# Two processes share the tests that start no MPI job (make N_PROCESSES=0 test: one does). Then those that do, marked
# mpi_job, run one after the other: a job fills the cores by itself. Each part shows its slowest twenty.
N_PROCESSES ?= 2
PYTEST := MPIRUN='$(MPIRUN)' $(PY) -m pytest tests --ignore=tests/slurm --durations=20
test: venv
	$(PYTEST) -m 'not mpi_job' -n $(N_PROCESSES) --dist worksteal; others=$$?; $(PYTEST) -m mpi_job && exit $$others

# The layers' tests with every index of compiled functions checked against its array, and what oneDNN refuses said.
test-bounds: venv
	SCAFFE_BOUNDSCHECK=1 ONEDNN_VERBOSE=error,check $(PY) -m pytest tests/layers -n $(N_PROCESSES) --dist worksteal --durations=20

# The collectives' MPI tests once more under MPICH, which needs an environment of its own: both MPIs' wheels have mpirun.
test-mpich: venv .venv-mpich/ready
	MPIRUN=.venv-mpich/bin/mpirun MPI_PYTHON=.venv-mpich/bin/python \
		$(PY) -m pytest tests/collectives/test_mpi.py -k collectives_on

.venv-mpich/ready: pyproject.toml
	test -x .venv-mpich/bin/python || $(PYTHON) -m venv .venv-mpich
	.venv-mpich/bin/python -m pip install --quiet --upgrade pip
	.venv-mpich/bin/python -m pip install --quiet --editable '.[dev]' 'mpich>=5.0'
	touch $@

# The job files on a real SLURM, which is started on this machine; as root, installed where it is not.
test-slurm: venv
	tests/slurm/run.sh $(PY) -m pytest -rs tests/slurm

# Damaged files for all readers, others every day; SECONDS_OF_FUZZ=3600 for a night, `python -m tests.fuzz -h` for more.
SECONDS_OF_FUZZ ?= 60
fuzz: venv
	$(PY) -m tests.fuzz --seconds $(SECONDS_OF_FUZZ) --seed $(shell date +%Y%m%d)

# With a GPU: CuPy and cuDNN come with the extra cuda12, or cuda13 (make CUDA=13 test-gpu). PEER is a Python with PyTorch.
# An environment that is there already, and no network: make PY=python3 test-gpu (docs/gpu.md); nothing is installed then.
CUDA ?= 12
OWN := $(filter file,$(origin PY))
GPU_PACKAGES := '.[mpi,dev,cuda$(CUDA)]'
gpu: $(if $(OWN),venv)
	$(PY) -m scaffe device_query -gpu 0
	$(PY) -c 'import cupy, cudnn' $(if $(OWN),|| $(PY) -m pip install --quiet --editable $(GPU_PACKAGES))

test-gpu: gpu
	SCAFFE_TEST_GPU=1 SCAFFE_TEST_DEVICE=cuda MPIRUN='$(MPIRUN)' $(PY) -m pytest tests/layers/cuda \
		tests/layers/test_device.py tests/layers/test_contract.py tests/scaffe/device/test_training.py \
		tests/scaffe/device/test_batch_norm.py tests/scaffe/device/test_resume.py tests/scaffe/device/test_pycaffe.py \
		tests/scaffe/device/test_strategies.py tests/gpu

bench-gpu: gpu
	MPIRUN='$(MPIRUN)' $(PY) benchmarks/gpu.py --json gpu.json $(if $(PEER),--peer $(PEER))

# Kills, stops, full disks, signals and random collectives for ten minutes (docs/reliability.md).
soak: venv
	$(PY) -m tests.soak --seconds 600

lint: venv
	$(PY) -m ruff check .

types: venv
	$(PY) -m mypy

clean:
	rm -rf $(VENV) .venv-mpich $(MNIST)/*_lmdb $(MNIST)/*.caffemodel $(MNIST)/*.solverstate
