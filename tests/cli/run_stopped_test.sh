#!/bin/sh
# A worker that is stopped: gradmesh status shows it while the job hangs, and the launcher names it, not its victims.
. "$(dirname "$0")/tap.sh"

train_err=$scratch/train.err
start_training() { # GRADMESH_TIMEOUT_MS
    rm -f "$train_err" # that of an earlier one would be read before the new one is there
    GRADMESH_TIMEOUT_MS=$1 gradmesh train -n 3 --data synthetic --layers 784,64,10 --batch 96 --steps 1000000 \
        >"$scratch/train.out" 2>"$train_err" </dev/null &
    launcher=$!
    eventually grep -q '^rank 2 pid' "$train_err"
    worker=$(sed -n 's/^rank 1 pid //p' "$train_err")
    id=$(tr '\0' '\n' <"/proc/$worker/environ" | sed -n 's/^GRADMESH_JOB_ID=//p')
    eventually is_ready
}
is_ready() { gradmesh status "$id" --json 2>/dev/null | grep -q '"ready":true'; }
straggler_is() { gradmesh status "$id" --json 2>/dev/null | grep -q "\"straggler\":$1"; }

# ---- a job that is well
start_training 60000
capture gradmesh status "$id"
check "status finds the job" is "$status" 0
check "and shows its ranks" [ "$(grep -c -E '^ +[012] +[0-9]+  (user code|in a call|waiting)' "$out")" = 3 ]
capture gradmesh status "$id" --json
check "as JSON, one object" matches "$(cat "$out")" '{"jobs":\[{"job_id":"'"$id"'",.*}'
capture gradmesh status no-such-job
check "a job that is not there is status 1" is "$status" 1
check "and one sentence" contains "$err" "no job no-such-job of this user runs here"

# ---- a rank is stopped, and the limit that was set lets the job hang
kill -STOP "$worker"
names_the_stopped() {
    gradmesh status "$id" >"$out" && contains "$out" "rank 1 holds up the others: its process $worker is stopped"
}
check "status names the stopped rank while the job hangs" eventually names_the_stopped
check "also as JSON" eventually straggler_is 1
kill -CONT "$worker"
check "when it goes on, all is well again" eventually straggler_is null
kill -INT "$launcher"
wait "$launcher"

# ---- with the default limit it is given up, and named by the launcher
start_training 300000
begin=$(now_ms)
kill -STOP "$worker"
status=0
wait "$launcher" || status=$?
cp "$train_err" "$err"
check "a stopped worker ends the job in a few seconds" [ $(($(now_ms) - begin)) -lt 10000 ]
check "the launcher names it" contains "$err" "gradmesh: rank 1 failed first: it was stopped (SIGSTOP or job control)"
check "the others are its consequences" contains "$err" "as a consequence, ranks 0, 2 exited with status 3"
check "the victims name it too" [ "$(grep -c "rank 1 (.*) does not go on: its process $worker is stopped" "$err")" -ge 2 ]
check "exit status 128 + SIGSTOP" is "$status" 147
finish
