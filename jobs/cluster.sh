#!/bin/bash
# An emulated cluster on one machine: runs a command under mpirun over N nodes, each with its own network stack,
# host name and shared memory, joined by a bridge whose ports are shaped in both directions.
#
#   jobs/cluster.sh N RATE [mpirun options] -- command ...
#   jobs/cluster.sh 8 1gbit -- python -m scaffe bench reduce -a mpi,C -m 65536:67108864
#
# RATE is tc's (1gbit, 200mbit) or "none". From the environment: RANKS ranks a node (1), DELAY of each port (50us, where
# the kernel has netem), MPIRUN (mpirun: Open MPI's or MPICH's), SHM=shared: nodes share the machine's shared memory, as
# NVIDIA's MPS needs it (Open MPI and scaffe tell nodes apart by their names). Needs root, iproute2 and util-linux.
set -euo pipefail

SUBNET=10.89.0
SELF=$(readlink -f "$0")

node_name() { echo "${CLUSTER_ID}n$1"; }

shape() { # NAMESPACE DEVICE: what leaves the device is limited to RATE, and late by DELAY
    local parent=root
    if [ -n "${DELAY:-}" ]; then
        tc -n "$1" qdisc add dev "$2" root handle 1: netem delay "$DELAY" limit 20000 ||
            { echo "cluster: this kernel has no netem, so no DELAY" >&2; return 1; }
        parent="parent 1:"
    fi
    # shellcheck disable=SC2086
    [ "$RATE" = none ] || tc -n "$1" qdisc add dev "$2" $parent tbf rate "$RATE" burst 128kb limit 2mb
}

build() {
    local switch=${CLUSTER_ID}s i
    ip netns add "$switch"
    ip -n "$switch" link add bridge type bridge
    ip -n "$switch" link set bridge up
    for ((i = 0; i < N; i++)); do
        local node; node=$(node_name "$i")
        ip netns add "$node"
        ip link add name "port$i" netns "$switch" type veth peer name eth0 netns "$node"
        ip -n "$switch" link set "port$i" master bridge up
        ip -n "$node" addr add "$SUBNET.$((i + 1))/24" dev eth0
        ip -n "$node" link set lo up
        ip -n "$node" link set eth0 up
        shape "$node" eth0
        shape "$switch" "port$i"
    done
}

tear_down() { # a launcher that is asked to end waits for daemons that have ended before it: it is made to
    local space signal spaces
    spaces=$(ip netns list | awk '{print $1}' | grep "^${CLUSTER_ID}[ns]" || true)
    for signal in TERM KILL; do
        for space in $spaces; do ip netns pids "$space" | xargs -r kill "-$signal" 2>/dev/null || true; done
        [ -z "$(for space in $spaces; do ip netns pids "$space"; done)" ] || sleep 1
    done
    for space in $spaces; do ip netns del "$space" || true; done
}

enter() { # NODE COMMAND...: run on a node, under its own host name and, unless they share it, /dev/shm
    local number=$1 ipc=--ipc; shift
    [ "${SHM:-}" != shared ] || ipc=
    # shellcheck disable=SC2016,SC2086
    exec ip netns exec "$(node_name "$number")" unshare --uts $ipc --mount bash -c '
        hostname "node$1"; shift
        [ "${SHM:-}" = shared ] || mount -t tmpfs tmpfs /dev/shm
        mount --bind "$HOSTS" /etc/hosts
        exec "$@"' enter "$number" "$@"
}

agent() { # [ssh options] HOST COMMAND...: stands in for ssh
    while [[ $1 == -* ]]; do
        case $1 in -[lpo]) shift 2 ;; *) shift ;; esac
    done
    local host=${1##*@}; shift
    case $host in
        node*) host=${host#node} ;;
        "$SUBNET".*) host=$((${host##*.} - 1)) ;;
        *) echo "cluster: no node is called $host" >&2; exit 1 ;;
    esac
    enter "$host" bash -c "$*"
}

launch() { # OPTIONS... -- COMMAND...: mpirun, started on node 0
    local options=() hosts="" i
    while [ "$1" != -- ]; do options+=("$1"); shift; done
    shift
    for ((i = 0; i < N; i++)); do hosts+="${hosts:+,}node$i:$RANKS"; done
    if "$MPIRUN" --version 2>&1 | grep -qi "open mpi\|prte"; then
        (enter 0 "$MPIRUN" --prtemca plm_ssh_agent "$AGENT" --prtemca prte_if_include "$SUBNET.0/24" \
            --mca btl_tcp_if_include "$SUBNET.0/24" --mca btl tcp,sm,self --mca pml ob1 --mca mpi_yield_when_idle 1 \
            --host "$hosts" --map-by "ppr:$RANKS:node:oversubscribe" --bind-to none -x PATH -x CLUSTER_COMMAND \
            ${PYTHONPATH:+-x PYTHONPATH} "${options[@]}" "$@")
    else
        (enter 0 "$MPIRUN" -launcher ssh -launcher-exec "$AGENT" -hosts "$hosts" -n $((N * RANKS)) "${options[@]}" "$@")
    fi
}

if [ "${1:-}" = agent ]; then shift; agent "$@"; fi
[ $# -ge 4 ] || { sed -n '5,6p' "$SELF" >&2; exit 2; }
export CLUSTER_COMMAND="${RANKS:+RANKS=$RANKS }jobs/cluster.sh $1 $2" # benchmarks keep it
N=$1 RATE=$2 RANKS=${RANKS:-1} MPIRUN=$(command -v "${MPIRUN:-mpirun}")
export CLUSTER_ID=c$$ SUBNET OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_osc=^ucx
AGENT=$(mktemp) HOSTS=$(mktemp)
export HOSTS
trap 'tear_down; rm -f "$AGENT" "$HOSTS"' EXIT
printf '#!/bin/bash\nCLUSTER_ID=%s HOSTS=%s exec %q agent "$@"\n' "$CLUSTER_ID" "$HOSTS" "$SELF" >"$AGENT"
{ echo 127.0.0.1 localhost; for ((i = 0; i < 64; i++)); do echo "$SUBNET.$((i + 1)) node$i"; done; } >"$HOSTS"
chmod +x "$AGENT"
build
shift 2
launch "$@"
