#!/bin/sh
# Runs fuzz targets one after the other, each for FUZZ_SECONDS of wall time, from its seeds, the committed corpus and what
# earlier runs have found (FUZZ_DIR), and says how much was tried, and in how much CPU time. Ends at the first finding, with the
# command that shows it.
#   FUZZ=build/fuzz/fuzz FUZZ_SECONDS=60 sh tests/fuzz/run.sh TARGET...
set -eu
dir=${FUZZ_DIR:-$(dirname "$FUZZ")/found}
mkdir -p "$dir"
# Sets $cpu to what the children of this shell have used so far, in seconds. (In a pipe, times counts another shell's.)
count_cpu() {
    times >"$dir/times.$$"
    cpu=$(sed -n '2s/[ms]/ /gp' "$dir/times.$$" | awk '{ printf "%d", $1 * 60 + $2 + $3 * 60 + $4 }')
    rm "$dir/times.$$"
}
for target in "$@"; do
    count_cpu
    before=$cpu
    mkdir -p "$dir/$target" "$dir/seeds-$target"
    FUZZ_TARGET=$target FUZZ_SEEDS=$dir/seeds-$target "$FUZZ" >/dev/null 2>&1
    corpus=tests/fuzz/corpus/$target
    [ -d "$corpus" ] || corpus=
    log=$dir/$target.log
    if ! FUZZ_TARGET=$target "$FUZZ" -max_total_time="$FUZZ_SECONDS" -timeout=20 -rss_limit_mb=1024 -max_len=4096 \
        -print_final_stats=1 -artifact_prefix="$dir/$target-" "$dir/$target" "$dir/seeds-$target" $corpus >"$log" 2>&1; then
        tail -n 60 "$log"
        echo "fuzz: $target has found something: FUZZ_TARGET=$target $FUZZ $(ls -t "$dir/$target"-* | head -n 1)" >&2
        exit 1
    fi
    executions=$(sed -n 's/.*stat::number_of_executed_units: *//p' "$log")
    count_cpu
    printf '%-12s %12s executions in %s s, %s s of CPU time, %s inputs kept\n' "$target" "$executions" "$FUZZ_SECONDS" \
        "$((cpu - before))" "$(ls "$dir/$target" | wc -l)"
done
