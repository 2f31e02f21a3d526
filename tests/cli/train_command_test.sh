#!/bin/sh
# gradmesh train, eval and predict as a user meets them: what is printed where, and what wrong usage says.
. "$(dirname "$0")/program.sh"
small="--data synthetic:600,100 --epochs 2"

ends_with() { [ "$(tail -n 1 "$1" | grep -cE "$2")" = 1 ]; }
said_once() { [ "$status" = "$1" ] && [ ! -s "$work/out" ] && [ "$(wc -l <"$work/err")" = 1 ] && grep -qF -- "$2" "$work/err"; }
has() { grep -qE -- "$2" "$1"; }

# refused NAME STATUS SENTENCE ARGS...: one line on standard error, nothing on standard output.
refused() {
    name=$1 wanted=$2 sentence=$3
    shift 3
    run "$@"
    check "$name" said_once "$wanted" "$sentence"
}

run train -n 2 $small --compare-steps 5 --transport tcp
check "a run of two ends with its accuracy" ends_with "$work/out" '^test accuracy: [0-9]+\.[0-9][0-9] %$'
check "it exits with 0" [ "$status" = 0 ]
check "the workers' process ids are named" [ "$(grep -cE '^rank [01] pid [0-9]+$' "$work/err")" = 2 ]
check "the start says batch, share, averaging and rate" has "$work/out" 'batch +128 samples in all, 64 on each worker; gradients are averaged over the whole batch'
check "the verdict says that the workers hold the same bits" has "$work/out" 'all 2 workers hold the same'
check "the bytes are as the formula and the kernel say" [ "$(grep -c 'as the formula says.*the kernel agrees to the byte' "$work/out")" = 2 ]
check "why nobody can send less is said with the figures" [ "$(tr -s ' \n' ' ' <"$work/out" | grep -c 'among 2 workers: of each number 1 shares\{0,1\} must travel .* 2(N-1)/N of the 0.81 MB, 0.81 MB a step: the optimum')" = 1 ]
check "the comparison with one process is there" has "$work/out" 'of 203,530 parameters have the same bits'

run train -n 2 $small --transport shm
check "through shared memory the bytes are as the formula says, and those by TCP as the kernel says" [ "$(grep -c 'as the formula says.* of all by TCP, as the kernel says, the rest through memory' "$work/out")" = 2 ]

run train -n 2 $small --json
check "--json prints one object and nothing else" [ "$(wc -l <"$work/out")" = 1 ]
check "it is the end record" has "$work/out" '^\{"event":"end","world_size":2,.*"steps":10,.*"test_accuracy":0\.[0-9]+,.*"state_hash":"[0-9a-f]{64}".*"payload_bytes_sent":\[[0-9]+,[0-9]+\].*\}$'
hash_of() { sed 's/.*"state_hash":"\([0-9a-f]*\)".*/\1/' "$1"; }
first=$(hash_of "$work/out")
run train -n 2 $small --json="$work/json"
check "--json=FILE writes the file" same "$(hash_of "$work/json")" "$first"
check "and leaves standard output to people" ends_with "$work/out" '^test accuracy'
run run -n 2 -- gradmesh train $small --json
check "under gradmesh run it is the same run" same "$(sed -n 's/.*"state_hash":"\([0-9a-f]*\)".*/\1/p' "$work/out")" "$first"
run train -n 2 $small --json --bucket-bytes 10000
check "buckets do not change a run of two" same "$(hash_of "$work/out")" "$first"
run train -n 2 $small --json --algo direct
check "any algorithm that the library has can be asked for" same "$(hash_of "$work/out")" "$first"
run train -n 2 $small --json --algo naive
check "neither does the algorithm" same "$(hash_of "$work/out")" "$first"

run train -n 3 $small --log "$work/log" --log-every 2
check "the log has its events" [ "$(sed 's/^{"event":"\([a-z]*\)".*/\1/' "$work/log" | sort | uniq -c | awk '{print $2 $1}' | tr '\n' ' ')" = "end1 epoch2 start1 step6 " ]
check "its records split the time" [ "$(grep -cE '"event":"(step|epoch|end)".*"compute_ms":[0-9.]+,.*"comm_exposed_ms":[0-9.]+,"comm_hidden_ms":[0-9.]+,"wait_ms":[0-9.]+' "$work/log")" = 9 ]

# Exchanging while computing.
run train -n 3 $small --overlap off --bucket-bytes 100K --json
first=$(hash_of "$work/out")
run train -n 3 $small --overlap on --bucket-bytes 100K --json
check "overlap changes no bits" same "$(hash_of "$work/out")" "$first"
run train -n 3 $small --overlap on
check "what is exchanged when is said" has "$work/out" 'exchange +while the gradient is computed, in pieces of up to 262,144 bytes$'
run train -n 3 $small --overlap off
check "and what is not" has "$work/out" 'exchange +after the gradient is computed, in one piece$'
run run -n 2 -- env LOCAL_WORLD_SIZE=1 gradmesh train $small --steps 2
check "workers of several machines overlap by themselves" has "$work/out" 'exchange +while .*\(other workers are on other machines\)'
if command -v taskset >/dev/null; then
    taskset -c "$(taskset -cp $$ | sed 's/.*: \([0-9]*\).*/\1/')" gradmesh train -n 2 $small --steps 2 >"$work/out" 2>"$work/err"
    check "workers that share a core do not" has "$work/out" 'exchange +after .*\(1 core for 2 workers of 1 thread\)'
fi
run run -n 2 -- sh -c "gradmesh train $small --overlap \$([ \$RANK = 0 ] && echo on || echo off)"
check "workers that were told different things find out" has "$work/err" "overlap"
check "and do not start" [ "$status" = 1 ]

# 784-16-10 has 12,730 parameters. At -n 2 a rank sends half of them and half of the sums, in a step.
loss_of() { sed -n 's/.*"event":"end".*"loss":\([^,]*\),"test_loss".*/\1/p' "$work/out"; }
lean="--data synthetic:600,100 --layers 784,16,10 --batch 64 --epochs 4"
run train -n 2 $lean --json
plain=$(loss_of)
for wire in bf16 f16 int8; do
    run train -n 2 $lean --wire $wire --json
    check "$wire: trained, with equal bits" has "$work/out" "\"workers_identical\":true,.*\"wire\":\"$wire\""
    check "$wire: the loss is that of f32, nearly" \
        sh -c "echo '$plain $(loss_of)' | awk '{ exit !(\$1 > 0 && \$2 > \$1 * 0.95 && \$2 < \$1 * 1.05) }'"
done
run train -n 2 $lean --wire int8 --steps 3
check "the start names the format" has "$work/out" '^  exchange  as int8, '
check "the verdict names the format" has "$work/out" 'travelled as int8'
check "and its bytes are as the formula says" [ "$(grep -c 'as the formula says' "$work/out")" = 2 ]
run train -n 1 $lean --wire int8 --steps 3 --json
check "one worker has nobody to send to" has "$work/out" '"wire":"f32"'
run run -n 2 -- sh -c "gradmesh train $small --wire \$([ \$RANK = 0 ] && echo bf16 || echo f16)"
check "workers with different formats find out" has "$work/err" "'wire format' differs: rank 0 has 'bf16', rank 1 has 'f16'"
check "and do not train" [ "$status" = 1 ]

run train -n 1 $small --batch 7 --accumulate 3 --steps 3 --json
check "one worker, micro-batches and --steps" has "$work/out" '"world_size":1,.*"steps":3,'
run train -n 5 $small --batch 3 --steps 4 --json
check "more workers than samples in a batch" has "$work/out" '"workers_identical":true'

# A data directory of our own would need files; the readers have their own tests. One truncated file:
mkdir "$work/bad"
printf '\0\0\010\003\0\0\0\144\0\0\0\034\0\0\0\034' >"$work/bad/train-images-idx3-ubyte"
printf '\0\0\010\001\0\0\0\144' >"$work/bad/train-labels-idx1-ubyte"
cp "$work/bad/train-images-idx3-ubyte" "$work/bad/t10k-images-idx3-ubyte"
cp "$work/bad/train-labels-idx1-ubyte" "$work/bad/t10k-labels-idx1-ubyte"
refused "a truncated file is one sentence" 1 "$work/bad/train-" train -n 4 --data "$work/bad"
refused "no such data" 1 "/nowhere" train -n 4 --data /nowhere
refused "a network that does not fit the pictures" 1 "--layers 784," train -n 4 $small --layers 100,10
refused "layers that are none" 2 "layers" train -n 4 --layers 784,x,10
refused "an unknown optimizer" 2 "adamw" train --optimizer adam
refused "an unknown algorithm" 2 "no algorithm 'rung'; there are: auto" train -n 3 --algo rung
refused "an unknown transport" 2 "no transport 'pigeon'; there are: auto" train -n 3 --transport pigeon
refused "an unknown wire format" 2 "no wire format 'int4'; there are: f32, bf16, f16, int8" train -n 3 --wire int4
refused "an option of another optimizer" 2 "--momentum" train --optimizer sgd --momentum 0.5
refused "--resume without a place" 2 "--checkpoint" train --resume
refused "--checkpoint-every without a place" 2 "--checkpoint" train --checkpoint-every 5
refused "no workers" 2 "workers" train -n 0
refused "a log that cannot be written" 1 "/nowhere/log" train -n 2 $small --log /nowhere/log
refused "a directory that cannot be made" 1 "/dev/null/x" train -n 2 $small --checkpoint /dev/null/x
run train -n 3 $small --lr 1e30
check "a loss that is not finite is said once" [ "$(grep -c '^gradmesh train:.*is not finite' "$work/err")" = 1 ]
check "and it is a failure" [ "$status" = 1 ]

run train $small --checkpoint "$work/ck" --json
trained=$(sed 's/.*"test_correct":\([0-9]*\).*/\1/' "$work/out")
run eval --checkpoint "$work/ck" --json
check "eval counts what training counted" same "$(sed 's/.*"test_correct":\([0-9]*\).*/\1/' "$work/out")" "$trained"
run eval --checkpoint "$work/ck/step-000000010.safetensors"
check "eval reads one file" ends_with "$work/out" '^test accuracy: '
refused "eval of a file that is none" 1 "/nowhere" eval --checkpoint /nowhere
mkdir "$work/empty"
refused "eval of an empty directory" 1 "holds no checkpoint" eval --checkpoint "$work/empty"
refused "eval of nothing" 2 "--checkpoint" eval
LC_ALL=C run predict --checkpoint "$work/ck" --index 3 --count 2
check "predict draws in plain characters" has "$work/out" '[@#*=]'
check "predict gives each class a probability" [ "$(grep -cE '^.*  +[0-9]+ +[0-9]+\.[0-9][0-9] %' "$work/out")" = 20 ]
check "predict marks the label" [ "$(grep -c '<- the label' "$work/out")" = 2 ]
run predict --checkpoint "$work/ck" --index 5 --json
check "predict --json is one object" has "$work/out" '^\{"predictions":\[\{"index":5,"label":[0-9],"predicted":[0-9],"right":(true|false),"probabilities":\[[^]]*\]\}\].*\}$'
refused "a picture that is not there" 2 "100 pictures" predict --checkpoint "$work/ck" --index 100
echo "1..$number"
