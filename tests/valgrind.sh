#!/bin/sh
# Runs tests under valgrind (memcheck): an access that is wrong, a value that was never set, memory that nobody can reach any
# more is an error, also in forked ranks. Tests take some 20 times as long: their limits are stretched, and one that is not over
# after VALGRIND_LIMIT seconds is ended and counted as not clean. VALGRIND_JOBS says how many run at a time.
#   BUILD=build sh tests/valgrind.sh src/coll/ring_test ... program
# "program" is gradmesh itself: each of its commands once, with the workers that it starts.
set -u
log_dir=$BUILD/log/valgrind
memcheck="valgrind -q --error-exitcode=99 --leak-check=full --show-leak-kinds=definite --errors-for-leak-kinds=definite
    --suppressions=$PWD/tests/valgrind.supp"
export TEST_SLOWNESS=20 TEST_VALGRIND=1 CMOCKA_MESSAGE_OUTPUT=TAP PATH="$BUILD:$PATH"

# verdict NAME STATUS LOG...: a line for the reader, and a file that says that it was not clean.
verdict() {
    name=$1 status=$2
    shift 2
    if [ "$status" = 0 ] && ! grep -qs '^==[0-9]*== [A-Z0-9]' "$@"; then
        echo "clean   $name"
        return
    fi
    echo "$name" >"$log_dir/$(echo "$name" | tr '/ ' __).failed"
    echo "FAILED  $name, status $status: $*"
    grep -h '^==' "$@" | head -n 12
}

run_test() {
    log=$log_dir/$(echo "$1" | tr / _).log
    timeout -k 5 "${VALGRIND_LIMIT:-900}" $memcheck "$BUILD/tests/$1" >"$log" 2>&1
    verdict "$1" $? "$log"
}

# run_command STATUS ARGUMENTS...: gradmesh with them must end so.
run_command() {
    wanted=$1
    shift
    n_commands=$((n_commands + 1))
    logs=$log_dir/program.$n_commands
    timeout -k 5 "${VALGRIND_LIMIT:-900}" $memcheck --trace-children=yes --log-file="$logs.%p" \
        "$BUILD/gradmesh" "$@" >"$logs.out" 2>&1 </dev/null
    status=$?
    [ "$status" = "$wanted" ] && status=0
    verdict "gradmesh $*" "$status" "$logs".*
}

run_program() {
    n_commands=0
    scratch=$(mktemp -d) || exit 1
    trap 'rm -rf "$scratch"' EXIT
    cd "$scratch" || exit 1
    export OPENBLAS_NUM_THREADS=1
    small="--data synthetic:600,100 --layers 784,32,10 --batch 64 --log-every 1"
    run_command 0 --version
    run_command 2 train --batch none
    run_command 0 train -n 2 $small --steps 4 --log a.jsonl --checkpoint saved --trace trace.json --compare-steps 2
    run_command 0 train -n 2 $small --steps 6 --checkpoint saved --resume --transport tcp --encrypt --checksum crc32c --overlap on
    run_command 0 train -n 2 $small --steps 3 --reproducible --log two.jsonl
    run_command 0 train -n 1 $small --steps 3 --reproducible --log one.jsonl
    run_command 0 verify one.jsonl two.jsonl
    run_command 0 eval --checkpoint saved
    run_command 0 predict --checkpoint saved --count 2
    run_command 0 report a.jsonl trace.json -o report.html
    run_command 0 parity -n 2 --steps 3
    run_command 0 bench all_reduce -n 2 --sizes 1K,64K --iters 5
    run_command 0 bench all_reduce -n 2 --sizes 64K --iters 5 --transport tcp --encrypt --wire int8 --trace bench.json
    run_command 0 bench limits copy reduce cipher --repeats 1 --amount 8M
    run_command 0 check -n 2
    run_command 0 status
    run_command 7 run -n 2 -- sh -c 'exit 7'
    run_command 0 plan --flops 50G --bandwidth 1gbit --latency 25us --world 1,2,4,8
    run_command 0 plan --model 64,48,10 --batch 128 --world 1,2 --transport tcp
    run_command 0 plan --simulate 2,16
    run_command 0 scaling --regime light --world 1,2 --repeats 1 --seconds 0.1 --layers 64,48,10 --batch 128
}

case "${1:-}" in
--one)
    if [ "$2" = program ]; then run_program; else run_test "$2"; fi
    exit 0
    ;;
esac

rm -rf "$log_dir"
mkdir -p "$log_dir"
printf '%s\n' "$@" | xargs -n 1 -P "${VALGRIND_JOBS:-$(nproc)}" sh "$0" --one
failed=$(find "$log_dir" -name '*.failed' | wc -l)
echo "$# under valgrind, $failed not clean"
[ "$failed" = 0 ]
