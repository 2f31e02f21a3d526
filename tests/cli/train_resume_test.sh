#!/bin/sh
# Stopping and going on: bit for bit at the same world size, from the same state at another, past damaged
# files, and after kills.
. "$(dirname "$0")/program.sh"
# 600 samples in batches of 64: 10 steps to the epoch, the last one short.
job="--data synthetic:600,100 --batch 64 --layers 784,32,10"

field() { sed -n "s/.*\"$1\":\"\{0,1\}\([^\",}]*\).*/\1/p" "$work/out"; }
path() { printf '%s/step-%09d.safetensors' "$1" "$2"; }
has() { grep -qE -- "$2" "$1"; }

for n in 1 2 4; do
    for optimizer in momentum adamw; do
        run train -n $n $job --optimizer $optimizer --steps 25 --json
        whole=$(field state_hash)
        rm -rf "$work/ck"
        run train -n $n $job --optimizer $optimizer --steps 13 --checkpoint "$work/ck" --json
        run train -n $n $job --optimizer $optimizer --steps 25 --checkpoint "$work/ck" --resume --json
        check "$n workers, $optimizer: a resumed run ends with the same bits" same "$(field state_hash)" "$whole"
    done
done

# With three workers the last bits depend on how the gradient was cut: a run that goes on keeps that.
large="--data synthetic:600,100 --batch 64 --layers 784,128,10"
run train -n 3 $large --overlap on --steps 12 --json
whole=$(field state_hash)
run train -n 3 $large --overlap off --steps 12 --json
check "in pieces and in one are not the same bits" [ "$(field state_hash)" != "$whole" ]
rm -rf "$work/ck"
run train -n 3 $large --overlap on --steps 7 --checkpoint "$work/ck" --json
run train -n 3 $large --overlap off --steps 12 --checkpoint "$work/ck" --resume --json
check "a resumed run keeps its pieces, overlapping or not" same "$(field state_hash)" "$whole"
run train -n 3 $large --bucket-bytes 0 --steps 12 --resume="$(path "$work/ck" 7)" --json
check "other pieces are a note" has "$work/err" 'note: bucket_bytes was 262144 in .* and is 0 now'

# What int8 owes is forgotten at each save, so a run that was stopped at one goes on as if it never had.
rm -rf "$work/ck" "$work/ck2"
run train -n 3 $job --wire int8 --steps 20 --checkpoint "$work/ck" --checkpoint-every 5 --json
whole=$(field state_hash)
run train -n 3 $job --wire int8 --steps 10 --checkpoint "$work/ck2" --checkpoint-every 5 --json
run train -n 3 $job --wire int8 --steps 20 --checkpoint "$work/ck2" --checkpoint-every 5 --resume --json
check "int8: a resumed run ends with the same bits" same "$(field state_hash)" "$whole"
run train -n 3 $job --wire bf16 --steps 20 --resume="$(path "$work/ck2" 10)" --json
check "another wire format is a note" has "$work/err" 'note: wire was int8 in .* and is bf16 now'
check "and goes on" has "$work/out" '"steps":20,.*"wire":"bf16"'

rm -rf "$work/ck"
run train -n 4 $job --steps 13 --checkpoint "$work/ck" --json
saved=$(field state_hash)
for n in 1 2 3 5; do
    run train -n $n $job --steps 13 --resume="$(path "$work/ck" 13)" --json
    check "4 to $n workers: the state is the saved one" same "$(field state_hash)" "$saved"
    run train -n $n $job --steps 25 --resume="$(path "$work/ck" 13)" --json
    check "4 to $n workers: it goes on at the next sample" [ "$(field first_step) $(field steps) $status" = "13 25 0" ]
done

rm -rf "$work/ck"
run train -n 2 $job --steps 20 --checkpoint "$work/ck" --checkpoint-every 4 --keep 4 --json
whole=$(field state_hash)
check "the last four are kept" [ "$(ls "$work/ck" | tr '\n' ' ')" = "step-000000008.safetensors step-000000012.safetensors step-000000016.safetensors step-000000020.safetensors " ]

# Each way to spoil the newest: the one before is taken, with a warning that names the file.
good="$work/good"
cp -r "$work/ck" "$good"
spoiled() {
    damage=$1 reason=$2
    run train -n 2 $job --steps 20 --checkpoint "$work/ck" --resume --json
    check "$damage: the one before is taken" [ "$status $(field first_step) $(field state_hash)" = "0 16 $whole" ]
    check "$damage: the file and the reason are named, once" [ "$(grep -c "warning:.*step-000000020.*$reason" "$work/err")" = 1 ]
    rm -rf "$work/ck"
    cp -r "$good" "$work/ck"
}
flip() { # FILE OFFSET: another byte there
    byte=$(od -An -tu1 -j "$2" -N 1 "$1")
    printf "$(printf '\\%03o' $((byte ^ 1)))" | dd of="$1" bs=1 seek="$2" conv=notrunc 2>/dev/null
}
newest=$(path "$work/ck" 20)
size=$(wc -c <"$newest")
truncate -s $((size / 2)) "$newest" && spoiled "half a file" ""
: >"$newest" && spoiled "an empty file" "only 0 bytes"
flip "$newest" 0 && spoiled "a flipped bit in the length" ""
flip "$newest" 40 && spoiled "a flipped bit in the header" ""
flip "$newest" $((size - 5)) && spoiled "a flipped bit in the data" "data do not match"
rm "$newest" && mkdir "$newest" && spoiled "a directory" "a directory"
run train $job --layers 784,16,10 --steps 20 --checkpoint "$work/other" --json
cp "$(path "$work/other" 20)" "$newest" && spoiled "another model" "layers 784,16,10"
cp "$newest" "$work/ck/.step-000000099.safetensors.tmp-1-00000000"
run train -n 2 $job --steps 20 --checkpoint "$work/ck" --resume --json
check "a dead writer's temporary is not taken, and goes" [ "$(field first_step) $(ls -A "$work/ck" | grep -c tmp)" = "20 0" ]
for step in 8 12 16 20; do : >"$(path "$work/ck" $step)"; done
run train -n 2 $job --steps 20 --checkpoint "$work/ck" --resume
check "when none is good it says so and changes nothing" [ "$status" = 1 ]
check "and names the newest" has "$work/err" 'step-000000020'

run train -n 2 $job --steps 20 --checkpoint "$good"
check "a new run does not mix with an old one's checkpoints" [ "$status $(grep -c -- '--resume' "$work/err")" = "1 1" ]
run train -n 2 $job --steps 20 --checkpoint "$good" --resume --seed 5
check "another seed is refused with both values" has "$work/err" 'seed 42, this run has 5'
run train -n 2 $job --data synthetic:500,100 --steps 20 --checkpoint "$good" --resume
check "other data are refused" has "$work/err" 'other training data'
run train -n 2 $job --steps 30 --checkpoint "$work/none" --resume --json
check "resuming where there is nothing starts from the beginning" [ "$status $(field first_step)" = "0 0" ]

# Kill everything again and again; in the end it is the run that was never stopped. The launcher is killed,
# and its guardian kills the workers.
epochs=150
[ -z "${SAN:-}" ] || epochs=20
long="$job --epochs $epochs --checkpoint $work/killed --checkpoint-every 1 --resume"
run train -n 2 $job --epochs $epochs --json
whole=$(field state_hash)
kills=0 worst=0
while [ $kills -lt 10 ]; do
    gradmesh train -n 2 $long --json >"$work/out" 2>"$work/err" &
    pid=$!
    sleep 0.$((kills % 3))$((kills * 7 % 10))
    kill -9 $pid 2>/dev/null || break
    wait $pid 2>/dev/null
    kills=$((kills + 1))
    left=$(ls -A "$work/killed" 2>/dev/null | grep -c tmp)
    [ "$left" -le "$worst" ] || worst=$left
done
wait $pid 2>/dev/null
run train -n 2 $long --json
check "after $kills kills the bits are those of a run without" same "$(field state_hash)" "$whole"
check "no more than one temporary was ever left, and none is now" \
    [ "$worst $(ls -A "$work/killed" | grep -c tmp)" = "$((worst > 0)) 0" ]
echo "1..$number"
