#!/bin/sh
# gradmesh bench: the table, the JSON record and its arithmetic, every collective, and wrong usage.
. "$(dirname "$0")/tap.sh"

quick="--budget 0.002"

# ---- wrong usage
usage() { # NAME PATTERN ARGUMENT...
    what=$1 pattern=$2
    shift 2
    capture gradmesh bench "$@"
    check "$what: exit status 2" is "$status" 2
    check "$what: one line says why" contains "$err" "$pattern"
    check "$what: one line only" is "$(wc -l <"$err")" 1
}
usage "no collective" 'say what to measure: all_reduce, '
usage "unknown collective" 'did you mean all_reduce?' all_reduc -n 2
usage "two collectives" "unexpected word 'barrier'" all_reduce barrier
usage "half an element" '6 bytes are not a whole number of f32 elements' all_reduce -n 2 --sizes 6
usage "sizes twice" 'say it too' all_reduce -n 2 --sizes 4 --end 8
usage "range without a size" 'beyond --end' all_reduce -n 2 --begin 1M --end 1K
usage "a factor that does not grow" 'from 2 to 65536, not 1' all_reduce -n 2 --factor 1
usage "sizes of a barrier" 'moves no data' barrier -n 2 --sizes 4
usage "op of a broadcast" 'combines nothing' broadcast -n 2 --op max
usage "root of an all_reduce" 'has no root' all_reduce -n 2 --root 1
usage "root outside of the world" 'no root 2 in a world of 2' broadcast -n 2 --root 2
usage "bits of floats" 'bxor of f32' all_reduce -n 2 --op bxor --dtype f32
usage "unknown algorithm" "no algorithm 'rung'" all_reduce -n 2 --algo rung
usage "unknown algorithm among several" "no algorithm 'rung'" all_reduce -n 2 --algo ring,rung
usage "unknown transport" "no transport 'pigeon'" all_reduce -n 2 --transport pigeon
usage "unknown wire format" "no wire format 'int4'; there are: f32, bf16, f16, int8" all_reduce -n 2 --wire int4
usage "limits in the wrong place" "write 'limits' first" --in-place limits
usage "unknown limit" "no limit 'height'" limits height

# ---- the table
capture gradmesh bench all_reduce -n 2 --sizes 4,2K --iters 3 $quick
check "measures" is "$status" 0
check "a row for each size" is "$(grep -c -v '^#' "$out")" 2
check "size, count, type, op, root" is "$(sed -n '/^#/!p' "$out" | awk 'NR == 2 { print $1, $2, $3, $4, $5 }')" \
    "2048 512 f32 sum -1"
check "out of place and in place: four columns each, and the algorithm" is "$(sed -n '/^#/!p' "$out" | awk 'NR == 2 { print NF }')" 14
check "no wrong values" is "$(sed -n '/^#/!p' "$out" | awk '{ n += $9 + $13 } END { print n + 0 }')" 0
check "the footer counts them" contains "$out" '^# Out of bounds values : 0 OK$'
check "the footer has the average" contains "$out" '^# Avg bus bandwidth    : [0-9]'

capture gradmesh bench all_reduce -n 2 --begin 4 --end 64 --factor 4 --in-place --iters 2 $quick
check "begin, end and factor" is "$(sed -n '/^#/!p' "$out" | awk '{ printf "%s ", $1 }')" "4 16 64 "
check "in place only" is "$(sed -n '/^#/!p' "$out" | awk 'NR == 1 { print $6, ($10 > 0) }')" "N/A 1"

# ---- the record
# Usage: field NAME N: of result N, counted from 1.
results() { sed -n 's/.*"results":\[\(.*\)\]}$/\1/p' "$out" | awk '{ gsub(/},{/, "}\n{"); print }'; }
field() { results | sed -n "$2p" | sed -n "s/.*\"$1\":\"\{0,1\}\([^,\"}]*\).*/\1/p"; }

capture gradmesh bench all_reduce -n 3 --sizes 4,300 --op max --dtype i32 --algo ring --transport tcp --json $quick
check "json: measures" is "$status" 0
check "json: one line, one object" is "$(grep -c '^{.*}$' "$out") $(wc -l <"$out")" "1 1"
check "json: a result for each size and way" is "$(results | wc -l)" 4
for name in collective algo transport wire dtype op world_size size_bytes in_place iters median_us min_us p99_us \
    algbw_GBps busbw_GBps wrong payload_bytes protocol_bytes cpu_s_per_GB; do
    check "json: every result has $name" is "$(results | grep -c "\"$name\":")" 4
done
check "json: what was asked for" is "$(for f in collective algo transport wire dtype op world_size size_bytes in_place; do
    printf '%s ' "$(field $f 3)"; done)" "all_reduce ring tcp i32 i32 max 3 300 false "
check "json: in place comes second" is "$(field in_place 4)" true
check "json: nothing wrong" is "$(field wrong 1) $(field wrong 2) $(field wrong 3) $(field wrong 4)" "0 0 0 0"
check "json: the ring's payload is 2 (N-1)/N of the size" is "$(field payload_bytes 3) $(field all_payload_bytes 3)" \
    "400 1200"
check "json: times are in order" awk -v a="$(field min_us 3)" -v b="$(field median_us 3)" -v c="$(field p99_us 3)" \
    'BEGIN { exit !(0 < a && a <= b && b <= c) }'
check "json: bandwidths follow from size, median and ranks" awk -v us="$(field median_us 3)" \
    -v alg="$(field algbw_GBps 3)" -v bus="$(field busbw_GBps 3)" \
    'function near(a, b) { return a - b < 2e-6 && b - a < 2e-6 }
     BEGIN { exit !(near(alg, 300 / us / 1e3) && near(bus, alg * 4 / 3)) }'
capture gradmesh bench all_reduce -n 2 --sizes 4,16M --in-place --iters 1 --warmup 0 --json $quick
check "json: a size that has not come yet takes no memory" \
    [ "$(($(field peak_rss_bytes 2) - $(field peak_rss_bytes 1)))" -gt $((15 << 20)) ]
capture gradmesh bench all_reduce -n 2 --sizes 4 --iters 7 --json="$scratch/file.json" $quick
check "json: into a file, the table on standard output" contains "$out" '^# Avg bus'
cp "$scratch/file.json" "$out"
check "json: iterations as asked" is "$(field iters 1)" 7

# 1024 numbers in two chunks: half of them to the other rank, and as many sums, in blocks of 128.
for wire in bf16:2048 f16:2048 int8:1056; do
    capture gradmesh bench all_reduce -n 2 --sizes 4K --wire ${wire%:*} --iters 2 --in-place --json $quick
    check "${wire%:*}: measures, and nothing is wrong" is "$status $(field wrong 1)" "0 0"
    check "${wire%:*}: the record names the format" is "$(field wire 1) $(field dtype 1)" "${wire%:*} f32"
    check "${wire%:*}: the bytes are those of the format" is "$(field payload_bytes 1)" "${wire#*:}"
done
capture env GRADMESH_WIRE=bf16 gradmesh bench all_reduce -n 2 --sizes 4K --iters 2 $quick
check "the environment names the format" contains "$out" 'wire format bf16$'
capture gradmesh bench all_reduce -n 2 --sizes 4K --wire bf16 --op max --iters 2 $quick
check "what is not summed has its own" is "$status $(grep -c 'wire format' "$out")" "0 0"

# ---- algorithms side by side
contest() { sed -n '/^#/!p' "$out" | awk -v c="$1" '{ printf "%s ", $c }'; }
capture gradmesh bench all_reduce -n 3 --sizes 4,4K --algo auto,ring,doubling --in-place --iters 2 --repeats 2
check "several algorithms: a row for each, size by size" is "$status $(contest 1)" "0 4 4 4 4096 4096 4096 "
check "... named, and what auto took" is "$(contest 16 | sed 's/auto=[a-z]*/auto=X/g')" "auto=X ring doubling auto=X ring doubling "
check "... the best but auto is 1.00" is "$(sed -n '/^#/!p' "$out" | awk '!/auto/ && $15 == "1.00" { n++ } END { print n }')" 2
check "... and how far auto is behind" contains "$out" '^# auto takes at most   : [0-9.]* times as long as the best algorithm (4'
capture gradmesh bench broadcast -n 2 --sizes 4 --algo all --iters 2 --repeats 1 --json
check "all: those that the collective has" is "$status $(results | sed 's/.*"algo":"\([a-z]*\)".*/\1/' | tr '\n' ' ')" "0 auto ring tree "
check "... and what ran" contains "$out" '"algo":"tree","ran":"tree"'
capture gradmesh bench all_to_all -n 2 --sizes 8 --algo auto,tree --iters 2
check "what the collective has not is left out, and said" contains "$err" 'tree is no algorithm for this all_to_all by 2 ranks'

echo "memory.turn_ns=1000000000" >"$scratch/far.profile"
capture env GRADMESH_PROFILE="$scratch/far.profile" gradmesh bench all_reduce -n 3 --sizes 1M --in-place --iters 1 --json
check "a profile changes what auto takes" is "$status $(field algo 1) $(field ran 1)" "0 auto exchange"
echo "memory.turns=1" >"$scratch/far.profile"
capture env GRADMESH_PROFILE="$scratch/far.profile" gradmesh bench all_reduce -n 2 --sizes 4 --iters 1
check "a profile that is wrong is told" contains "$err" 'far.profile, line 1: it must be KIND.CONSTANT=NUMBER'

# ---- every collective, checked in every iteration
for collective in all_reduce reduce_scatter all_gather broadcast reduce gather scatter all_to_all sendrecv; do
    for ranks in 1 2 3; do
        capture gradmesh bench $collective -n $ranks --sizes 0,8,40,40K --dtype f64 --check --iters 3 --json
        check "$collective with $ranks rank(s): all right" is "$status $(results | grep -c '"wrong":0,')" \
            "0 $(case $collective in broadcast | sendrecv) echo 4 ;; *) echo 8 ;; esac)"
    done
done
for collective in all_reduce all_to_all; do
    capture gradmesh bench $collective -n 24 --sizes 0,192,40K --in-place --dtype f64 --check --iters 2 --warmup 1 --json
    check "$collective with 24 ranks: all right" is "$status $(results | grep -c '"wrong":0,')" "0 3"
done
capture gradmesh bench broadcast -n 3 --root 2 --sizes 400 --iters 3 --json
check "broadcast from another root" is "$status $(field root 1) $(field wrong 1)" "0 2 0"
capture gradmesh bench barrier -n 3 --iters 5 --json
check "barrier" is "$status $(results | wc -l) $(field size_bytes 1) $(field dtype 1)" "0 1 0 none"
check "what nothing crosses costs nothing per GB" is "$(field cpu_s_per_GB 1)" null

# ---- who takes part
capture gradmesh run -n 2 --no-prefix -- gradmesh bench all_reduce --sizes 4 --iters 3
check "under gradmesh run" is "$status $(grep -c -v '^#' "$out")" "0 1"
capture gradmesh run -n 2 --no-prefix -- gradmesh bench all_reduce -n 3 --sizes 4
check "-n inside of a job of another size is refused" is "$status" 2
capture gradmesh run -n 2 --no-prefix -- sh -c 'gradmesh bench all_reduce --sizes $((4 * (RANK + 1)))'
check "ranks with other sizes are told so" contains "$err" 'sizes'
check "... and fail" [ "$status" != 0 ]
capture gradmesh bench all_reduce --sizes 4 --iters 3
check "alone" is "$status" 0

# ---- limits
capture gradmesh bench limits --repeats 1 --amount 256K --json
check "limits: measures" is "$status" 0
check "limits: one object" is "$(grep -c '^{.*}$' "$out") $(wc -l <"$out")" "1 1"
for kind in copy reduce oneway duplex ping; do
    check "limits: $kind" contains "$out" "\"limit\":\"$kind\""
done
best() { results | grep '"limit":"duplex","over":"tcp"' | sed 's/.*"GBps":\([0-9.]*\).*/\1/' | sort -g | tail -n 1; }
check "limits: the duplex limit is the best of its variants" contains "$out" "\"duplex_GBps\":$(best),"
capture gradmesh bench limits ping --repeats 1 --amount 64K
check "limits: only what was named" is "$(sed -n '/^#/!p' "$out" | awk '{ print $1 }' | sort -u)" ping

finish
