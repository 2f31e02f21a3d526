#!/bin/sh
# A worker whose core is taken by others: gradmesh train says at its end which one it was and what it cost, gradmesh status
# says so while it runs.
. "$(dirname "$0")/tap.sh"
hogs=
stop_hogs() {
    # shellcheck disable=SC2086
    [ -z "$hogs" ] || kill $hogs 2>/dev/null
    hogs=
}
trap 'stop_hogs; rm -rf "$scratch"' EXIT

cores=$(taskset -cp $$ 2>/dev/null | sed 's/.*: //' | tr ',' '\n' | awk -F- 'NF == 2 { for (i = $1; i <= $2; i++) print i; next } NF { print }')
if [ "$(echo "$cores" | grep -c .)" -lt 2 ]; then
    skip "a slow worker has a name" "needs taskset and two cores"
    finish
    exit
fi
# Rank 1 is bound to the second core, and others want it too. A step is several turns of the scheduler long.
for _ in 1 2 3 4 5 6 7 8; do
    taskset -c "$(echo "$cores" | sed -n 2p)" sh -c 'while :; do :; done' &
    hogs="$hogs $!"
done
train="gradmesh train --data synthetic:2048,20 --layers 784,1024,10 --batch 2048 --transport tcp"

# shellcheck disable=SC2086
capture gradmesh run -n 2 --bind cores --no-prefix -- $train --steps 6 --log-every 3 --log "$scratch/log"
check "it trains" is "$status" 0
check "the summary names the slow worker, and what it costs" contains "$out" 'straggler  rank 1: it came last to [0-9]* % of the steps'
check "so does the end of the log" is "$(sed -n 's/.*"event":"end".*"straggler":\([^,]*\),.*/\1/p' "$scratch/log")" 1
check "and reports of it" [ "$(grep -c '"event":"step".*"straggler":1[,}]' "$scratch/log")" -ge 2 ]
wait_of() { sed -n 's/.*"event":"end".*"wait_ms":\([0-9.]*\).*/\1/p' "$scratch/log" | cut -d. -f1; }
cost_of() { sed -n 's/.*"event":"end".*"last_cost_ms":\([0-9.]*\).*/\1/p' "$scratch/log" | cut -d. -f1; }
check "what it costs is what rank 0 waited, in 6 steps" [ $(($(wait_of) + 100)) -ge $((6 * $(cost_of) * 9 / 10)) ]

# A time namespace has a clock of its own, as another host has.
printf '[ "$RANK" = 1 ] || exec "$@"\nexec unshare --time --fork --kill-child --monotonic 1000 "$@"\n' >"$scratch/elsewhere"
if unshare --time --fork true 2>/dev/null; then
    # shellcheck disable=SC2086
    capture gradmesh run -n 2 --bind cores --no-prefix -- sh "$scratch/elsewhere" $train --steps 6 --log-every 3 --log "$scratch/log"
    check "it trains with two clocks" is "$status" 0
    check "the slow worker has a name there, too" contains "$out" 'straggler  rank 1: it came last to [0-9]* % of the steps'
    check "it is said how well the clocks are known" contains "$out" 'clocks of the hosts compared to within [0-9]* us'
    check "so does the log" [ "$(sed -n 's/.*"event":"end".*"clock_error_us":\([0-9]*\).*/\1/p' "$scratch/log")" -gt 0 ]
    check "bytes are still as many as the formulas say" lacks "$out" "THE FORMULA SAYS"
else
    skip "the slow worker has a name where clocks differ" "needs unshare --time"
fi

# shellcheck disable=SC2086
gradmesh run -n 2 --bind cores --verbose --no-prefix -- $train --epochs 1000000 >"$out" 2>"$err" &
job=$!
eventually contains "$err" 'gradmesh: job '
id=$(sed -n 's/^gradmesh: job \([0-9a-f]*\),.*/\1/p' "$err" | head -n 1)
names_it() { gradmesh status "$id" | grep -q 'rank 1 is slow: over the last half second the others waited'; }
check "gradmesh status names it while it runs" eventually names_it
kill -TERM $job
wait $job
stop_hogs
finish
