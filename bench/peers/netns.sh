#!/bin/sh
# Several machines on one: N network namespaces joined by a bridge, each link limited to RATE both ways by a token
# bucket. Needs root, veth, bridge and sch_tbf.
#
#   netns.sh N RATE CMD...          runs CMD in each, with RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT set
#   netns.sh --first N RATE CMD...  runs CMD in the first one only (mpirun, which starts the others by the agent)
#   netns.sh --agent HOST CMD...    mpirun's remote shell: runs CMD in the namespace with that address
#
# FAR_MS=20 in the environment: the last rank's cable takes so long, each way (RELAY: build/relay, by `make build/relay`).
#
# RATE as tc writes it (1gbit, 100mbit), or none. Each namespace has eth0 with 10.77.0.(rank + 1) and, so that an
# MPI takes it for a machine, a host name of its own. The bridge has no way out.
set -u

if [ "${1:-}" = --agent ]; then
    shift
    while :; do case $1 in -*) shift ;; *) break ;; esac; done
    rank=$((${1##*.} - 1))
    shift
    exec ip netns exec "$NETNS_ID-$rank" unshare -u sh -c "hostname node$rank; $*"
fi
first_only=
if [ "$1" = --first ]; then first_only=yes; shift; fi
n=$1 rate=$2
shift 2
id=gm$$
export NETNS_ID=$id WORLD_SIZE="$n" MASTER_ADDR=10.77.0.1 MASTER_PORT=29500
export GRADMESH_INSECURE=1 # nobody else is on this bridge

# A bucket must hold what arrives between two ticks, or the rate is not reached.
case $rate in
*gbit) gbit=${rate%gbit}; burst=$((gbit < 4 ? 128 : 32 * gbit))kb ;;
*) burst=32kb ;;
esac

relay=
pids=
# shellcheck disable=SC2317 # called by the trap
clean_up() {
    trap '' INT TERM
    # shellcheck disable=SC2086
    [ -z "$pids" ] || kill $pids 2>/dev/null
    [ -z "$relay" ] || kill "$relay" 2>/dev/null
    for space in "$id-bridge" $(seq -f "$id-%g" 0 $((n - 1))); do ip netns del "$space" 2>/dev/null; done
}
trap clean_up EXIT
trap 'exit 143' INT TERM

limit() { # namespace, interface
    [ "$rate" = none ] || tc -n "$1" qdisc add dev "$2" root tbf rate "$rate" burst "$burst" latency 50ms
}
cable() { # rank
    if [ -z "${FAR_MS:-}" ] || [ "$1" != $((n - 1)) ]; then
        ip -n "$id-bridge" link add "v$1" type veth peer name eth0 netns "$id-$1"
        return
    fi
    ip netns exec "$id-bridge" "${RELAY:-build/relay}" "v$1" far "$FAR_MS" >/dev/null &
    relay=$!
    tries=0
    until ip -n "$id-bridge" link set far netns "$id-$1" name eth0 2>/dev/null; do # the device is there when the relay is ready
        tries=$((tries + 1))
        [ "$tries" -lt 100 ] && sleep 0.05 || return 1
    done
}
set_up() {
    ip netns add "$id-bridge" && ip -n "$id-bridge" link add br0 type bridge &&
        ip -n "$id-bridge" link set br0 up || return 1
    for r in $(seq 0 $((n - 1))); do
        ip netns add "$id-$r" &&
            cable "$r" &&
            ip -n "$id-bridge" link set "v$r" master br0 up &&
            ip -n "$id-$r" addr add "10.77.0.$((r + 1))/24" dev eth0 &&
            ip -n "$id-$r" link set lo up && ip -n "$id-$r" link set eth0 up &&
            limit "$id-$r" eth0 && limit "$id-bridge" "v$r" || return 1
    done
}
# shellcheck disable=SC2016
enter='hostname node$RANK; exec "$@"'

set_up || { echo "netns.sh: cannot make the namespaces (is this root, with veth, bridge and sch_tbf?)" >&2; exit 1; }
if [ -n "$first_only" ]; then
    RANK=0 ip netns exec "$id-0" unshare -u sh -c "$enter" sh "$@"
    exit
fi
for r in $(seq 0 $((n - 1))); do
    RANK=$r ip netns exec "$id-$r" unshare -u sh -c "$enter" sh "$@" &
    pids="$pids $!"
done
status=0
for pid in $pids; do wait "$pid" || status=1; done
pids=
exit $status
