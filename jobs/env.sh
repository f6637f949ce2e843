# shellcheck shell=bash
# The site's settings, and how ranks are started. Sourced by the .sbatch files here; edit it once for your cluster.
#
# SCAFFE_LAUNCHER  srun, mpirun, or auto: a short trial under srun, and mpirun where ranks do not find one another (auto)
# PYTHON           the Python that has scaffe ($SCAFFE_HOME/.venv/bin/python, else python3)
# MPIRUN           the fall-back launcher (beside PYTHON, else the one on PATH)
# SRUN_OPTIONS     more options for srun, as words
# MPIRUN_OPTIONS   more options for mpirun, as words
# SCAFFE_SHOW_BINDING=1  every rank says its node, cores and GPUs first

# --- Modules: what `module avail` has at your site.
# module purge
# module load python/3.11 openmpi/5.0 cuda/12.4

# --- The MPI library, where mpi4py's wheel finds the wrong one.
# export MPI4PY_LIBMPI=/opt/openmpi/lib/libmpi.so

# --- The network, where the MPI does not choose it well.
# export UCX_NET_DEVICES=mlx5_0:1
# export OMPI_MCA_btl_tcp_if_include=10.0.0.0/16

# --- Compiled kernels are kept beside the sources, or in ~/.cache/scaffe. Another folder, of yours alone, on each node:
# export NUMBA_CACHE_DIR=/scratch/$USER/scaffe

PYTHON=${PYTHON:-$SCAFFE_HOME/.venv/bin/python}
[ -x "$PYTHON" ] || PYTHON=$(command -v python3)
MPIRUN=${MPIRUN:-$(dirname "$PYTHON")/mpirun}
[ -x "$MPIRUN" ] || MPIRUN=$(command -v mpirun || true)
export PYTHONPATH="$SCAFFE_HOME${PYTHONPATH:+:$PYTHONPATH}"

# Shared windows through UCX fail on many machines; nothing here needs them.
export OMPI_MCA_osc=${OMPI_MCA_osc:-^ucx}
# PyPI's Open MPI cannot answer SLURM's PMIx in munge's way, and would try for 8 s.
if [ -d "$(dirname "$PYTHON")/../lib/openmpi" ]; then
    export PMIX_MCA_psec=${PMIX_MCA_psec:-native}
fi
# Since SLURM 22.05 srun no longer takes this over from sbatch by itself.
if [ -n "${SLURM_CPUS_PER_TASK:-}" ]; then
    export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK
fi

# A rank a task; where sbatch was given no tasks, a rank a GPU; else a rank a node.
RANKS=${SLURM_NTASKS:-$((${SLURM_NNODES:-1} * ${SLURM_GPUS_ON_NODE:-1}))}
RANKS_PER_NODE=$(((RANKS + ${SLURM_NNODES:-1} - 1) / ${SLURM_NNODES:-1}))
# Every rank sees its node's GPUs (peers' memory needs that) and takes the one of its place on the node.
GPU_FLAGS=()
BIND=cores
if [ "${SLURM_GPUS_ON_NODE:-0}" != 0 ]; then # then ranks bind themselves, to cores near their GPUs: only they know which
    GPU_FLAGS=(-gpu all)
    export SCAFFE_BIND=${SCAFFE_BIND:-gpu}
    if [ "$SCAFFE_BIND" = gpu ]; then BIND=none; fi
fi

use_srun() { # RANKS: sets the launcher's words
    local nodes=$((($1 + RANKS_PER_NODE - 1) / RANKS_PER_NODE))
    # srun would wait 30 s before it kills what -K tells it to end: PMIx does that at once
    LAUNCH=(srun --mpi=pmix --ntasks="$1" --nodes="$nodes" --distribution=block "--cpu-bind=$BIND" --kill-on-bad-exit=0)
    if ((${#GPU_FLAGS[@]})); then LAUNCH+=(--gpu-bind=none); fi
    # shellcheck disable=SC2206
    LAUNCH+=(${SRUN_OPTIONS:-} "$SCAFFE_HOME/jobs/rank.sh")
}

use_mpirun() { # RANKS
    # SLURM's CPUs are hardware threads; cores of the allocation's nodes are filled one node after the other
    LAUNCH=("$MPIRUN" -np "$1" --map-by "ppr:$RANKS_PER_NODE:node:PE=${SLURM_CPUS_PER_TASK:-1}:HWTCPUS")
    if (($1 < RANKS)); then LAUNCH=("$MPIRUN" -np "$1" --map-by "slot:PE=${SLURM_CPUS_PER_TASK:-1}:HWTCPUS"); fi
    if [ "$BIND" = none ]; then LAUNCH=("$MPIRUN" -np "$1" --map-by "ppr:$RANKS_PER_NODE:node" --bind-to none); fi
    if ((GOES_ON)); then LAUNCH+=(--with-ft ulfm); fi
    # shellcheck disable=SC2206
    LAUNCH+=(${MPIRUN_OPTIONS:-} "$SCAFFE_HOME/jobs/rank.sh")
}

ranks_meet_under_srun() {
    command -v srun >/dev/null || return 1
    use_srun "$RANKS"
    timeout 120 "${LAUNCH[@]}" "$PYTHON" -c 'import os, sys
from scaffe.collectives import Communicator
sys.exit(Communicator.world().n_ranks != int(os.environ["SLURM_STEP_NUM_TASKS"]))' </dev/null >/dev/null 2>&1
}

GOES_ON=0
goes_on() { # FLAGS...: whether ranks may be lost, by -on_rank_loss; SLURM's PMIx ends an srun's step with the first one
    local words
    words=$(tr '=-' '  ' <<<" $* ")
    [[ $words =~ \ on_rank_loss\ +(shrink|replace)\  ]] || return 0
    if [ "${SCAFFE_LAUNCHER:-auto}" = srun ]; then
        echo "scaffe: -on_rank_loss ${BASH_REMATCH[1]} needs mpirun: under srun SLURM ends all ranks with a lost one" >&2
        exit 2
    fi
    GOES_ON=1 SCAFFE_LAUNCHER=mpirun
}

choose_launcher() { # sets SCAFFE_LAUNCHER to srun or mpirun, and says which
    if [ "${SCAFFE_LAUNCHER:-auto}" = auto ]; then
        if ranks_meet_under_srun; then SCAFFE_LAUNCHER=srun; else SCAFFE_LAUNCHER=mpirun; fi
    fi
    case $SCAFFE_LAUNCHER in
        srun) ;;
        mpirun) [ -n "$MPIRUN" ] || { echo "scaffe: no mpirun; load one in jobs/env.sh or set MPIRUN" >&2; exit 2; } ;;
        *) echo "scaffe: SCAFFE_LAUNCHER must be srun, mpirun or auto, not '$SCAFFE_LAUNCHER'" >&2; exit 2 ;;
    esac
    echo "scaffe: $RANKS rank(s) on ${SLURM_NNODES:-1} node(s) ($SLURM_JOB_NODELIST), started by $SCAFFE_LAUNCHER" >&2
}

launch() { # RANKS COMMAND...: becomes the launcher, so call it in a subshell or in the background
    "use_$SCAFFE_LAUNCHER" "$1"
    shift
    exec "${LAUNCH[@]}" "$@" </dev/null
}
