#!/bin/bash
# mpirun whose signals reach the ranks. Open MPI's own kills them a quarter of a second after Ctrl-C, SIGTERM or SIGHUP,
# too soon for a snapshot, and lets nobody change that.
#
#   jobs/mpirun.sh -np 4 python -m scaffe train -solver solver.prototxt
#
# Ctrl-C does what -sigint_effect says, a hang-up what -sighup_effect says, SIGTERM and SIGUSR1 snapshot and stop. A second
# Ctrl-C within 5 s of the first ends the ranks at once. MPIRUN names the mpirun (the one on PATH).
set -euo pipefail
set -m # mpirun in a process group of its own: a terminal's Ctrl-C comes here alone

"${MPIRUN:-mpirun}" "$@" </dev/null &
launcher=$!
last=-5 is_interrupted=0

hand_on() { # SIGNAL: one that mpirun hands on to the ranks
    is_interrupted=1
    kill -s "$1" "$launcher" 2>/dev/null || true
}
on_interrupt() {
    if ((SECONDS - last < 5)); then hand_on INT; else hand_on ALRM; fi
    last=$SECONDS
}
trap on_interrupt INT
trap 'hand_on USR2' HUP
trap 'hand_on USR1' TERM USR1

while :; do # a signal ends bash's wait, not mpirun
    is_interrupted=0
    wait "$launcher" && status=0 || status=$?
    ((is_interrupted)) || exit "$status"
done
