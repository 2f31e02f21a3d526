#!/bin/sh
# Reproducible training, the whole matrix: one hash for 60 steps and one for an epoch of 784-256-10, whatever the number of
# workers, threads, algorithm, transport, wire, placement and build. MNIST where it is, else the drawn digits.
#   make test-reproducible        (REPRODUCIBLE_OUT=FILE: also a line for each run)
. "$(dirname "$0")/../cli/program.sh"
root=$(cd "$(dirname "$0")/../.." && pwd)
golden=$root/tests/golden/reproducible.txt
build=${BUILD:-$root/build}
data=synthetic
[ -f "$root/data/mnist/train-images-idx3-ubyte" ] && data=$root/data/mnist
kind=$(case $data in synthetic) echo synthetic ;; *) echo mnist ;; esac)
out=${REPRODUCIBLE_OUT:-/dev/null}
: >"$out"

field() { sed -n "s/.*\"$1\":\"\{0,1\}\([^\",}]*\).*/\1/p" "$work/out"; }
golden_of() { sed -n "s/^$1 //p" "$golden"; }
job="--data $data --batch 384 --shards 24 --reproducible --json"

# ends NAME HASH WHAT OPTIONS...: a run whose state hash is that.
ends() {
    name=$1 wanted=$(golden_of "$2-$kind-24")
    shift 2
    run "$@"
    echo "$name: $(field state_hash), loss $(field loss), accuracy $(field test_accuracy)" >>"$out"
    check "$name" same "$(field state_hash)" "$wanted"
}

short="$job --steps 60"
for n in 1 2 3 4 5 7 8 16; do ends "60 steps, $n workers" steps60 train -n $n $short; done
for n in 1 2 4; do ends "60 steps, $n workers of 2 threads" steps60 train -n $n $short --threads 2; done
for algo in ring direct tree halving; do
    for transport in tcp shm; do
        for wire in trimmed raw; do
            ends "60 steps, 5 workers, $algo, $transport, $wire" steps60 train -n 5 $short --algo $algo --transport $transport --exact-wire $wire
        done
    done
done
for n in 2 3 7 16; do ends "60 steps, $n workers, placed at random" steps60 train -n $n $short --shard-placement random; done
ends "60 steps, 3 workers, in parts" steps60 train -n 3 $short --accumulate 4

for n in 1 2 3 4 5 7 8 16; do ends "an epoch, $n workers" epoch train -n $n $job --epochs 1; done
run train -n 4 $job --epochs 1 --steps 40 --checkpoint "$work/ck"
ends "an epoch, stopped at 4 workers and resumed at 7" epoch train -n 7 $job --epochs 1 --checkpoint "$work/ck" --resume
for transport in tcp shm; do
    ends "an epoch, 3 workers of 2 threads, $transport, placed at random, raw" epoch train -n 3 $job --epochs 1 --threads 2 --transport $transport --shard-placement random --exact-wire raw
done

# Other builds: each alone, and both mixed with this one in one job.
other() { # FOLDER, variables of make
    folder=$work/$1
    shift
    make -s -C "$root" "BUILD=$folder" "$@" "$folder/gradmesh" >"$work/make" 2>&1 || { tail -n 5 "$work/make"; return 1; }
}
check "a build with -O1" other o1 OPT=-O1
check "a build without vector instructions" other plain "CFLAGS=-g -DGMT_BITS_PLAIN -DGMI_NO_CLONES"
check "a build with -ffast-math" other fast "OPT=-O3 -ffast-math" LDFLAGS=-ffast-math
mixed() { # folders of even ranks and of odd ones
    echo "[ \$((RANK % 2)) = 0 ] && exec $1/gradmesh train $short; exec $2/gradmesh train $short"
}
for b in o1 plain; do
    PATH="$work/$b:$PATH"
    ends "60 steps, 1 worker, $b" steps60 train -n 1 $short
    ends "60 steps, 3 workers, $b" steps60 train -n 3 $short
    PATH=${PATH#*:}
    ends "60 steps, 4 workers, $b and the usual one in turns" steps60 run -n 4 --no-prefix -- sh -c "$(mixed "$work/$b" "$build")"
done
ends "60 steps, 3 workers, o1 and plain in turns" steps60 run -n 3 --no-prefix -- sh -c "$(mixed "$work/o1" "$work/plain")"
run run -n 2 -- sh -c "$(mixed "$build" "$work/fast")"
check "a worker built with -ffast-math is refused" [ "$status" = 1 ]
check "with both results of the self-test" grep -qE 'arithmetic.*[0-9a-f]{16}.*[0-9a-f]{16}' "$work/err"
"$work/fast/gradmesh" train -n 1 $short >"$work/out" 2>"$work/err"
status=$?
check "also when it is alone" [ "$status" = 1 ]
check "in one sentence" [ "$(grep -c 'gradmesh train: ' "$work/err")" = 1 ]
echo "1..$number"
