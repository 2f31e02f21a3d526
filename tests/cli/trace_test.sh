#!/bin/sh
# --trace of train and bench: a file that viewers can open, in which every byte that was sent is found.
. tests/cli/tap.sh
trace=$scratch/a.trace.json

# look PROGRAM: what a python program over the trace prints, where there is python; it is read by eye elsewhere.
look() {
    python3 - "$trace" 2>&1 <<END
import json, sys
trace = json.load(open(sys.argv[1]))
events, other = trace['traceEvents'], trace['otherData']
spans = [e for e in events if e['ph'] == 'X']
$1
END
}
nesting='
by_track, wrong = {}, 0
for e in spans: by_track.setdefault((e["pid"], e["tid"]), []).append((e["ts"], e["ts"] + e["dur"]))
for track in by_track.values():
    open_until = []
    for begin, end in sorted(track, key=lambda s: (s[0], -s[1])):
        while open_until and open_until[-1] <= begin + 0.0005: open_until.pop()
        wrong += bool(open_until) and end > open_until[-1] + 0.0015
        open_until.append(end)
print(wrong)'
sums='
ops = {(e["pid"], e["args"]["seq"]): e["args"]["bytes_sent"] for e in spans if e["cat"] == "op"}
sent = {}
for e in spans:
    if e["cat"] == "send": sent[e["pid"], e["args"]["seq"]] = sent.get((e["pid"], e["args"]["seq"]), 0) + e["args"]["bytes"]
print(len(ops) > 0 and all(sent.get(key, 0) == ops[key] for key in ops))'
arrows='
begun = sorted(e["id"] for e in events if e["ph"] == "s"); ended = sorted(e["id"] for e in events if e["ph"] == "f")
print(len(begun) > 0 and begun == ended)'

# The rules of the format that viewers go by: numbers where numbers are due, names for every process and track, and each end of
# an arrow within a span of its track (that is what it binds to).
rules='
wrong = []
number = lambda v: isinstance(v, (int, float)) and not isinstance(v, bool)
for e in events:
    if e.get("ph") not in ("X", "M", "s", "f"): wrong.append(("ph", e))
    elif not isinstance(e.get("pid"), int) or not isinstance(e.get("tid"), int) or not e.get("name"): wrong.append(("ids", e))
    elif e["ph"] != "M" and not (number(e.get("ts")) and e["ts"] >= 0): wrong.append(("ts", e))
    elif e["ph"] == "X" and not (number(e.get("dur")) and e["dur"] >= 0): wrong.append(("dur", e))
    elif e["ph"] in "sf" and (not isinstance(e.get("id"), int) or not e.get("cat")): wrong.append(("flow", e))
    elif e["ph"] == "f" and e.get("bp") != "e": wrong.append(("bp", e))
    elif e["ph"] == "M" and not set(e.get("args", {})) & {"name", "sort_index"}: wrong.append(("meta", e))
named = {(e["pid"], e["tid"]) for e in events if e["ph"] == "M" and e["name"] == "thread_name"}
processes = {e["pid"] for e in events if e["ph"] == "M" and e["name"] == "process_name"}
wrong += [("unnamed", e) for e in spans if (e["pid"], e["tid"]) not in named or e["pid"] not in processes]
tracks = {}
for e in spans: tracks.setdefault((e["pid"], e["tid"]), []).append(e)
for e in events:
    if e["ph"] in "sf" and not any(s["ts"] - 0.0015 <= e["ts"] <= s["ts"] + s["dur"] + 0.0015 for s in tracks.get((e["pid"], e["tid"]), [])):
        wrong.append(("binds to nothing", e))
begins = {e["id"]: e["pid"] for e in events if e["ph"] == "s"}
wrong += [("from and to one rank", e) for e in events if e["ph"] == "f" and begins.get(e["id"]) in (None, e["pid"])]
print(wrong[:2] or "none")'

capture gradmesh bench all_reduce -n 3 --sizes 40K --algo ring --transport tcp --iters 3 --in-place --trace "$trace"
check "bench records one more iteration" is "$status" 0
check "the trace names its ranks" contains "$trace" '"rank 2"'
if command -v python3 >/dev/null 2>&1; then
    check "spans on a track nest" is "$(look "$nesting")" 0
    check "what a rank sent adds up to its call's bytes" is "$(look "$sums")" True
    check "no event breaks a rule of the format" is "$(look "$rules")" none
    check "each arrow that begins ends" is "$(look "$arrows")" True
    check "the ring sends 2(N-1) chunks from each rank" is "$(look 'print(sum(e["cat"] == "send" and e["pid"] == 1 for e in spans))')" 4
    check "clocks come with an error for each rank" is "$(look 'print(len(other["clock_error_us"]))')" 3
else
    skip "the trace is looked through" "no python3"
fi

capture gradmesh bench all_reduce -n 2 --sizes 8K --algo ring,naive --transport tcp --iters 3 --repeats 1 --in-place --trace "$trace"
check "several algorithms are recorded in one file" is "$status" 0
if command -v python3 >/dev/null 2>&1; then
    check "and their calls are told apart" is "$(look '
calls = {}
for e in spans:
    if e["cat"] == "op": calls.setdefault((e["args"]["communicator"], e["args"]["seq"]), []).append(e)
print(all(sorted(e["pid"] for e in c) == [0, 1] and len({e["args"]["algo"] for e in c}) == 1 for c in calls.values()))')" True
fi

capture gradmesh train -n 2 --data synthetic --layers 784,16,10 --steps 30 --trace "$trace" --trace-steps 7
check "train records its last steps" is "$status" 0
if command -v python3 >/dev/null 2>&1; then
    check "as many as were asked for" is "$(look 'print(sum(e["cat"] == "step" and e["pid"] == 0 for e in spans))')" 7
    check "no event of a training breaks a rule of the format" is "$(look "$rules")" none
    check "spans of training nest" is "$(look "$nesting")" 0
    check "gradients are in the trace to the byte" is "$(look "$sums")" True
    check "nothing was dropped" is "$(look 'print(other["dropped_events"])')" 0
fi

capture gradmesh train -n 2 --data synthetic --layers 784,16,10 --steps 3 --trace "$scratch/nowhere/a.json"
check "a trace that cannot be written is refused before training" contains "$err" 'nowhere/a.json'
check "and training does not begin" lacks "$out" 'epoch'
capture gradmesh train --trace-steps 0 --trace "$trace"
check "no steps to trace is wrong usage" is "$status" 2
finish
