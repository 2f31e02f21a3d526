#!/bin/sh
# Runs test programs and scripts, one after another, and counts.
#   BUILD=build sh tests/run.sh TEST...
# A program is a cmocka group (it prints TAP: "ok 1 - name"); a script prints TAP too. What it prints
# is kept in $BUILD/log and shown when it fails. TEST_TIMEOUT bounds each (seconds).
set -u
log="$BUILD/log"
mkdir -p "$log"
limit=${TEST_TIMEOUT:-120}
case "${SAN:-}" in ?*) limit=$((limit * 6)) ;; esac
export CMOCKA_MESSAGE_OUTPUT=TAP
export PATH="$BUILD:$PATH"
passed=0 failed=0 skipped=0
for test in "$@"; do
    name=$(echo "${test#"$BUILD"/tests/}" | tr / _)
    out="$log/$name.log"
    start=$(date +%s)
    case "$test" in
    *.sh) timeout -k 5 "$limit" sh "$test" >"$out" 2>&1 </dev/null ;;
    *) timeout -k 5 "$limit" "$test" >"$out" 2>&1 </dev/null ;;
    esac
    status=$?
    seconds=$(($(date +%s) - start))
    # cmocka calls a skipped test "not ok 3 # SKIP name".
    skip=$(grep -c -E '^(not )?ok .*# SKIP' "$out")
    ok=$(($(grep -c '^ok ' "$out") + $(grep -c '^not ok .*# SKIP' "$out")))
    bad=$(grep '^not ok ' "$out" | grep -vc '# SKIP')
    # A crash, a time-out or an empty run is a failure that no line of its own reports.
    if [ "$bad" = 0 ] && { [ "$status" != 0 ] || [ "$ok" = 0 ]; }; then bad=1; fi
    passed=$((passed + ok - skip)) skipped=$((skipped + skip)) failed=$((failed + bad))
    if [ "$bad" != 0 ]; then
        printf 'FAIL  %s (exit %s, %ss)\n' "$name" "$status" "$seconds"
        tail -n 40 "$out" | sed 's/^/      /'
    else
        printf 'ok    %s (%s tests, %ss)\n' "$name" "$ok" "$seconds"
    fi
done
if [ "$skipped" != 0 ]; then
    printf '%s passed, %s failed, %s skipped\n' "$passed" "$failed" "$skipped"
else
    printf '%s passed, %s failed\n' "$passed" "$failed"
fi
[ "$failed" = 0 ]
