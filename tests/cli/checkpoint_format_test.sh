#!/bin/sh
# A checkpoint as others read it: the bytes by the rules of safetensors, with nothing of ours.
set -u
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python=$(command -v python3) || { echo "ok 1 - the file is safetensors # SKIP no python3"; echo "1..1"; exit 0; }
gradmesh train -n 2 --data synthetic:300,50 --layers 784,16,10 --optimizer adamw --steps 7 \
    --checkpoint "$work/ck" --json >"$work/out" 2>"$work/err"
cat >"$work/read.py" <<'PYTHON'
import hashlib, json, struct, sys

path, out = sys.argv[1:]
raw = open(path, "rb").read()
end = json.load(open(out))
number = 0

def check(name, is_so, *what):
    global number
    number += 1
    print(("ok" if is_so else "not ok"), number, "-", name)
    if not is_so: print("#", *what)

def no_doubles(pairs):
    keys = [k for k, _ in pairs]
    assert len(set(keys)) == len(keys), keys
    return dict(pairs)

(length,) = struct.unpack("<Q", raw[:8])
text, data = raw[8:8 + length], raw[8 + length:]
check("the header begins with a brace and is padded to 8 bytes", text[:1] == b"{" and length % 8 == 0)
header = json.loads(text, object_pairs_hook=no_doubles)
meta = header.pop("__metadata__")
check("the metadata are strings", all(isinstance(v, str) for v in meta.values()), meta)
at = 0
for name, tensor in header.items():
    begin, stop = tensor["data_offsets"]
    size = 4
    for n in tensor["shape"]: size *= n
    good = begin == at and stop - begin == size and tensor["dtype"] == "F32"
    at = stop
    if not good: break
check("the tensors lie one behind the other, without holes", good and at == len(data), name, tensor)
layers = ["layers.0.weight", "layers.0.bias", "layers.1.weight", "layers.1.bias"]
moments = ["optimizer.%s.%s" % (m, l) for m in ("adam_m", "adam_v") for l in layers]
check("parameters first, then the moments", list(header) == layers + moments, list(header))
check("a weight has (outputs, inputs)", header["layers.0.weight"]["shape"] == [16, 784])
check("the data have the checksum", hashlib.sha256(data).hexdigest() == meta["data_sha256"])
check("which is the state hash that training printed", meta["state_hash"] == meta["data_sha256"] == end["state_hash"])
own = meta["header_sha256"].encode()
check("the header has its checksum", hashlib.sha256(raw[:8 + length].replace(own, b"0" * 64)).hexdigest() == own.decode())
check("step, cursor and settings are there",
      [meta[k] for k in ("step", "epoch", "batch_cursor", "config.layers", "config.optimizer", "config.batch", "config.seed")]
      == ["7", "2", "1", "784,16,10", "adamw", "128", "42"], meta)
bias = struct.unpack("<16f", data[slice(*header["layers.0.bias"]["data_offsets"])])
check("the values are floats that training has moved", all(abs(b) < 1 for b in bias) and any(b != 0 for b in bias), bias)
print("1..%d" % number)
PYTHON
"$python" "$work/read.py" "$work/ck/step-000000007.safetensors" "$work/out" || cat "$work/err"
