#!/bin/sh
# What reproducible training costs: the time of a step beside plain float32 training with OpenBLAS and beside
# PyTorch's DDP over gloo, same network (784-256-10), same batch, same optimizer (SGD), two workers of one thread.
#   sh bench/reproducible.sh [--repeats N] [--steps N] [--shards "128 64 32 16"] [--per-worker N] [--no-torch]
# One row for each number of samples in a shard; --per-worker: shards that each worker has (default 1). A time is
# the median over windows of 10 steps, as rank 0 sees them; of interleaved repeats the median is shown, of the
# ratio the range too. --least: the least window and repeat instead, for a machine that others use meanwhile.
# Needs build/gradmesh; python3-torch for the last column.
set -u
build=${BUILD:-build} python=${PYTHON:-/usr/bin/python3}
repeats=3 steps=400 sizes="128 64 32 16" per_worker=1 torch=yes least= data=${BENCH_DATA:-synthetic} workers=2
while [ $# -gt 0 ]; do
    case $1 in
    --repeats) repeats=$2; shift ;;
    --steps) steps=$2; shift ;;
    --shards) sizes=$2; shift ;;
    --per-worker) per_worker=$2; shift ;;
    --no-torch) torch= ;;
    --least) least=yes ;;
    *) echo "bench/reproducible.sh: what is $1? see the head of this file" >&2; exit 2 ;;
    esac
    shift
done
statistic=med_us
[ -z "$least" ] || statistic=min_us
[ -x "$build/gradmesh" ] || { echo "bench/reproducible.sh: $build/gradmesh is not there: make, or set BUILD" >&2; exit 2; }
[ -z "$torch" ] || "$python" -c 'import torch' 2>/dev/null || torch=
# These two, which some environments preset, choose OpenBLAS's kernels: it shall choose them itself.
unset OPENBLAS_CORETYPE OPENBLAS_L2_SIZE
export OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT

# Of sorted numbers the one in the middle; with --least the first.
middle() { awk -v least="$least" '{ v[NR] = $1 } END { print v[least != "" ? 1 : int((NR + 1) / 2)] }'; }

n_shards=$((workers * per_worker))
step_us() { # samples in a shard, further options: one number
    batch=$(($1 * n_shards))
    shift
    timeout 120 "$build/gradmesh" train -n $workers --data "$data" --batch $batch --steps "$steps" --optimizer sgd \
        --log "$work/log" --log-every 10 --json "$@" >/dev/null 2>>"$work/err" || { cat "$work/err" >&2; exit 1; }
    sed -n 's/.*"event":"step".*"samples_per_s":\([0-9.]*\).*/\1/p' "$work/log" | tail -n +3 |
        awk -v batch=$batch '{ print 1e6 * batch / $1 }' | sort -n | middle
}
torch_us() { # samples in a shard
    TORCH_BATCHES=$(($1 * n_shards)) TORCH_MODELS=A TORCH_THREADS=1 GLOO_SOCKET_IFNAME=lo BENCH_BUDGET=0.7 \
        timeout 120 "$build/gradmesh" run --no-prefix -n $workers -- "$python" bench/peers/torch_ddp_mlp.py 2>>"$work/err" |
        sed -n "s/.*\"$statistic\": \([0-9.]*\).*/\1/p"
}

repeat=1
while [ $repeat -le "$repeats" ]; do
    for size in $sizes; do
        plain=$(step_us "$size") exact=$(step_us "$size" --reproducible --shards $n_shards) other=-
        [ -z "$torch" ] || other=$(torch_us "$size")
        echo "$size $plain $exact ${other:--}" >>"$work/times"
        echo "  repeat $repeat, $size samples: plain $plain us, reproducible $exact us, PyTorch $other us" >&2
    done
    repeat=$((repeat + 1))
done
echo "784-256-10, SGD, $workers workers of one thread, $n_shards shards; $repeats repeats of $steps steps, data $data"
echo "samples/shard   batch   plain us   reproducible us   ratio (range)        PyTorch DDP us   reproducible/PyTorch"
for size in $sizes; do
    awk -v size="$size" '$1 == size { print $2, $3, $3 / $2, $4 }' "$work/times" >"$work/of"
    median() { awk -v c="$1" '{ print $c }' "$work/of" | sort -n | middle; }
    low=$(awk '{ print $3 }' "$work/of" | sort -n | head -n 1) high=$(awk '{ print $3 }' "$work/of" | sort -n | tail -n 1)
    ratio=$(median 3)
    [ -z "$least" ] || ratio=$(echo "$(median 1) $(median 2)" | awk '{ print $2 / $1 }')
    echo "$size $((size * n_shards)) $(median 1) $(median 2) $ratio $low $high $(median 4)" |
        awk '{ printf "%13d %7d %10.0f %17.0f   %5.3f (%.3f-%.3f)", $1, $2, $3, $4, $5, $6, $7
               if ($8 + 0 > 0) printf " %18.0f %17.2f", $8, $4 / $8
               printf "\n" }'
done
