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

.PHONY: venv train detect test test-thorough test-bounds test-mutants fuzz test-mpich test-partitions test-torch test-oldest \
	test-slurm gpu test-gpu test-gpu-ranks test-standin bench-gpu bench-gpu-ranks soak results docs notebooks lint types clean
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

# SSD in small finds drawn shapes (examples/shapes): the log's detection_eval is its mean average precision.
SHAPES := examples/shapes
detect: venv $(SHAPES)/train_lmdb $(SHAPES)/test_lmdb
	$(MPIRUN) -np $(NP) $(PY) -m scaffe train -solver $(SHAPES)/ssd_solver.prototxt

$(SHAPES)/train_lmdb: N_IMAGES := 500 1
$(SHAPES)/test_lmdb: N_IMAGES := 200 2
$(SHAPES)/%_lmdb: | venv
	$(PY) $(SHAPES)/draw.py $(SHAPES)/$* $(N_IMAGES)
	$(PY) -m scaffe convert_annoset --anno_type=detection --encoded --label_map_file=$(SHAPES)/labelmap.prototxt \
		$(SHAPES)/$*/ $(SHAPES)/$*/list.txt $@

# Two processes share the tests (make N_PROCESSES=0 test: one does them all): first those that start no MPI job, then those
# that do, marked mpi_job, a file at a time, so that at most two jobs run at once. Each part shows its slowest twenty.
# What is long, or repeats a neighbour on other ranks, by another way or with more seeds is marked thorough (test-thorough).
N_PROCESSES ?= 2
PYTEST := MPIRUN='$(MPIRUN)' $(PY) -m pytest --durations=20
# The files that take longest come first, so that both processes end at the same time: left to itself, xdist puts files of
# few tests last.
LONGEST := $(addprefix tests/,scaffe/training/partition/test_shared_nets.py collectives/test_mpi.py docs/test_runs.py \
	scaffe/device/test_strategies.py scaffe/device/test_limited_memory.py \
	collectives/cuda/test_jobs.py scaffe/training/sandblaster/test_sandblaster.py)
MPI_TESTS = $(LONGEST) $(filter-out $(LONGEST),$(sort $(shell grep -rl --include='test_*.py' --exclude-dir=slurm mpi_job tests)))
test: venv
	$(PYTEST) tests --ignore=tests/slurm -m 'not mpi_job and not thorough' -n $(N_PROCESSES) --dist worksteal; others=$$?; \
	$(PYTEST) $(MPI_TESTS) -m 'mpi_job and not thorough' -n $(N_PROCESSES) --dist loadfile --no-loadscope-reorder && exit $$others

THOROUGH_TESTS = $(sort $(shell grep -rl --include='test_*.py' --exclude-dir=slurm mark.thorough tests))
test-thorough: venv
	$(PYTEST) $(THOROUGH_TESTS) -m 'not mpi_job and thorough' -n $(N_PROCESSES) --dist worksteal; others=$$?; \
	$(PYTEST) $(THOROUGH_TESTS) -m 'mpi_job and thorough' -n $(N_PROCESSES) --dist loadfile && exit $$others

# The benchmarks' nets shared by 2 to 8 ranks: one rank's losses and weights after 20 iterations (a quarter of an hour;
# NETS="lenet caffenet" for some of them, RANKS=2,3).
RANKS ?= 2,3,5,7,8
test-partitions: venv
	$(PY) -m tests.scaffe.training.partition.benchmark_nets --ranks $(RANKS) $(NETS)

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

# PyTorch programs on our collectives, in an environment of their own: PyTorch is large (TORCH=torch==2.4.1 for another).
TORCH ?= torch
test-torch: .venv-torch/ready venv
	MPIRUN=.venv-torch/bin/mpirun TORCH_PYTHON=$(CURDIR)/.venv-torch/bin/python $(PY) -m pytest tests/torch

.venv-torch/ready: pyproject.toml
	test -x .venv-torch/bin/python || $(PYTHON) -m venv .venv-torch
	.venv-torch/bin/python -m pip install --quiet --upgrade pip
	.venv-torch/bin/python -m pip install --quiet --editable '.[mpi,safetensors]' pytest '$(TORCH)'
	.venv-torch/bin/python -m scaffe warm
	touch $@

# The tests that start no MPI job, with the oldest versions that pyproject.toml allows of all that scaffe needs.
test-oldest: .venv-oldest/ready
	.venv-oldest/bin/python -m pytest tests/collectives tests/data tests/layers tests/scaffe tests/packaging -m 'not mpi_job' \
		-n $(N_PROCESSES) --dist worksteal

.venv-oldest/ready: pyproject.toml tests/packaging/oldest.py
	test -x .venv-oldest/bin/python || $(PYTHON) -m venv .venv-oldest
	.venv-oldest/bin/python -m pip install --quiet --upgrade pip
	$(PYTHON) tests/packaging/oldest.py > .venv-oldest/oldest.txt
	.venv-oldest/bin/python -m pip install --quiet --editable '.[mpi,dev]' --constraint .venv-oldest/oldest.txt
	touch $@

# The job files on a real SLURM, which is started on this machine; as root, installed where it is not.
test-slurm: venv
	tests/slurm/run.sh $(PY) -m pytest -rs tests/slurm

# Waits, events and records of the GPU code taken out one at a time: some test must notice each (half an hour).
test-mutants: venv
	$(PY) -m tests.mutation

# Damaged files for all readers, others every day; SECONDS_OF_FUZZ=3600 for a night, `python -m tests.fuzz -h` for more.
SECONDS_OF_FUZZ ?= 60
fuzz: venv
	$(PY) -m tests.fuzz --seconds $(SECONDS_OF_FUZZ) --seed $(shell date +%Y%m%d)

# With a GPU: CuPy and cuDNN come with the extra cuda12, or cuda13 (make CUDA=13 test-gpu). PEER is a Python with PyTorch.
# An environment that is there already, and no network: make PY=python3 test-gpu (docs/gpu.md); nothing is installed then,
# and cuDNN may be missing. Each file of tests is a process with a time limit; test-gpu.xml has all results.
CUDA ?= 12
OWN := $(filter file,$(origin PY))
GPU_PACKAGES := '.[mpi,dev,cuda$(CUDA)]'
comma := ,
gpu: $(if $(OWN),venv)
	$(PY) -m scaffe device_query -gpu 0
	$(PY) -c 'import cupy$(if $(OWN),$(comma) cudnn)' $(if $(OWN),|| $(PY) -m pip install --quiet --editable $(GPU_PACKAGES))

# No GPU: real CuPy over libraries that stand in for CUDA's (tests/standin). Needs cc, and 2 GB for the extra cuda12.
STANDIN := $(CURDIR)/build/standin
SPY := .venv-gpu/bin/python
test-standin:
	test -x $(SPY) || python3 -m venv .venv-gpu
	$(SPY) -c 'import cupy, cudnn, cython' || $(SPY) -m pip install --quiet --editable '.[mpi,dev,cuda12]' 'Cython>=3.2,<3.3'
	$(SPY) -m tests.standin.build $(STANDIN)
	SCAFFE_STANDIN=$(STANDIN) $(SPY) -m pytest -q tests/scaffe/device/test_standin.py

test-gpu: gpu
	MPIRUN='$(MPIRUN)' $(PY) -m tests.gpu --junit test-gpu.xml

# Several ranks on one card as on several: three parts, each of at most three minutes.
RANK_PARTS := $(foreach part,ipc nccl aware,tests/gpu/test_ranks_$(part).py)
test-gpu-ranks: gpu
	MPIRUN='$(MPIRUN)' $(PY) -m tests.gpu --seconds 180 --jobs 1 --junit test-gpu-ranks.xml $(RANK_PARTS)

# S-Caffe's figure on one card; needs root and iproute2.
bench-gpu-ranks: gpu
	MPIRUN='$(MPIRUN)' $(PY) benchmarks/gpu_ranks.py --json gpu-ranks.json --timelines gpu-ranks \
		$(if $(PEER),--peer $(PEER))

bench-gpu: gpu
	MPIRUN='$(MPIRUN)' $(PY) benchmarks/gpu.py --json gpu.json $(if $(PEER),--peer $(PEER))

# docs/benchmarks.md, of what the benchmarks have kept (--keep).
results: venv
	$(PY) benchmarks/results.py

# Kills, stops, full disks, signals and random collectives for ten minutes (docs/reliability.md).
soak: venv
	$(PY) -m tests.soak --seconds 600

# The site in build/site: docs/, README.md and its neighbours, and the interface from docstrings; any warning ends it.
docs: venv
	$(PY) -c 'import material, mkdocstrings_handlers.python' 2>/dev/null || $(PY) -m pip install --quiet --editable '.[docs]'
	NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --strict

# The notebooks of examples/, from their first cell to their last.
notebooks: venv
	$(PY) -c 'import ipykernel, matplotlib, nbmake' 2>/dev/null || $(PY) -m pip install --quiet --editable '.[notebooks]'
	$(PY) -m pytest --nbmake --nbmake-timeout=300 examples/notebooks

lint: venv
	$(PY) -m ruff check .

types: venv
	$(PY) -m mypy

clean:
	rm -rf $(VENV) .venv-mpich .venv-torch .venv-oldest build $(MNIST)/*_lmdb $(MNIST)/*.caffemodel $(MNIST)/*.solverstate
	rm -rf $(SHAPES)/*_lmdb $(SHAPES)/*.caffemodel $(SHAPES)/*.solverstate $(SHAPES)/train $(SHAPES)/test
