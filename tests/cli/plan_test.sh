#!/bin/sh
# gradmesh plan: what it says of machines that are given, what of this one, and what it refuses.
. "$(dirname "$0")/tap.sh"

# ---- given figures: the same output always
given() { gradmesh plan --flops 50G --bandwidth 1gbit --latency 25us "$@"; }
capture given --world 1,2,4,8
check "a machine that is given needs no measuring" is "$status" 0
check "it says what it was given" contains "$out" "50 GFLOP/s for a worker; 120 MB/s and 25 us"
check "every world has a line" [ "$(grep -c -E '^ +[1248] +[0-9.]+ = +[0-9.]+ \+ .* (yes|NO|-) *$' "$out")" = 4 ]
check "it says from which batch it pays" contains "$out" "pay from a batch of [0-9]* on"
check "it says what to change first" contains "$out" "change first: .*samples/s"
check "it explains the formula with the figures" contains "$out" "alpha = 25 us, beta = 120 MB/s"
cp "$out" "$scratch/first.out"
capture given --world 1,2,4,8
check "the same question has the same answer" cmp -s "$out" "$scratch/first.out"

capture given --world 1,2 --batch 64 --json
check "as JSON: one object with a point for each world" matches "$(cat "$out")" '{"version":.*"points":\[{.*"world_size":1,"predicted_ms":.*{.*"world_size":2,"predicted_ms":[0-9.]*,"predicted_speedup":[0-9.]*.*"pays":false.*\]}'
check "and nothing else on standard output" [ "$(wc -l <"$out")" = 1 ]
capture given --world 1,2 --batch 8192
check "a batch that is large enough pays" contains "$out" " yes"
capture given --world 1,4 --price 3.6 --samples 51200 --batch 512
check "a price makes a cost" contains "$out" "epoch of 51200 samples takes .* and costs"

# ---- profiles
capture given --world 1,2 --save-profile "$scratch/machine.json"
check "a profile is saved" [ -s "$scratch/machine.json" ]
capture gradmesh plan --profile "$scratch/machine.json" --world 1,2 --json
cp "$out" "$scratch/by_profile"
capture given --world 1,2 --json
check "the profile gives the same plan" cmp -s "$out" "$scratch/by_profile"
head -c 60 "$scratch/machine.json" >"$scratch/cut.json"
capture gradmesh plan --profile "$scratch/cut.json"
check "a damaged profile is refused" is "$status" 1
check "with one sentence" contains "$err" "the profile .*cut.json: it is not JSON"

# ---- wrong usage
refused() { # NAME SENTENCE ARGS...
    name=$1 sentence=$2
    shift 2
    capture gradmesh plan "$@"
    check "$name is wrong usage" is "$status" 2
    check "$name: the sentence says so" contains "$err" "$sentence"
}
refused "a rate without a unit that exists" "flops '50X'" --flops 50X
refused "a bandwidth that is none" "bandwidth 'fast'" --flops 1G --bandwidth fast
refused "a network that is none" "expected loopback, or a rate" --flops 1G --network wifi
refused "two networks at once" "leave one out" --flops 1G --bandwidth 1gbit --network 1gbit
refused "an unknown regime" "shared, light, heavy" --flops 1G --regime mild
refused "fewer samples than workers" "each needs a sample" --flops 1G --batch 2 --world 1,4
refused "to verify what is not this machine" "runs on this machine" --verify --flops 1G
refused "to verify without one worker" "add 1 to --world" --verify --world 2

# ---- this machine: a small network, so that it takes little time
small() { gradmesh plan --model 64,48,10 --batch 128 --world 1,2 --regime light --transport tcp "$@"; }
capture small --save-profile "$scratch/this.json"
check "this machine can be measured" is "$status" 0
check "what was measured is shown" contains "$out" "measured in [0-9.]* s"
capture gradmesh plan --profile "$scratch/this.json" --model 64,48,10 --batch 128 --world 1,2 --transport tcp
check "its profile serves for another time" is "$status" 0

capture gradmesh plan --simulate 2,3 --per-host 3 --profile "$scratch/this.json" --algorithm ring --size 64K
check "a simulation is made of it" contains "$out" '^\* ring .* us '
printf '{"format":"gradmesh machine profile 1","cores":2,"flops":1e9,"memory_Bps":1,"reduce_Bps":1,"codec_Bps":1,"crews":[]}' >"$scratch/old.json"
capture gradmesh plan --simulate 2 --profile "$scratch/old.json"
check "a profile without turns is wrong usage for that" is "$status" 2
check "... in one sentence" contains "$err" 'does not say what turns on a core cost'

capture small --verify --results "$scratch/results" --network loopback --json="$scratch/plan.json"
check "to verify ends with 0 or 1, as the bar is held" [ "$status" -le 1 ]
check "the status says whether the bar was held" contains "$scratch/plan.json" "\"held\":$([ "$status" = 0 ] && echo true || echo false)"
check "predicted and measured stand beside each other" contains "$scratch/results/plan.json" '"world_size":2,"predicted_ms":.*"measured_ms":.*"error":'
check "the text says how far it was off" contains "$out" "2 points predicted and then run: off by"
check "it says whether it pays, as measured" contains "$out" '^  [a-z]*  *loopback  *\(yes: 2 workers are\|no: 2 workers are the best\)'
check "it still says what to change" contains "$out" 'change first:\|no single change'
finish
