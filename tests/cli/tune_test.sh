#!/bin/sh
# gradmesh bench tune: what it measures becomes a profile that "auto" follows, and wrong usage.
. "$(dirname "$0")/tap.sh"

quick="--rounds 1 --budget 0.001 --world 2 --transport shm"

# ---- a profile of what is measured
capture gradmesh bench tune $quick --collective all_reduce,barrier --sizes 4,64K --save-records "$scratch/records" \
    --save-profile "$scratch/new.profile" --json="$scratch/json"
check "it measures" is "$status" 0
check "... says how good the choice is" contains "$out" '^memory.2on2.all_reduce .* [0-9.]* [0-9.]* .*/2 '
check "... keeps what it measured" [ "$(wc -l <"$scratch/records")" = 2 ]
check "... writes constants" contains "$scratch/new.profile" '^memory.turn_ns=[0-9]*$'
check "... and nothing of others" lacks "$scratch/new.profile" '^[^m]'
check "as JSON too" matches "$(cat "$scratch/json")" '{"contests":\[{"site":"memory.2on2","collective":"all_reduce","sizes":2,"choices":"[a-z0-9:,]*","built_in":.*\]}'

# ---- the same from records; what the file has of others stays
printf '# mine\nnetwork.byte_ps=8000\nmemory.turn_ns=1\nplan.flops=7' >"$scratch/old.profile"
capture gradmesh bench tune "$scratch/records" --save-profile "$scratch/old.profile"
check "records give the same profile" is "$status $(grep -c . "$scratch/old.profile")" "0 $(($(grep -c . "$scratch/new.profile") + 3))"
check "... line by line" is "$(sed '1,3d' "$scratch/old.profile")" "$(cat "$scratch/new.profile")"
check "... beside what was there of others" is "$(sed -n '1,3p' "$scratch/old.profile" | tr '\n' ' ')" '# mine network.byte_ps=8000 plan.flops=7 '

# ---- auto does what a profile says
ran() { sed 's/.*"ran":"\([a-z]*\)".*/\1/' "$out"; }
result() { # SITE US: one result of each algorithm, of which the last is the fastest
    for algorithm in ring direct naive; do
        printf '{"collective":"all_reduce","algo":"%s","wire":"f32","dtype":"f32","site":"%s","size_bytes":4096,"median_us":%d}\n' \
            $algorithm "$1" "$2"
        set -- "$1" $(($2 / 2))
    done
}
result memory.2on2 400 >"$scratch/given"
result loopback.2on2 400 >>"$scratch/given"
result network.2on1at2 400 >>"$scratch/given"
capture gradmesh bench tune "$scratch/given" --save-profile "$scratch/given.profile"
check "records of several sites" is "$status $(grep -c '=naive$' "$scratch/given.profile")" "0 3"
bench() { capture env GRADMESH_PROFILE="$scratch/given.profile" "$@" gradmesh bench all_reduce -n 2 --sizes 4K --in-place --iters 1 --json; }
bench GRADMESH_TRANSPORT=shm
check "auto takes it over shared memory" is "$status $(ran)" "0 naive"
check "... where the result says that it is" contains "$out" '"site":"memory.2on2"'
bench GRADMESH_TRANSPORT=tcp
check "auto takes it over TCP" is "$status $(ran)" "0 naive"
capture env GRADMESH_PROFILE="$scratch/given.profile" gradmesh bench all_reduce -n 2 --sizes 4K --in-place --iters 1 --json --algo ring
check "what is forced counts more" is "$status $(ran)" "0 ring"
capture env GRADMESH_PROFILE="$scratch/given.profile" gradmesh bench all_reduce -n 2 --sizes 4K --in-place --iters 1 --json --dtype f16
check "what a sum needs counts more" is "$status $(sed 's/.*"wrong":\([0-9]*\).*/\1/' "$out")" "0 0"

# ---- what is refused
refused() { # NAME STATUS PATTERN ARGUMENT...
    what=$1 expected=$2 pattern=$3
    shift 3
    capture gradmesh bench tune "$@"
    check "$what: exit status" is "$status" "$expected"
    check "$what: one line says why" contains "$err" "$pattern"
    check "$what: one line only" is "$(wc -l <"$err")" 1
}
echo '{"a":' >"$scratch/cut"
printf '\n{"a":1}\n' >"$scratch/foreign"
echo '{"collective":"all_reduce","algo":"auto","wire":"f32","dtype":"f32","site":"memory.2on2","size_bytes":4,"median_us":3}' >"$scratch/auto"
refused "no file" 1 "cannot read .*nowhere" "$scratch/nowhere"
refused "a record that is cut" 1 "cut, line 1: it is no JSON object" "$scratch/cut"
refused "a record of something else" 1 "foreign, line 2: it is no result of gradmesh bench" "$scratch/foreign"
refused "auto alone" 1 "no algorithm but auto" "$scratch/auto"
refused "a profile that cannot be written" 1 "cannot write the profile .*no/such" "$scratch/given" --save-profile "$scratch/no/such"
refused "records of records" 2 "nothing is" "$scratch/given" --save-records "$scratch/x"
refused "unknown collective" 2 "no collective 'all_produce'" --collective all_produce
refused "what has one algorithm" 2 "no collective 'sendrecv' that has algorithms" --collective sendrecv
refused "unknown transport" 2 "no transport 'pigeon'" --transport pigeon
refused "half an element" 2 "6 bytes are not a whole number" --sizes 6

echo 'loopback.2on2.all_reduce=bruck' >"$scratch/bad.profile"
capture env GRADMESH_PROFILE="$scratch/bad.profile" gradmesh bench all_reduce -n 2 --sizes 4 --iters 1
check "a choice that cannot be is told" contains "$err" 'bad.profile, line 1: this collective has no such algorithm'

finish
