#!/bin/sh
# gradmesh train --reproducible: one hash for every number of workers, also resumed; parity; what is refused;
# gradmesh verify.
. "$(dirname "$0")/program.sh"
golden="$(dirname "$0")/../golden/reproducible.txt"

field() { sed -n "s/.*\"$1\":\"\{0,1\}\([^\",}]*\).*/\1/p" "$work/out"; }
golden_of() { sed -n "s/^$1 //p" "$golden"; }
has() { grep -qE -- "$2" "$1"; }
path() { printf '%s/step-%09d.safetensors' "$1" "$2"; }

# 600 samples in batches of 64: 10 steps to the epoch, the last of 24.
job="--data synthetic:600,100 --batch 64 --layers 784,32,10 --reproducible"
for n in 1 3 16; do
    run train -n $n $job --steps 25 --json
    check "$n workers end with the golden hash" same "$(field state_hash)" "$(golden_of small-momentum-4)"
done
run train -n 2 $job --steps 25 --json --shard-placement random --exact-wire raw --algo direct --transport tcp \
    --accumulate 2 --threads 2
check "so do they with everything else different" same "$(field state_hash)" "$(golden_of small-momentum-4)"
run train -n 2 $job --optimizer adamw --shards 6 --clip-norm 0.5 --steps 25 --json
check "another optimizer, other shards, a limit of the gradient" same "$(field state_hash)" "$(golden_of small-adamw-6)"
check "says what it was" [ "$(field reproducible) $(field shards)" = "true 6" ]
run train -n 5 $job --optimizer adamw --shards 6 --clip-norm 0.5 --steps 25 --json
check "the same at five" same "$(field state_hash)" "$(golden_of small-adamw-6)"
run train -n 3 $job --steps 12 --compare-steps 12
check "people are told" has "$work/out" 'the same as with any number of workers, of 4 shards'
check "nothing differs from one process" has "$work/out" '25,450 of 25,450 parameters have the same bits$'

# Stopped at four and resumed at seven; logs and checkpoints.
run train -n 2 $job --steps 25 --log "$work/a.jsonl" --log-every 5 --checkpoint "$work/a" --checkpoint-every 5 --keep 9
run train -n 4 $job --steps 15 --log "$work/b.jsonl" --log-every 5 --checkpoint "$work/b" --checkpoint-every 5 --keep 9
run train -n 7 $job --steps 25 --log "$work/b.jsonl" --log-every 5 --checkpoint "$work/b" --checkpoint-every 5 --keep 9 --resume --json
check "resumed at another world size it ends as if never stopped" same "$(field state_hash)" "$(golden_of small-momentum-4)"
check "each logged step has the hash of the state" [ "$(grep -c '"event":"step".*"state_hash":"[0-9a-f]\{64\}","tensor_hashes":{"layers.0.weight"' "$work/a.jsonl")" = 5 ]
run verify "$work/a.jsonl" "$work/b.jsonl"
check "their logs are the same" [ "$status $(cat "$work/out")" = "0 the same: the states after 5 steps, the last of them step 25" ]
run verify "$work/a" "$work/b" --json
check "so are their checkpoints" [ "$status $(field same) $(field steps_compared)" = "0 true 5" ]
run verify "$(path "$work/a" 25)" "$(path "$work/b" 25)"
check "and each by itself" [ "$status $(cat "$work/out")" = "0 the same: every bit of the state after step 25" ]

# A run that parts from the others between the steps 10 and 15: its rate is another one from then on.
cp -r "$work/a" "$work/c"
rm "$(path "$work/c" 15)" "$(path "$work/c" 20)" "$(path "$work/c" 25)"
sed -n '/"step":15/q;p' "$work/a.jsonl" >"$work/c.jsonl"
run train -n 1 $job --steps 25 --lr 0.05 --log "$work/c.jsonl" --log-every 5 --checkpoint "$work/c" --checkpoint-every 5 --keep 9 --resume --json
run verify "$work/a.jsonl" "$work/c.jsonl" --json
check "of logs verify finds the step and the tensor" [ "$status $(field step) $(field tensor) $(field steps_compared)" = "1 15 layers.0.weight 3" ]
run verify "$work/a" "$work/c" --json
check "of checkpoints also the element" has "$work/out" '"same":false,.*"step":15,"tensor":"layers.0.weight","index":\[0,[0-9]+\],"element":[0-9]+,"a":-?[0-9.e-]+,"b":-?[0-9.e-]+,"a_bits":"0x[0-9a-f]{8}"'
check "and says so by its status" [ "$status" = 1 ]
run verify "$work/a" "$work/c"
check "people are shown the first one" has "$work/out" '^DIFFERENT after step 15$'
run verify "$(path "$work/a" 10)" "$(path "$work/a" 15)"
check "states of two steps are not the same" [ "$status $(grep -c 'after step 10, the other after step 15' "$work/out")" = "1 1" ]
run verify "$work/a.jsonl" "$work/a"
check "a log and a directory cannot be compared" [ "$status $(grep -c 'two of a kind' "$work/err")" = "2 1" ]
run verify "$work/a.jsonl" "$work/none"
check "nor what is not there" [ "$status $(wc -l <"$work/err")" = "2 1" ]
run verify "$work/a"
check "nor one thing" [ "$status" = 2 ]

# What would be another run is refused at the start, with both values.
differ() { # NAME PATTERN OPTIONS-OF-RANK-0 OPTIONS-OF-RANK-1
    run run -n 2 -- sh -c "gradmesh train $job --steps 3 \$([ \$RANK = 0 ] && echo $3 || echo $4)"
    check "$1 is refused" [ "$status" = 1 ]
    check "$1: both values are shown" has "$work/err" "$2"
}
differ "another number of shards" "shards.*(4.*8|8.*4)" "--shards 4" "--shards 8"
differ "another seed" "seed.*(42.*43|43.*42)" "" "--seed 43"
differ "another placement" "shard_placement.*(blocks.*random|random.*blocks)" "" "--shard-placement random"
differ "a rate that is another one in its last bit" "lr.*0\.1" "--lr 0.1" "--lr 0.10000000000000002"
if ${CC:-cc} -shared -fPIC -x c - -o "$work/flush.so" 2>/dev/null <<'END' && [ -z "${SAN:-}" ]; then
/* What linking one library with -ffast-math does to a whole program. */
#include <xmmintrin.h>
__attribute__((constructor)) static void flush(void) { _mm_setcsr(_mm_getcsr() | 0x8040); }
END
    run run -n 2 -- sh -c "[ \$RANK = 0 ] || export LD_PRELOAD=$work/flush.so; exec gradmesh train $job --steps 3"
    check "a worker that flushes denormals is refused" [ "$status" = 1 ]
    check "both results of the self-test are shown" has "$work/err" "arithmetic.*[0-9a-f]{16}.*[0-9a-f]{16}"
    LD_PRELOAD="$work/flush.so" gradmesh train -n 1 $job --steps 3 >"$work/out" 2>"$work/err"
    status=$?
    check "also when it is alone" [ "$status $(grep -c 'denormal' "$work/err")" = "1 1" ]
    LD_PRELOAD="$work/flush.so" gradmesh parity -n 1 --data synthetic:200 --steps 1 --reproducible >"$work/out" 2>"$work/err"
    status=$?
    check "and in parity" [ "$status" = 1 ]
fi

refused() { # NAME PATTERN OPTIONS
    name=$1 sentence=$2
    shift 2
    run train "$@"
    check "$name" [ "$status $(wc -l <"$work/err") $(grep -cE -- "$sentence" "$work/err")" = "2 1 1" ]
}
refused "a lean wire format does not go with it" "wire bf16: .*exact" $job --wire bf16
refused "nor overlap" "overlap on" $job --overlap on
refused "nor buckets" "bucket-bytes" $job --bucket-bytes 100K
refused "more shards than samples" "65 shards of a batch of 64" $job --shards 65
refused "shards of a run that is not reproducible" "shards belongs to --reproducible" --shards 4
refused "placement of one" "shard-placement belongs to" --shard-placement random
run train -n 2 $job --steps 30 --resume="$(path "$work/a" 10)" --shards 8
check "a run with other shards is not resumed" has "$work/err" 'made with shards 4, this run has 8'
GRADMESH_WIRE=f16 gradmesh train -n 2 $job --steps 2 >"$work/out" 2>"$work/err"
check "nor with a lean format from the environment" [ "$? $(grep -c 'wire format f16' "$work/err")" != "0 0" ]

steps=60
[ -z "${SAN:-}" ] || steps=8
run parity --reproducible -n 4 --data synthetic:1000 --steps $steps --json
check "parity: 203,530 of 203,530" [ "$status $(field equal) $(field max_abs_diff) $(field reproducible)" = "0 203530 0 true" ]
[ -n "${SAN:-}" ] || check "its hash is the golden one" same "$(sed -n 's/.*"hashes":\["\([0-9a-f]*\)".*/\1/p' "$work/out")" "$(golden_of parity-4)"
echo "1..$number"
