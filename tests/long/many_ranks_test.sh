#!/bin/sh
# Every collective on 64 ranks of this machine: right in every iteration, and 256 ranks meet.
. "$(dirname "$0")/../cli/program.sh"

for transport in tcp auto; do
    for collective in all_reduce reduce_scatter all_gather broadcast reduce gather scatter all_to_all; do
        run bench $collective -n 64 --sizes 0,512,40K --in-place --dtype f64 --check --iters 2 --warmup 1 --transport $transport --json
        check "$collective on 64 ranks, $transport: it ends well" [ "$status" = 0 ]
        check "$collective on 64 ranks, $transport: all is right" [ "$(grep -o '"wrong":0,"payload' "$work/out" | wc -l)" = 3 ]
    done
done
run bench barrier -n 256 --iters 2 --json
check "256 ranks meet" [ "$status" = 0 ]
echo "1..$number"
