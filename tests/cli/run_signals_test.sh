#!/bin/sh
# gradmesh run: signals, and that nothing of a job survives it, however it ends.
. "$(dirname "$0")/tap.sh"

# Workers that ignore INT and TERM, with children of theirs in the same group, in another session, and in
# another session after their parent has gone.
stubborn='trap "" INT TERM HUP; sleep 300 & setsid sleep 300 & (setsid sleep 300 &); echo ready; while :; do sleep 300; done'
# Starts a job in the background: launcher, id of the job, and everybody in it.
start() { # N SCRIPT
    : >"$out"
    gradmesh run -n "$1" --verbose -- sh -c "$2" >"$out" 2>"$err" </dev/null &
    launcher=$!
    n_workers=$1
    eventually is_ready
    id=$(sed -n 's/^gradmesh: job \([0-9a-f]*\),.*/\1/p' "$err")
    guardian=$(sed -n 's/^gradmesh: job .*guardian pid \([0-9]*\)$/\1/p' "$err")
}
is_ready() { [ "$(grep -c ready "$out")" = "$n_workers" ]; }
has_processes() { [ "$(job_processes "$id" | wc -l)" -ge "$1" ]; }

# ---- passed on
for signal in INT:130 TERM:143 HUP:129 QUIT:131; do
    start 3 "trap 'echo got it; exit 0' ${signal%:*}; echo ready; while :; do sleep 0.05; done"
    kill "-${signal%:*}" "$launcher"
    status=0
    wait "$launcher" || status=$?
    check "${signal%:*} reaches all workers" is "$(grep -c 'got it' "$out")" 3
    check "${signal%:*} gives the exit status ${signal#*:}" is "$status" "${signal#*:}"
    check "${signal%:*} is named at the end" contains "$err" "stopped by SIG${signal%:*}"
done

# ---- against those who do not listen
start 2 "$stubborn"
check "the stubborn job has its processes" eventually has_processes 8
begin=$(now_ms)
kill -INT "$launcher"
status=0
wait "$launcher" || status=$?
took=$(($(now_ms) - begin))
check "after a grace they are killed" [ "$took" -ge 1000 ] && [ "$took" -lt 10000 ]
check "with the status of the signal" is "$status" 130
check "nothing is left, also of other sessions" no_process_of "$id"
check "the guardian has gone" all_gone "$guardian"

start 2 "$stubborn"
begin=$(now_ms)
kill -INT "$launcher"
eventually grep -q '^ShdPnd:[[:space:]]*0*$' "/proc/$launcher/status" # two that are pending at once are one
kill -INT "$launcher"
status=0
wait "$launcher" || status=$?
check "a second signal kills at once" [ $(($(now_ms) - begin)) -lt 2500 ]
check "with the status of the signal" is "$status" 130
check "nothing is left" no_process_of "$id"

# ---- the launcher is killed
start 3 "$stubborn"
check "the stubborn job has its processes" eventually has_processes 12
everybody=$(job_processes "$id")
kill -KILL "$launcher"
wait "$launcher" 2>/dev/null
check "kill -9 of the launcher: nothing of the job survives" eventually all_gone $everybody
check "kill -9 of the launcher: nobody new either" eventually no_process_of "$id"
check "kill -9 of the launcher: the guardian goes too" eventually all_gone "$guardian"

# ---- the launcher ends by itself
start 2 'setsid sleep 300 & (setsid sleep 300 &); echo ready; exit 0'
everybody=$(job_processes "$id")
wait "$launcher"
check "a job that ends well leaves nothing behind" all_gone $everybody
check "and no guardian" all_gone "$guardian"
start 2 'env -i setsid sleep 300 & echo $! >&2; echo ready; wait'
nameless=$(sed -n 's/^\[.\] \([0-9]*\)$/\1/p' "$err")
kill -TERM "$launcher"
wait "$launcher"
check "one without environment is found by its descent" all_gone $nameless

start 2 "$stubborn"
everybody=$(job_processes "$id")
kill -KILL "$(sed -n 's/^rank 1 pid //p' "$err")"
status=0
wait "$launcher" || status=$?
check "a killed worker ends the job" is "$status" 137
check "and nothing is left" all_gone $everybody

# ---- a stopped worker hears of the end as well
start 2 'echo ready; while :; do sleep 0.05; done'
kill -STOP "$(sed -n 's/^rank 1 pid //p' "$err")"
begin=$(now_ms)
kill -TERM "$launcher"
wait "$launcher"
check "a stopped worker is ended without waiting for the grace" [ $(($(now_ms) - begin)) -lt 2500 ]

# ---- Ctrl-Z stops the workers too, and they go on with the launcher
state_is() { is "$(sed 's/.*) \(.\).*/\1/' "/proc/$1/stat")" "$2" >/dev/null; }
start 2 'echo ready; exec sleep 300'
worker=$(sed -n 's/^rank 1 pid //p' "$err")
kill -TSTP "$launcher"
check "Ctrl-Z stops the launcher" eventually state_is "$launcher" T
check "Ctrl-Z stops the workers" eventually state_is "$worker" T
kill -CONT "$launcher"
check "they go on together" eventually state_is "$worker" S
kill -INT "$launcher"
wait "$launcher"

# ---- a job within a job
cat >"$scratch/inner.sh" <<'END'
exec gradmesh run -n 2 --verbose -- sh -c 'trap "" INT TERM; setsid sleep 300 & echo ready; sleep 300'
END
: >"$out"
gradmesh run -n 1 -- sh "$scratch/inner.sh" >"$out" 2>"$err" </dev/null &
launcher=$!
inner_is_ready() { [ "$(grep -c ready "$out")" = 2 ]; }
eventually inner_is_ready
id=$(sed -n 's/.*gradmesh: job \([0-9a-f]*\),.*/\1/p' "$err")
everybody=$(job_processes "$id")
check "a job within a job has its processes" [ "$(echo $everybody | wc -w)" -ge 4 ]
kill -KILL "$launcher"
wait "$launcher" 2>/dev/null
check "kill -9 of the outer launcher ends the inner job" eventually all_gone $everybody

# ---- dispositions
# Signals 32 and 33 are libc's own, and whether they are ignored depends on who started whom how.
without_libcs_own() { sed -E 's/[0-9a-f]{2}([0-9a-f]{7})$/xx\1/'; }
capture gradmesh run -n 1 -- grep -E '^Sig(Blk|Ign|Cgt)' /proc/self/status
sed -n 's/^\[0\] //p' "$out" | without_libcs_own >"$scratch/inside"
(trap - INT QUIT; exec grep -E '^Sig(Blk|Ign|Cgt)' /proc/self/status) | without_libcs_own >"$scratch/outside"
check "workers have the signals as the launcher found them" cmp -s "$scratch/inside" "$scratch/outside"

# ---- Ctrl-C and again on the same port
port=
right=0
for round in 1 2 3 4 5; do
    gradmesh run -n 2 --port "${port:-0}" -- sh -c 'echo $GRADMESH_STORE; exec sleep 300' >"$out" 2>"$err" </dev/null &
    launcher=$!
    eventually contains "$out" '127.0.0.1' && right=$((right + 1))
    port=$(sed -n 's/^\[0\] 127.0.0.1://p' "$out")
    kill -INT "$launcher"
    wait "$launcher"
    : >"$out"
done
check "5 of 5 restarts on one port after Ctrl-C" is "$right" 5
finish
