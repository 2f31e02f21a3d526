#!/bin/sh
# Runs test programs and scripts, as many side by side as there are cores, and counts.
#   BUILD=build sh tests/run.sh TEST...
# A program is a cmocka group (it prints TAP: "ok 1 - name"); a script prints TAP too. What it prints is kept in
# $BUILD/log and shown when it fails. TEST_TIMEOUT bounds each (seconds), TEST_JOBS says how many run at a time.
set -u
log="$BUILD/log"
limit=${TEST_TIMEOUT:-300}
case "${SAN:-}" in ?*) limit=$((limit * 6)) ;; esac

# One test: its output to NAME.log, "passed failed skipped" to NAME.count, a line for the reader.
run_one() {
    name=$(echo "${1#"$BUILD"/tests/}" | tr / _)
    out="$log/$name.log"
    start=$(date +%s)
    case "$1" in
    *.sh) timeout -k 5 "$limit" sh "$1" >"$out" 2>&1 </dev/null ;;
    *) timeout -k 5 "$limit" "$1" >"$out" 2>&1 </dev/null ;;
    esac
    status=$?
    seconds=$(($(date +%s) - start))
    # cmocka calls a skipped test "not ok 3 # SKIP name".
    skip=$(grep -c -E '^(not )?ok .*# SKIP' "$out")
    ok=$(($(grep -c '^ok ' "$out") + $(grep -c '^not ok .*# SKIP' "$out")))
    bad=$(grep '^not ok ' "$out" | grep -vc '# SKIP')
    # A crash, a time-out or an empty run is a failure that no line of its own reports.
    if [ "$bad" = 0 ] && { [ "$status" != 0 ] || [ "$ok" = 0 ]; }; then bad=1; fi
    echo "$((ok - skip)) $bad $skip" >"$log/$name.count"
    if [ "$bad" = 0 ]; then
        printf 'ok    %s (%s tests, %ss)\n' "$name" "$ok" "$seconds"
    else
        { printf 'FAIL  %s (exit %s, %ss)\n' "$name" "$status" "$seconds"; tail -n 40 "$out" | sed 's/^/      /'; } \
            >"$log/$name.shown"
        cat "$log/$name.shown" # in one piece
    fi
}

export CMOCKA_MESSAGE_OUTPUT=TAP
if [ "${1:-}" = --one ]; then
    run_one "$2"
    exit 0
fi

export PATH="$BUILD:$PATH"
rm -rf "$log"
mkdir -p "$log"
printf '%s\n' "$@" | xargs -n 1 -P "${TEST_JOBS:-$(nproc)}" sh "$0" --one
# TEST_RETRY=1: what failed beside others is run once more by itself, and said to be unsteady when it passes then. That is a
# bug of the test, or a race in what it tests, and to be looked for; but it need not stop everything else.
if [ -n "${TEST_RETRY:-}" ]; then
    for test in "$@"; do
        name=$(echo "${test#"$BUILD"/tests/}" | tr / _)
        grep -qs ' 0 ' "$log/$name.count" && continue
        cp "$log/$name.log" "$log/$name.log.first" 2>/dev/null
        echo "      $name once more, by itself:"
        sh "$0" --one "$test"
        grep -qs ' 0 ' "$log/$name.count" && echo "UNSTEADY  $name: failed beside others, passed by itself"
    done
fi
cat "$log"/*.count | awk -v expected=$# '
    { passed += $1; failed += $2; skipped += $3 }
    END {
        failed += expected - NR # those that did not even report
        printf "%d passed, %d failed", passed, failed
        if (skipped) printf ", %d skipped", skipped
        printf "\n"
        exit failed != 0
    }'
