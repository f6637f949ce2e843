#!/bin/bash
# One rank of a job: runs the command, and says so if a signal kills it. srun's own lines do not tell the rank that died
# from those that the job's end took with it, and over TCP mpirun may name the neighbour that saw the connection close.
#
#   srun --mpi=pmix jobs/rank.sh python -m scaffe train ...        mpirun -np 8 jobs/rank.sh python -m scaffe train ...
#
# With SCAFFE_SHOW_BINDING=1 it first says where the rank runs: its node, cores and GPUs.
set -uo pipefail

node=$(hostname)
if [ -z "${OMPI_COMM_WORLD_RANK:-}" ]; then node=${SLURMD_NODENAME:-$node}; fi # mpirun hands on its own node's
me="rank ${PMIX_RANK:-${PMI_RANK:-?}} on $node"
if [ "${SCAFFE_SHOW_BINDING:-0}" != 0 ]; then
    echo "$me: cores $(taskset -cp $$ | sed 's/.*: //'), GPUs ${CUDA_VISIBLE_DEVICES:-none}" >&2
fi
mapfile -t signal_names < <(kill -l {1..31}) # before: SLURM ends the step as soon as a rank dies, and what comes after
exec 3>&2 2>/dev/null                        # that should be one write: not two processes, nor bash's own word first
trap : HUP INT TERM USR1 USR2 # these are for the command, and come to the whole process group
"$@" 2>&3 3>&-
status=$?
if [ "$status" -gt 128 ]; then
    echo "$me was killed by signal $((status - 128)) (SIG${signal_names[status - 129]:-?})" >&3
    # where ranks may be lost, the launcher tells the others of one that a signal ended, not of one that exits
    if [ -n "${OMPI_MCA_mpi_ft_enable:-}" ]; then trap - HUP INT TERM USR1 USR2 && kill -s $((status - 128)) $$; fi
fi
exit "$status"
