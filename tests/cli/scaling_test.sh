#!/bin/sh
# gradmesh scaling as a user meets it: a tiny study, its records, wrong usage, and what is left when it is interrupted.
. "$(dirname "$0")/tap.sh"
cd "$scratch" || exit 1
tiny="--layers 16,8,4 --batch 12 --seconds 0 --repeats 1"

one_line_says() { [ "$(wc -l <"$err")" = 1 ] && contains "$err" "$1"; }
number_of() { sed -n "$2p" "$1" | sed 's/.*"'"$3"'":\([-0-9.e+]*\).*/\1/'; } # FILE LINE KEY
near() { awk "BEGIN { exit !(($1) - ($2) < 1e-6 * ($2) && ($2) - ($1) < 1e-6 * ($2)) }"; }

capture gradmesh scaling $tiny --world 1,2,3 --regime light,heavy --transport tcp
check "a study of two regimes and three worlds succeeds" is "$status" 0
check "it says for each regime whether it pays" is "$(grep -cE '^(light|heavy) .*: it (pays|does not pay|makes no difference)' "$out")" 2
check "the columns are explained where they are read" contains "$out" '^speed-up: how many times as fast as one worker. ceiling: '
records=results/scaling.jsonl
check "each point is a line of results/scaling.jsonl" is "$(grep -c '^{"peer":"gradmesh","regime":"\(light\|heavy\)".*}$' $records)" 6
check "a world of one has itself as its measure" is "$(number_of $records 1 speedup) $(number_of $records 1 zero_comm_speedup)" "1 1"
check "the speed-up is the ratio of the steps" near "$(number_of $records 2 speedup)" "$(number_of $records 1 median_ms) / $(number_of $records 2 median_ms)"
check "what all workers sent in a step is what two need: twice the gradient" is "$(number_of $records 2 payload_bytes)" "$((2 * 4 * (17 * 8 + 9 * 4)))"
check "each worker is bound to a core" contains $records '"pinned":true'
check "and the ranks ended with the same bits" lacks $records '"identical":false'
check "it says how many clocks were compared, and how well" contains $records '"clock_error_us":'

capture gradmesh scaling $tiny --world 2 --regime shared --overlap on --wire int8 --append --json
check "--append keeps what is there" is "$(wc -l <$records)" 8
check "--json prints one object" is "$(grep -c '^{"points":\[.*\]}$' "$out") $(wc -l <"$out")" "1 1"
check "in the regime shared nobody is bound" contains "$out" '"pinned":false'
check "overlap was used" contains "$out" '"overlap_used":true'

printf '#!/bin/sh\n[ "$RANK" != 0 ] || echo "{\\"system\\":\\"other\\",\\"median_ms\\":$WORLD_SIZE}" >"$STUDY_OUT"\n' >other.sh
capture gradmesh scaling $tiny --world 2 --regime light --results beside --beside "sh $scratch/other.sh"
check "another program is measured beside" is "$(grep -c '^{"peer":"other".*"median_ms":[12],' beside/scaling.jsonl)" 2
printf '. "$(dirname "$0")/other.sh"\n[ "$RANK" != 0 ] || kill -ABRT $$\n' >aborts.sh
capture gradmesh scaling $tiny --world 2 --regime light --results aborts --beside "sh $scratch/aborts.sh"
check "one that aborts after it has reported ends nothing" is "$status" 0
check "its results count" is "$(grep -c '^{"peer":"other".*"median_ms":[12],' aborts/scaling.jsonl)" 2
check "and it is said" contains "$out" 'In 2 runs a worker of other failed after rank 0 had reported the result'
capture gradmesh scaling $tiny --world 2 --regime light --results beside --beside true
check "one that says nothing is an error" is "$status" 1
check "of one sentence" contains "$err" 'the program beside ended without writing'

refused() { # NAME SENTENCE ARGS...
    name=$1 sentence=$2
    shift 2
    capture gradmesh scaling "$@"
    check "$name is wrong usage" is "$status" 2
    check "... and says so in a line" one_line_says "$sentence"
}
refused "a regime that there is not" "expected one or more of shared, light, heavy" --regime light,fast
refused "a wire format that there is not" "expected one or more of f32" --wire f31
refused "a network that there is not" "expected loopback, or a rate" --network fast
refused "an empty list" "expected names with commas" --regime ,
refused "more workers than samples" "not enough for 4 workers" --batch 3
refused "a world of none" "world" --world 0
refused "layers that are none" "layers" --layers 784
capture gradmesh scaling $tiny --world 1 --regime light --results /proc/nothing/here
check "a directory that cannot be made is an error" is "$status" 1
check "... in a sentence" contains "$err" 'cannot make the directory'

# Interrupted: no worker and no holder of a network is left.
children() { grep -l "^PPid:[[:space:]]*$1\$" /proc/[0-9]*/status 2>/dev/null | sed 's|/proc/\([0-9]*\)/.*|\1|'; }
has_children() { [ -n "$(children "$1")" ]; }
interrupt() { # NAME ARGS...: in one of many points
    name=$1
    shift
    gradmesh scaling --layers 64,64,10 --batch 64 --seconds 1 --repeats 25 --world 2 --results int "$@" >"$out" 2>"$err" &
    study=$!
    eventually contains "$err" 'point 2 of' && eventually has_children $study
    family=$(children $study)
    kill -TERM $study
    status=0
    wait $study || status=$?
    check "$name, interrupted: it ends as by the signal" is "$status" 143
    # shellcheck disable=SC2086
    check "$name, interrupted: nobody is left behind" eventually all_gone $family
    check "$name, interrupted: no half a record is left" [ ! -e int/scaling.jsonl ]
}
interrupt "over loopback" --regime light
if unshare -n true 2>/dev/null && command -v tc >/dev/null; then
    capture gradmesh scaling $tiny --world 2 --regime light --network 1gbit --results net
    check "over a network of its own it is measured too" is "$status" 0
    check "by TCP" contains net/scaling.jsonl '"world_size":2,"network":"1gbit","transport":"auto","transport_used":"tcp"'
    interrupt "over a network" --regime light --network 1gbit
else
    skip "over a network of its own it is measured too" "needs root, and tc"
    capture gradmesh scaling $tiny --world 2 --regime light --network 1gbit --results net
    check "who may make no network is told so" contains "$err" 'run it as root, or take --network loopback\|needs ip and tc'
fi
finish
