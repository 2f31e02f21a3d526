#!/bin/sh
# gradmesh plan --simulate: the table of algorithms, what it names, and what it refuses.
. "$(dirname "$0")/tap.sh"

simulate() { gradmesh plan --simulate "$@"; }

capture simulate 32,64
check "workers are simulated" is "$status" 0
check "every world has a table" [ "$(grep -c -E '^(32|64) workers on' "$out")" = 2 ]
check "the ring and others stand in it" [ "$(grep -c -E '^[ *] (ring|halving|tree) .* (ms|us) ' "$out")" = 6 ]
check "the best is marked and named" [ "$(grep -c -E '^\* ' "$out")$(grep -c -E '^  best: (halving|direct)' "$out")" = 22 ]
check "it says why the ring is slow" contains "$out" "126 steps follow one another"
check "and up to which size others are faster" contains "$out" "faster than the ring: halving up to [0-9.]* [KM]iB"

capture simulate 64 --per-host 8 --size 64M --bandwidth 1gbit --algorithm ring,halving,direct,hierarchical
check "with hosts of several workers the hierarchical ring is the best" contains "$out" "best: hierarchical"

capture simulate 16 --algorithm ring --compute-ms 10 --straggler 5:1.5
check "a straggler is named with its cost" contains "$out" "rank 5 is the straggler.* 5.00 ms of each step"
check "and who waits for it" contains "$out" "rank 6 sleeps longest for another one: .* for rank 5"
check "only what is asked for is simulated" [ "$(grep -c -E '(halving|tree) ' "$out")" = 0 ]

capture simulate 8 --algorithm ring,halving --json --jitter 30 --seed 3
check "as JSON: one object with a point for each algorithm" matches "$(cat "$out")" '{"command":"plan","simulated":true,.*"algorithm":"ring","best":.*"predicted_ms":[0-9.]*.*"by_rank":\[.*"algorithm":"halving".*'
sed 's/"simulated_in_s":[0-9.e-]*//g' "$out" >"$scratch/first.json"
capture simulate 8 --algorithm ring,halving --json --jitter 30 --seed 3
sed 's/"simulated_in_s":[0-9.e-]*//g' "$out" >"$scratch/second.json"
check "the same seed gives the same steps" cmp -s "$scratch/first.json" "$scratch/second.json"

capture simulate 4 --algorithm ring --rounds 5
check "rounds as gradmesh bench has them are simulated" contains "$out" "best: ring"

capture simulate 8 --wire int8
check "a wire format is simulated by what sends it" contains "$out" "best: lean"
capture gradmesh plan --help
check "the help of plan tells of it" contains "$out" "plan --simulate"

# ---- what is refused, in a sentence
refuse() {
    words=$1
    shift
    capture simulate "$@"
    check "refused: --simulate $*" is "$status" 2
    check "... with the reason" contains "$err" "$words"
}
refuse "no algorithm 'rong'" 4 --algorithm rong
refuse "ranks 0 to 3" 4 --straggler 4:2
refuse "RANK:FACTOR" 4 --straggler 2
refuse "is no time" 4 --latency quick
refuse "is no rate" 4 --bandwidth 5parsec
refuse "twice" 4 --flops 5G --compute-ms 3
refuse "from 1 to" 0
refuse "multiple of 8" 4 --grain-bytes 3
refuse "of one bucket" 4 --rounds 3 --bucket-bytes 64K
finish
