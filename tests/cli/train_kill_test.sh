#!/bin/sh
# A worker that is killed while all train: every other one names it, and the job is over within a second.
set -u
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
limit_ms=1000
[ -z "${SAN:-}" ] || limit_ms=5000
number=0
check() {
    number=$((number + 1))
    name=$1
    shift
    if "$@"; then
        echo "ok $number - $name"
    else
        echo "not ok $number - $name"
        sed 's/^/# /' "$work/err" | head -40
    fi
}
now_ms() { echo $(($(date +%s%N) / 1000000)); }

# Waits, bounded, until the log shows that steps are being made.
await_steps() {
    tries=0
    while [ $tries -lt 600 ] && ! grep -q '"event":"step"' "$work/log" 2>/dev/null; do
        sleep 0.05
        tries=$((tries + 1))
    done
}

for n in 2 4; do
    victim=0
    while [ $victim -lt $n ]; do
        rm -f "$work/log"
        gradmesh train -n $n --data synthetic:600,100 --epochs 100000 --log "$work/log" --log-every 5 \
            >"$work/out" 2>"$work/err" &
        job=$!
        await_steps
        start=$(now_ms)
        kill -9 "$(sed -n "s/^rank $victim pid //p" "$work/err")"
        wait $job
        status=$?
        took=$(($(now_ms) - start))
        check "rank $victim of $n: each of the others names it, once" \
            [ "$(grep -cE "^gradmesh train: rank [0-9]+: .*rank $victim .*is gone" "$work/err")" = $((n - 1)) ]
        check "rank $victim of $n: over after $took ms" [ $took -le $limit_ms ]
        check "rank $victim of $n: the job's status is the victim's, and the others say whose fault it was" \
            [ "$status $(grep -c "rank $victim failed first: it was killed by SIGKILL" "$work/err") $(grep -c 'exited with status 3' "$work/err")" = "137 1 1" ]
        check "rank $victim of $n: nobody is left" [ -z "$(sed -n 's/^rank [0-9]* pid //p' "$work/err" | while read -r pid; do kill -0 "$pid" 2>/dev/null && echo "$pid"; done)" ]
        victim=$((victim + 1))
    done
done
echo "1..$number"
