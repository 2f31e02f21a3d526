#!/bin/sh
# The scaling study beside PyTorch DDP over gloo, in one run: every point of one is measured in turn with those of the other.
# Options are passed on to gradmesh scaling. Records: bench/results/scaling.jsonl, unless --results says otherwise.
set -eu
cd "$(dirname "$0")/../.."
python3=/usr/bin/python3
"$python3" -c 'import torch' 2>/dev/null || sh tools/install.sh python3-torch
# A preset processor would have both sides compute as if this one were older.
unset OPENBLAS_CORETYPE OPENBLAS_L2_SIZE
exec "${BUILD:-build}/gradmesh" scaling --results bench/results --beside "exec $python3 bench/scaling/torch_ddp.py" "$@"
