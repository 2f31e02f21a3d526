#!/bin/sh
# gradmesh train --live: the page while a training runs, for whoever has the token, and the training does not care.
. tests/cli/tap.sh

if [ ! -s "$BUILD/share/gradmesh/echarts.min.js" ]; then
    skip "the page is served" "no chart library (make charts)"
    finish
    exit
fi

# get PATH?QUERY: status code in $code, body in $scratch/body.
get() { code=$(curl -s -o "$scratch/body" -w '%{http_code}' --max-time 20 "$address$1"); }
page_is_told() { grep -q '^live: http' "$err"; }
has_steps() { get "data.json?$token" && contains "$scratch/body" '"event":"step"'; }

capture gradmesh train --data synthetic --steps 1 --live=99999
check "a port that is none is wrong usage" is "$status" 2
check "and is named" contains "$err" "live=99999: a port is a number"

if ! command -v curl >/dev/null 2>&1; then
    skip "the page is fetched" "no curl"
    finish
    exit
fi
gradmesh train -n 2 --data synthetic --layers 784,32,10 --steps 2000000 --schedule constant --log-every 20 --live >"$out" 2>"$err" </dev/null &
pid=$!
trap 'kill "$pid" 2>/dev/null; wait "$pid" 2>/dev/null; rm -rf "$scratch"' EXIT
check "it says where the page is" eventually page_is_told
url=$(sed -n 's/^live: //p' "$err")
address=${url%%\?*} token=${url#*\?}
check "on loopback" matches "$address" 'http://127\.0\.0\.1:[0-9]*/'
get "?$token"
check "the page is there" is "$code" 200
check "and asks for data again and again" contains "$scratch/body" '"live":{"every_ms":1000}'
check "the data grow as it trains" eventually has_steps
cp "$scratch/body" "$scratch/earlier"
grown() { get "data.json?$token" && [ "$(wc -c <"$scratch/body")" -gt "$(wc -c <"$scratch/earlier")" ]; }
check "and go on growing" eventually grown
get "data.json"
check "without the token nothing is told" is "$code" 403
get "data.json?token=00000000000000000000000000000000"
check "nor with a wrong one" is "$code" 403
get "..%2f..%2fetc/passwd?$token"
check "there are no other files" is "$code" 404
code=$(curl -s -o /dev/null -w '%{http_code}' --max-time 20 -X POST "$address?$token")
check "nothing can be posted" is "$code" 405
get "data.json?$token"
kill -TERM "$pid"
wait "$pid"
check "a signal ends it" [ $? -ne 0 ]
check "the address is gone with it" [ "$(curl -s -o /dev/null -w '%{http_code}' --max-time 5 "$address?$token")" = 000 ]

: >"$err" # the address in it is that of the run before
# A page sees the whole course, piece by piece, and the end before the server goes.
gradmesh train -n 2 --transport tcp --data synthetic:5000,200 --layers 784,16,10 --steps 2000 --log-every 50 --log "$scratch/log.jsonl" \
    --trace "$scratch/trace.json" --trace-steps 3 --live >"$out" 2>"$err" </dev/null &
pid=$!
eventually page_is_told
url=$(sed -n 's/^live: //p' "$err")
address=${url%%\?*} token=${url#*\?}
next=0 traces=0
: >"$scratch/seen"
while curl -s -f --max-time 20 "${address}data.json?$token&from=$next&trace=$traces&viewer=7" >"$scratch/body"; do
    cat "$scratch/body" >>"$scratch/seen"
    next=$(sed -n 's/.*"live":{[^}]*"next":\([0-9]*\).*/\1/p' "$scratch/body")
    traces=$(sed -n 's/.*"live":{[^}]*"trace":\([0-9]*\).*/\1/p' "$scratch/body")
    if contains "$scratch/body" '"is_over":true'; then break; fi
    sleep 0.05
done
wait "$pid"
check "the training ends well" is $? 0
events() { grep -o "\"event\":\"$1\"" "$2" | grep -c .; }
check "the last answer says that it is over" contains "$scratch/body" '"is_over":true'
check "each record was told once" is "$(events step "$scratch/seen")" "$(events step "$scratch/log.jsonl")"
check "the end too" is "$(events end "$scratch/seen")" 1
check "a step is split for each rank" contains "$scratch/seen" '"by_rank":\[{"rank":0,"compute_ms":[0-9.]*,.*"rank":1'
check "with --trace the last steps are shown" contains "$scratch/seen" '"kind":"trace"'
check "what that moves is not in the account" matches "$(grep -c 'as the formula says.*the kernel agrees' "$out")" 2

gradmesh train --data synthetic --layers 784,16,10 --steps 40 --log "$scratch/log.jsonl" --live >"$out" 2>"$err"
check "nobody needs to look at it" contains "$scratch/log.jsonl" '"event":"end"'
finish
