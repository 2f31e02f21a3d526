#!/bin/sh
# With encryption all commands work as without it: check, status of a running job, bench in sizes around records and pieces.
. "$(dirname "$0")/tap.sh"

capture env GRADMESH_ENCRYPT=1 GRADMESH_TRANSPORT=tcp gradmesh check -n 3
check "check: three ranks that encrypt can talk" is "$status" 0
check "check: each pair has a line" [ "$(grep -c -E '^ +[12] -> [01] +yes +tcp +[0-9.]+ +[0-9]+ +[0-9.]+  127.0.0.1:[0-9]+ on lo$' "$out")" = 3 ]
capture gradmesh run -n 2 --encrypt --no-prefix -- gradmesh check
check "check: as the workers of a job that encrypts, too" contains "$out" "all 1 pair of 2 ranks can talk"
capture env -u GRADMESH_SECRET_FILE RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=1 GRADMESH_ENCRYPT=1 gradmesh check --timeout 1
check "check: without a secret there is nothing to encrypt with" [ "$status" != 0 ]
check "check: it says so" contains "$out" "encryption needs a secret"

# The limit that is set lets the job hang while one is stopped.
GRADMESH_TIMEOUT_MS=60000 gradmesh train -n 3 --encrypt --transport tcp --data synthetic --layers 784,64,10 --batch 96 --steps 1000000 >"$scratch/train.out" 2>"$scratch/train.err" </dev/null &
launcher=$!
eventually grep -q '^rank 2 pid' "$scratch/train.err"
worker=$(sed -n 's/^rank 1 pid //p' "$scratch/train.err")
id=$(tr '\0' '\n' <"/proc/$worker/environ" | sed -n 's/^GRADMESH_JOB_ID=//p')
is_ready() { gradmesh status "$id" --json 2>/dev/null | grep -q '"ready":true'; }
check "status: finds the job" eventually is_ready
capture gradmesh status "$id"
check "status: shows its ranks" [ "$(grep -c -E '^ +[012] +[0-9]+  (user code|in a call|waiting)' "$out")" = 3 ]
kill -STOP "$worker"
names_the_stopped() {
    gradmesh status "$id" >"$out" && contains "$out" "rank 1 holds up the others: its process $worker is stopped"
}
check "status: names a stopped rank" eventually names_the_stopped
kill -CONT "$worker"
kill -INT "$launcher"
wait "$launcher"

capture gradmesh bench all_reduce -n 3 --encrypt --transport tcp --algo ring --sizes 4,16K,49124,1M,3145736 --iters 2 --json
check "bench: sizes around records, parts and pieces" is "$status $(grep -o '"wrong":0,' "$out" | wc -l) $(grep -o '"wrong":' "$out" | wc -l)" "0 11 11" # the last one is of all
finish
