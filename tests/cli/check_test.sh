#!/bin/sh
# gradmesh check: every pair is tried and measured, on this host and by workers started by hand; what is blocked is said.
. "$(dirname "$0")/tap.sh"

capture gradmesh check -n 3
check "three ranks of this host can talk" is "$status" 0
check "the verdict says so" contains "$out" "all 3 pairs of 3 ranks can talk"
check "each pair has a line" [ "$(grep -c -E '^ +[12] -> [01] +yes +(shm|tcp) +[0-9.]+ +[0-9]+ +[0-9.]+  127.0.0.1:[0-9]+ on lo$' "$out")" = 3 ]
check "nobody is missed" lacks "$err" "warning"

capture env GRADMESH_TRANSPORT=tcp gradmesh check -n 2 --json
check "as JSON: one object" matches "$(cat "$out")" '{"world_size":2,"all_can_talk":true,"pairs":\[{"caller":1,"listener":0,.*"transport":"tcp".*}\]}'

# ---- started by hand
port=$((20000 + $$ % 10000))
by_hand() { # RANK SIZE ARGS...
    rank=$1 size=$2
    shift 2
    env RANK="$rank" WORLD_SIZE="$size" MASTER_ADDR=127.0.0.1 MASTER_PORT=$port gradmesh check "$@"
}
by_hand 1 2 >"$scratch/1.out" 2>"$scratch/1.err" </dev/null &
capture by_hand 0 2
wait $!
check "two that were started by hand can talk" is "$status" 0
check "only rank 0 prints the table" [ ! -s "$scratch/1.out" ]

# ---- one does not come
by_hand 1 3 --timeout 1 >"$scratch/1.out" 2>"$scratch/1.err" </dev/null &
capture by_hand 0 3 --timeout 1
wait $!
check "a rank that does not come is status 1" is "$status" 1
check "the others have been checked" contains "$out" "  1 -> 0    yes"
check "the one that is missing is named" contains "$out" "  2 -> 0    NO    .*did not come within [0-9]* ms"
check "the verdict counts" contains "$out" "2 of 3 pairs cannot talk"

capture gradmesh check -n 1
check "one rank is wrong usage" is "$status" 2
finish
