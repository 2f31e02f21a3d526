#!/bin/sh
# gradmesh run: the workers' output arrives whole, in lines, with the rank before it.
. "$(dirname "$0")/tap.sh"

# ---- many lines at once, into a reader that sleeps first
lines() { # N: each rank prints N numbered lines
    gradmesh run -n 4 -- awk -v n="$1" 'BEGIN {
        for (i = 0; i < n; i++)
            printf "rank %d line %06d ----------------------------------------------------\n", ENVIRON["RANK"], i
    }' 2>"$err"
}
# Every line is whole, in order within its rank, and carries its own rank before it.
is_complete() { # FILE N
    awk -v n="$2" '
        NF != 6 || $1 != "[" $3 "]" || $2 != "rank" || $4 != "line" || $5 + 0 != next_line[$3]++ { bad = 1; exit }
        END { exit bad || NR != 4 * n || next_line[0] != n || next_line[3] != n }' "$1"
}
lines 20000 | { sleep 0.3; cat; } >"$out"
check "20,000 lines of each of 4 ranks arrive whole and in order, through a slow reader" is_complete "$out" 20000
lines 20000 >"$out"
check "and into a file" is_complete "$out" 20000

# ---- odd lines
capture gradmesh run -n 2 -- sh -c 'head -c 1000000 /dev/zero | tr "\0" $RANK; echo; printf "no newline"; printf last >&2'
check "a line of 1 MB stays one line" is "$(awk 'length($0) == 1000004 { n++ } END { print n + 0 }' "$out")" 2
check "and is of one rank" is "$(sed -n 's/^\[1\] 11*$/whole/p' "$out")" whole
check "a last line without its end is shown" is "$(grep -c '^\[.\] no newline$' "$out")" 2
check "on standard error too" is "$(grep -c '^\[.\] last$' "$err")" 2

capture gradmesh run -n 2 -- sh -c '[ $RANK = 1 ] || exec sleep 30; printf "last words"; kill -KILL $$'
check "the last words of a killed rank are shown" contains "$out" '^\[1\] last words$'

head -c 300000 /dev/urandom >"$scratch/bytes"
gradmesh run -n 1 --no-prefix -- cat "$scratch/bytes" >"$out" 2>"$err"
check "--no-prefix with one rank passes every byte as it is" cmp -s "$out" "$scratch/bytes"
capture gradmesh run -n 2 --no-prefix -- printf 'a line\n'
check "--no-prefix leaves lines as they are" is "$(sort -u "$out")" "a line"
capture gradmesh run -n 2 --no-prefix -- printf 'half'
check "--no-prefix does not join the halves of two ranks" is "$(grep -c '^half$' "$out")" 2
printf 'a\0b\377\n' >"$scratch/bytes"
gradmesh run -n 1 -- cat "$scratch/bytes" >"$out" 2>"$err"
printf '[0] a\0b\377\n' >"$scratch/wanted"
check "binary bytes pass" cmp -s "$out" "$scratch/wanted"

capture gradmesh run -n 2 -- sh -c 'echo to out; echo to err >&2'
check "standard output goes to standard output" is "$(sort "$out" | tr '\n' ,)" "[0] to out,[1] to out,"
check "standard error goes to standard error" is "$(grep -c 'to err' "$err")" 2

# ---- both into one pipe: a long line of one must not be cut by a line of the other
gradmesh run -n 2 -- awk 'BEGIN {
    while (length(long) < 20000) long = long "xxxxxxxxxx"
    for (i = 0; i < 50; i++) { print long; print "short" > "/dev/stderr" }
}' 2>&1 | cat >"$out"
check "lines of both outputs stay whole in one pipe" \
    is "$(awk '/^\[.\] x+$/ && length($0) == 20004 { long++ } /^\[.\] short$/ { short++ } /^\[/ { all++ } END { print long, short, all }' "$out")" "100 100 200"

# ---- a terminal
if command -v script >/dev/null 2>&1; then
    env -u NO_COLOR TERM=xterm script -qec "gradmesh run -n 2 -- echo words" /dev/null >"$out" 2>&1 </dev/null
    check "ranks have colours on a terminal" contains "$out" "$(printf '\033\\[33m\\[1\\]\033\\[0m words')"
    NO_COLOR=1 script -qec "gradmesh run -n 2 -- echo words" /dev/null >"$out" 2>&1 </dev/null
    check "NO_COLOR is honoured" lacks "$out" "$(printf '\033')"
else
    skip "ranks have colours on a terminal" "no script(1)"
fi
capture gradmesh run -n 1 -- echo words
check "no colour in a file" lacks "$out" "$(printf '\033')"

# ---- readers that go away
begin=$(now_ms)
{ gradmesh run -n 4 --verbose -- yes 2>"$err"; echo $? >"$scratch/status"; } | head -n 1 >"$out"
check "a reader that leaves ends the job like SIGPIPE would" is "$(cat "$scratch/status")" 141
check "and it is said" contains "$err" 'the reader of standard output has gone'
check "at once" [ $(($(now_ms) - begin)) -lt 5000 ]
id=$(sed -n 's/^gradmesh: job \([0-9a-f]*\),.*/\1/p' "$err")
check "and leaves no process" eventually no_process_of "$id"
if [ -w /dev/full ]; then
    status=0
    gradmesh run -n 2 -- yes >/dev/full 2>"$err" || status=$?
    check "a full disk ends the job with 1" is "$status" 1
    check "and it is said" contains "$err" 'cannot write standard output.*No space left'
fi
gradmesh run -n 2 -- sh -c 'echo words; exit 4' >&- 2>"$err" </dev/null
check "a closed standard output harms nothing" is $? 4

# ---- the end of a pipeline is the end of the job, even when a worker left something behind
begin=$(now_ms)
gradmesh run -n 2 -- sh -c 'setsid sleep 60 & echo done' 2>"$err" | cat >"$out"
check "a pipeline ends with the job" [ $(($(now_ms) - begin)) -lt 10000 ]
check "with all of its output" is "$(grep -c done "$out")" 2
finish
