#!/bin/sh
# Measures gradmesh's all-reduce beside Open MPI, MPICH, Gloo and PyTorch on this machine, interleaved: in each
# repeat every system runs once, all sizes, one system at a time; every other repeat in reverse order.
#
#   sh bench/peers.sh [options]
#     --sets LIST      of: tcp (loopback TCP, all as they come), cc (the same in a namespace whose congestion
#                      control is --cc), shm (shared memory where a system has it), net (4 namespaces with
#                      links of --rates); default tcp,shm
#     --repeats R      default 5
#     --worlds LIST    default 2,3,4 (net: the last of them)
#     --sizes LIST     bytes, with K and M; default 4,1K,64K,814120,3256320,4M,25M,100M
#     --net-sizes LIST default 814120,3256320,25M
#     --systems LIST   instead of all that belong to a set
#     --rates LIST     default 1gbit,10gbit
#     --cc NAME        default reno
#     --budget S       seconds of iterations for one size; default 0.15
#     --near NS        only while a cache line takes less than that from one core to the other
#                      (bench/peers/cores_apart.c): a host may move a virtual machine's cores apart
#     --out DIR        default bench/results; SET.jsonl has the raw records, summary.md the tables
#     --readme FILE    puts the short table between <!-- peers:begin --> and <!-- peers:end --> in FILE
#     --append         adds to what is in --out instead of beginning anew: sets, worlds and systems can so be
#                      measured in parts, and repeats one by one
#     --summary        only make the tables again from what is in --out
#
# It installs what is missing by apt-get when it may; a system that cannot be had is left out, and said. cc and net
# need root. BUILD: where gradmesh is built (default build); PYTHON: a python3 with torch (default /usr/bin/python3).
set -u
cd "$(dirname "$0")/.." || exit 1
build=${BUILD:-build} python=${PYTHON:-/usr/bin/python3}
sets=tcp,shm repeats=5 worlds=2,3,4 sizes=4,1K,64K,814120,3256320,4M,25M,100M systems='' budget=0.15
net_sizes=814120,3256320,25M rates=1gbit,10gbit cc=reno out=bench/results readme='' summary_only='' append='' near=''

usage() {
    echo "bench/peers.sh: $1" >&2
    exit 2
}
while [ $# -gt 0 ]; do
    case $1 in
    --summary) summary_only=yes; shift; continue ;;
    --append) append=yes; shift; continue ;;
    --help | -h) sed -n '2,/^set -u/p' "$0" | sed -n 's/^# \{0,1\}//p'; exit 0 ;;
    esac
    [ $# -ge 2 ] || usage "unknown option, or no value after $1"
    case $1 in
    --sets) sets=$2 ;;
    --repeats) repeats=$2 ;;
    --worlds) worlds=$2 ;;
    --sizes) sizes=$2 ;;
    --net-sizes) net_sizes=$2 ;;
    --systems) systems=$2 ;;
    --rates) rates=$2 ;;
    --cc) cc=$2 ;;
    --budget) budget=$2 ;;
    --near) near=$2 ;;
    --out) out=$2 ;;
    --readme) readme=$2 ;;
    *) usage "unknown option $1" ;;
    esac
    shift 2
done
words() { echo "$1" | tr ',' ' '; }
in_bytes() { # 4,1K,25M as words
    words "$1" | awk '{ for (i = 1; i <= NF; i++) {
        f = 1
        if ($i ~ /K$/) f = 1024
        if ($i ~ /M$/) f = 1048576
        if ($i ~ /G$/) f = 1073741824
        printf("%s%.0f", (i > 1) ? " " : "", $i * f) } print "" }'
}
sizes=$(in_bytes "$sizes") net_sizes=$(in_bytes "$net_sizes") worlds=$(words "$worlds")
log=$out/stderr.log
drivers=$build/peers
export BENCH_BUDGET="$budget" OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 OMPI_MCA_rmaps_base_oversubscribe=1

# ---- what is needed ------------------------------------------------------------------------------

have() { command -v "$1" >/dev/null 2>&1; }
has_torch() { "$python" -c 'import torch' >/dev/null 2>&1; }
has_gloo() { echo '#include <gloo/allreduce.h>' | c++ -std=c++14 -fsyntax-only -x c++ - >/dev/null 2>&1; }

install() {
    missing=
    have mpicc.openmpi && have mpirun.openmpi || missing="$missing libopenmpi-dev openmpi-bin"
    have mpicc.mpich && have mpiexec.mpich || missing="$missing libmpich-dev mpich"
    have c++ || missing="$missing g++"
    have iperf3 || missing="$missing iperf3"
    have ip && have tc || missing="$missing iproute2"
    has_gloo || missing="$missing libgloo-dev"
    has_torch || missing="$missing python3-torch"
    [ -z "$missing" ] && return
    echo "installing:$missing" >&2
    if ! have apt-get || [ "$(id -u)" != 0 ]; then
        echo "bench/peers.sh: these packages are not here (Debian's names):$missing; what needs them is left out" >&2
        return
    fi
    # shellcheck disable=SC2086
    { apt-get update -qq; DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing; } \
        >>"$log" 2>&1 || echo "bench/peers.sh: apt-get failed, see $log; what is missing is left out" >&2
}
compile() { # result, source, compiler and options: when the source is newer
    target=$1 source=$2
    shift 2
    [ -n "$(find "$target" -newer "$source" -newer bench/peers/driver.h 2>/dev/null)" ] && return
    have "$1" || return
    # shellcheck disable=SC2086
    "$@" -o "$target.new" "$source" ${libs:-} >>"$log" 2>&1 && mv "$target.new" "$target"
}
build_drivers() {
    mkdir -p "$drivers"
    rm -f "$drivers/gradmesh" # it depends on the library, which may be newer
    lib=$(cd "$build" && pwd)
    libs=-lpthread compile "$drivers/cores_apart" bench/peers/cores_apart.c cc -std=gnu11 -O1
    if [ -n "$near" ] && [ ! -x "$drivers/cores_apart" ]; then
        echo "bench/peers.sh: --near needs bench/peers/cores_apart.c, which could not be compiled: see $log" >&2
        exit 1
    fi
    libs="-L$lib -lgradmesh -Wl,-rpath,$lib" \
        compile "$drivers/gradmesh" bench/peers/gradmesh_allreduce.c cc -std=gnu11 -O2 -Iinclude
    compile "$drivers/mpi.openmpi" bench/peers/mpi_allreduce.c mpicc.openmpi -O2
    compile "$drivers/mpi.mpich" bench/peers/mpi_allreduce.c mpicc.mpich -O2
    libs="-lgloo -lpthread" compile "$drivers/gloo" bench/peers/gloo_allreduce.cc c++ -std=c++14 -O2
}
is_there() { # system
    case $1 in
    gradmesh*) [ -x "$drivers/gradmesh" ] ;;
    openmpi*) [ -x "$drivers/mpi.openmpi" ] ;;
    mpich*) [ -x "$drivers/mpi.mpich" ] ;;
    gloo*) [ -x "$drivers/gloo" ] ;;
    torch) has_torch ;;
    iperf3) have iperf3 ;;
    *) false ;;
    esac
}

# ---- one system, one world, all sizes: JSON lines on standard output -------------------------------

inside=  # a command prefix: nothing, or "ip netns exec NAME"

# The results[] of gradmesh's one object, a line each.
lines_of() { sed -n 's/.*"results":\[\(.*\)\]}$/\1/p' | awk '{ gsub(/},{/, "}\n{"); print }'; }
commas() { echo "$*" | tr ' ' ','; }

# Gloo's synchronous pairs end in "Write timeout" when both sides have a write of 100 MiB that blocks.
below_64m() { for s in "$@"; do [ "$s" -ge 67108864 ] || printf '%s ' "$s"; done; }

openmpi() { # arguments of mpirun and of the driver
    $inside timeout -k 5 120 mpirun.openmpi --allow-run-as-root --oversubscribe \
        --mca oob_tcp_if_include lo "$@"
}
on_tcp="--mca pml ob1 --mca btl tcp,self --mca btl_tcp_if_include lo"
launch() { # world, command
    world=$1
    shift
    $inside timeout -k 5 120 "$build/gradmesh" run --no-prefix -n "$world" -- "$@"
}
gloo() { # world, algorithm, sizes
    GLOO_STORE=$(mktemp -d) || return
    export GLOO_STORE
    world=$1
    shift
    launch "$world" "$drivers/gloo" "$@"
    rm -rf "$GLOO_STORE"
}
# shellcheck disable=SC2086,SC2046
run_system() { # system, world, sizes
    system=$1 n=$2
    shift 2
    case $system in
    gradmesh) launch "$n" env GRADMESH_TRANSPORT=tcp "$drivers/gradmesh" "$@" ;;
    gradmesh-shm) launch "$n" env GRADMESH_TRANSPORT=shm "$drivers/gradmesh" "$@" ;;
    gradmesh-auto) launch "$n" env GRADMESH_TRANSPORT=auto "$drivers/gradmesh" "$@" ;;
    openmpi) openmpi $on_tcp -n "$n" "$drivers/mpi.openmpi" "$@" ;;
    openmpi-ring) # its own ring instead of its own choice
        openmpi $on_tcp --mca coll_tuned_use_dynamic_rules 1 --mca coll_tuned_allreduce_algorithm 4 \
            -n "$n" "$drivers/mpi.openmpi" "$@" ;;
    openmpi-shm) openmpi -n "$n" "$drivers/mpi.openmpi" "$@" ;;
    mpich) # its MPI_Finalize may hang over TCP with more ranks than cores
        BENCH_EXIT=1 UCX_TLS=tcp,self UCX_NET_DEVICES=lo MPIR_CVAR_NOLOCAL=1 $inside timeout -k 5 120 \
            mpiexec.mpich -n "$n" "$drivers/mpi.mpich" "$@" ;;
    mpich-shm) BENCH_EXIT=1 $inside timeout -k 5 120 mpiexec.mpich -n "$n" "$drivers/mpi.mpich" "$@" ;;
    gloo-*-sync | gloo-*-busy) gloo "$n" "${system#gloo-}" $(below_64m "$@") ;;
    gloo-*) gloo "$n" "${system#gloo-}" "$@" ;;
    torch) GLOO_SOCKET_IFNAME=lo launch "$n" "$python" bench/peers/torch_allreduce.py "$@" ;;
    esac
}

# The same over namespaces, where nothing is on loopback. An MPI there takes each namespace for a machine with two
# cores of its own, and would poll without yielding to the ranks it shares them with.
# shellcheck disable=SC2086
run_system_net() { # system, world, rate, sizes
    system=$1 n=$2 rate=$3
    shift 3
    net="timeout -k 5 180 sh bench/peers/netns.sh"
    case $system in
    gradmesh) $net "$n" "$rate" "$build/gradmesh" bench all_reduce --sizes "$(commas "$@")" --in-place \
        --transport tcp --budget "$budget" --json | lines_of ;;
    gradmesh-*) $net "$n" "$rate" "$build/gradmesh" bench all_reduce --sizes "$(commas "$@")" --in-place \
        --transport tcp --wire "${system#gradmesh-}" --budget "$budget" --json | lines_of ;;
    openmpi*)
        more=
        [ "$system" = openmpi-ring ] &&
            more="--mca coll_tuned_use_dynamic_rules 1 --mca coll_tuned_allreduce_algorithm 4"
        $net --first "$n" "$rate" mpirun.openmpi --allow-run-as-root --oversubscribe -n "$n" \
            --host "$(seq -s, -f 10.77.0.%g 1 "$n")" --mca plm rsh \
            --mca plm_rsh_agent "sh $PWD/bench/peers/netns.sh --agent" --bind-to none \
            --mca mpi_yield_when_idle 1 --mca oob_tcp_if_include eth0 --mca pml ob1 --mca btl tcp,self \
            --mca btl_tcp_if_include eth0 $more -x BENCH_BUDGET "$drivers/mpi.openmpi" "$@" ;;
    gloo-*)
        GLOO_STORE=$(mktemp -d) || return
        export GLOO_STORE
        GLOO_IFACE=eth0 $net "$n" "$rate" "$drivers/gloo" "${system#gloo-}" "$@"
        rm -rf "$GLOO_STORE" ;;
    torch) GLOO_SOCKET_IFNAME=eth0 $net "$n" "$rate" "$python" bench/peers/torch_allreduce.py "$@" ;;
    iperf3) # shellcheck disable=SC2016
        $net 2 "$rate" sh -c '
            if [ "$RANK" = 1 ]; then exec timeout 30 iperf3 -s -1 >/dev/null; fi
            for attempt in 1 2 3 4 5 6 7 8 9 10; do
                sleep 0.3
                iperf3 -c 10.77.0.2 -t 2 -J && exit
            done' |
            awk '/"sum_received"/ { here = 1 } here && /"bits_per_second"/ { gsub(/[^0-9.e+]/, "", $2); v = $2; here = 0 }
                 END { if (v) printf "{\"bits_per_second\":%.0f}\n", v }' ;;
    esac
}

# ---- a set: repeats, worlds, systems ---------------------------------------------------------------

systems_of() { # set, world
    if [ -n "$systems" ]; then
        words "$systems"
        return
    fi
    case $1 in
    tcp)
        list="gradmesh openmpi mpich gloo-ring gloo-bcube gloo-ringchunked gloo-hd gloo-hd-sync"
        [ "$2" -gt 2 ] || list="$list gloo-hd-busy" # its busy polling wants a core for each rank
        echo "$list torch" ;;
    cc)
        list="gradmesh openmpi gloo-ring gloo-ringchunked gloo-hd torch"
        [ "$2" -gt 2 ] || list="$list mpich" # with more ranks than cores it is out of the race, and slow to wait for
        echo "$list" ;;
    shm) echo "gradmesh-shm openmpi-shm mpich-shm" ;;
    net) echo "iperf3 gradmesh gloo-ring gloo-ringchunked torch openmpi" ;;
    esac
}
in_order() { # repeat, words: reversed in every other repeat
    turn=$1
    shift
    if [ $((turn % 2)) = 1 ]; then echo "$*"; else echo "$*" | awk '{ for (i = NF; i; i--) printf "%s ", $i }'; fi
}
record() { # set, repeat, system: puts them in front of each line; says when there is none
    tag="{\"set\":\"$1\",\"run\":$2,\"system\":\"$3\","
    awk -v tag="$tag" '/^{/ { print tag substr($0, 2); n++ } END { exit !n }' >>"$out/$1.jsonl" ||
        echo "  $3: no result, see $log" >&2
}
say() { printf '%s  %s\n' "$(date +%T)" "$*" >&2; }

# With --near: a command's output, of a time in which the cores were near to each other from begin to end; the third try counts
# however it was.
when_near() { # command
    if [ -z "$near" ]; then
        "$@"
        return
    fi
    for attempt in 1 2 3; do
        "$drivers/cores_apart" "$near" 90 >/dev/null
        "$@" >"$out/near.new"
        apart=$("$drivers/cores_apart" "$near") && break
        say "  the cores were apart ($apart ns a line), once more"
    done
    cat "$out/near.new"
    rm -f "$out/near.new"
}

run_round() { # set, repeat, label in the records
    for n in $worlds; do
        # shellcheck disable=SC2046
        for system in $(in_order "$2" $(systems_of "$1" "$n")); do
            is_there "$system" || continue
            say "$3, repeat $2 of $repeats: $system, $n ranks"
            # shellcheck disable=SC2086
            when_near run_system "$system" "$n" $sizes 2>>"$log" | record "$3" "$2" "$system"
        done
    done
    [ "$1" = tcp ] || return
    say "$3, repeat $2 of $repeats: duplex limit"
    "$build/gradmesh" bench limits duplex --tcp-only --repeats 1 --json 2>>"$log" | lines_of | record "$3" "$2" limits
}
# The highest number of a repeat that is recorded with --append for what is measured now; others start beside it.
count_done() { # set
    done_repeats=0
    [ -n "$append" ] || return
    for n in $worlds; do
        # shellcheck disable=SC2046
        for system in $(systems_of "$1" "$n"); do
            last=$(cat "$out/$1"*.jsonl 2>/dev/null | grep "\"system\":\"$system\"" | grep "\"world_size\":$n[,}]" |
                sed -n 's/.*"run":\([0-9]*\).*/\1/p' | sort -n | tail -n 1)
            [ "${last:-0}" -le "$done_repeats" ] || done_repeats=$last
        done
    done
}
run_net_round() { # repeat
    for n in $worlds; do :; done # the last one
    for rate in $(words "$rates"); do
        # shellcheck disable=SC2046
        for system in $(in_order "$1" $(systems_of net "$n")); do
            is_there "$system" || continue
            say "net-$rate, repeat $1 of $repeats: $system, $n ranks"
            # shellcheck disable=SC2086
            when_near run_system_net "$system" "$n" "$rate" $net_sizes 2>>"$log" | record "net-$rate" "$1" "$system"
        done
    done
}
space=gm-cc-$$
leave_space() { [ -z "$inside" ] || ip netns del "$space" 2>/dev/null; inside=; }
trap leave_space EXIT
trap 'exit 143' INT TERM

run_set() {
    case $append$1 in
    net) rm -f "$out"/net-*.jsonl ;;
    yes*) ;;
    *) rm -f "$out/$1.jsonl" ;;
    esac
    count_done "$1"
    if [ "$1" = cc ]; then
        inside="ip netns exec $space"
        if ! { ip netns add "$space" && ip -n "$space" link set lo up &&
            $inside sysctl -qw net.ipv4.tcp_congestion_control="$cc"; } 2>>"$log"; then
            say "cc: cannot make a namespace with $cc (is this root?); left out"
            leave_space
            return
        fi
    fi
    for repeat in $(seq $((done_repeats + 1)) $((done_repeats + repeats))); do
        if [ "$1" = net ]; then run_net_round "$repeat"; else run_round "$1" "$repeat" "$1"; fi
    done
    leave_space
}

# ---- the machine, and the tables -------------------------------------------------------------------

version_of() { dpkg-query -W -f '${Version}' "$1" 2>/dev/null || echo unknown; }
describe_machine() {
    cpu=$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)
    printf '{"kernel":"%s","cpu":"%s","cores":%s,"memory_kB":%s,"congestion_control":"%s","gradmesh":"%s"' \
        "$(uname -sr)" "$cpu" "$(getconf _NPROCESSORS_ONLN)" \
        "$(sed -n 's/^MemTotal: *\([0-9]*\).*/\1/p' /proc/meminfo)" \
        "$(cat /proc/sys/net/ipv4/tcp_congestion_control 2>/dev/null)" \
        "$("$build/gradmesh" --version | sed 's/^gradmesh //') $(git rev-parse --short HEAD 2>/dev/null)"
    for package in openmpi-bin mpich libgloo-dev python3-torch iperf3; do
        printf ',"%s":"%s"' "$package" "$(version_of $package)"
    done
    echo '}'
}
tables() { # short or full
    files=
    for set in tcp cc shm; do [ ! -s "$out/$set.jsonl" ] || files="$files $out/$set.jsonl"; done
    for file in "$out"/net-*.jsonl; do [ ! -s "$file" ] || files="$files $file"; done
    # shellcheck disable=SC2086
    [ -z "$files" ] || awk -v part="$1" -f bench/peers/summary.awk $files
}
summarize() {
    {
        echo "# gradmesh beside Open MPI, MPICH, Gloo and PyTorch"
        echo
        if [ -f "$out/machine.json" ]; then
            echo '```'
            tr -d '{}"' <"$out/machine.json" | tr ',' '\n' | sed 's/:/: /'
            echo '```'
            echo
        fi
        tables short
        tables full
    } >"$out/summary.md.new" && mv "$out/summary.md.new" "$out/summary.md"
    say "tables: $out/summary.md"
    [ -n "$readme" ] || return 0
    if ! { grep -q '<!-- peers:begin -->' "$readme" && grep -q '<!-- peers:end -->' "$readme"; }; then
        usage "$readme has no <!-- peers:begin --> and <!-- peers:end -->"
    fi
    tables short >"$out/short.new"
    awk -v table="$out/short.new" '
        /<!-- peers:end -->/ { inside = 0 }
        !inside { print }
        /<!-- peers:begin -->/ { inside = 1; print ""; while ((getline line < table) > 0) print line }' \
        "$readme" >"$readme.new" && cat "$readme.new" >"$readme"
    rm -f "$readme.new" "$out/short.new"
}

for set in $(words "$sets"); do
    case $set in tcp | cc | shm | net) ;; *) usage "there is no set $set: tcp, cc, shm, net" ;; esac
done
mkdir -p "$out" || exit 1
if [ -z "$summary_only" ]; then
    : >"$log"
    [ -x "$build/gradmesh" ] || usage "$build/gradmesh is not there: make, or set BUILD"
    install
    build_drivers
    describe_machine >"$out/machine.json"
    for set in $(words "$sets"); do run_set "$set"; done
fi
summarize
