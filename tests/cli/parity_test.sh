#!/bin/sh
# gradmesh parity: the workers hold the same bits, and those of one process but for the order of summation.
. "$(dirname "$0")/program.sh"
field() { sed -n "s/.*\"$1\":\([^,}]*\).*/\1/p" "$work/out"; }
n_hashes() { grep -oE '"[0-9a-f]{64}"' "$work/out" | wc -l; }
n_different() { grep -oE '"[0-9a-f]{64}"' "$work/out" | sort -u | wc -l; }
is_below() { awk "BEGIN { exit !($1 <= $2) }"; }

# The drawn digits are there everywhere; fewer of them are drawn faster.
few="--data synthetic:1000"
steps=60
[ -z "${SAN:-}" ] || steps=8
run parity -n 1 $few --json
check "one worker is the one process, to the bit" [ "$status $(field equal) $(field max_abs_diff)" = "0 203530 0" ]
for n in 2 3 4 5; do
    run parity -n $n $few --steps $steps --json
    check "$n workers: it is so" [ "$status" = 0 ]
    check "$n workers: one object, $n hashes, all the same" \
        [ "$(wc -l <"$work/out") $(n_hashes) $(n_different) $(field workers_identical)" = "1 $n 1 true" ]
    check "$n workers: $(field equal) of 203,530 equal, at least 138,412" [ "$(field equal)" -ge 138412 ]
    check "$n workers: $(field max_abs_diff) apart, at most 2.98e-08" is_below "$(field max_abs_diff)" 2.9802322387695312e-08
    check "$n workers: says what it was" [ "$(field world_size) $(field steps) $(field params) $(field reproducible)" = "$n $steps 203530 false" ]
done
run run -n 2 -- gradmesh parity $few --steps 5 --json
check "under gradmesh run too" grep -q '"workers_identical":true' "$work/out"
run parity -n 2 $few --steps 10
check "people get a verdict" [ "$status $(tail -n 1 "$work/out")" = "0 parity: yes" ]
check "and the settings of train for information" grep -q 'for information' "$work/out"
run parity -n 2 --data /nowhere
check "data that are not there are one sentence" [ "$status $(wc -l <"$work/err")" = "1 1" ]
run parity --steps 0
check "wrong usage" [ "$status" = 2 ]
echo "1..$number"
