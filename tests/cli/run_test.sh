#!/bin/sh
# gradmesh run: options, environment, exit statuses, and who is named when something fails.
. "$(dirname "$0")/tap.sh"

# Usage: capture_run SCRIPT N: runs it as N shells.
capture_run() { capture gradmesh run -n "$2" -- sh -c "$1"; }
last_block() { sed -n '/failed first/,$p' "$err"; }
ends_with_block() { last_block >"$scratch/block"; contains "$scratch/block" "$1"; }

# ---- wrong usage
usage() { # NAME PATTERN ARGUMENT...
    name=$1 pattern=$2
    shift 2
    capture gradmesh run "$@"
    check "$name: exit status 2" is "$status" 2
    check "$name: one line says why" contains "$err" "$pattern"
    check "$name: one line only" is "$(wc -l <"$err")" 1
}
usage "no -n" 'how many workers'  -- true
usage "no program" 'program to run is missing' -n 2
usage "-n without a number" "whole number, not '2x'" -n 2x -- true
usage "-n 0" 'from 1 to 1024, not 0' -n 0 -- true
usage "-n without anything" 'wants a whole number after it' -n
usage "port out of range" 'from 0 to 65535, not 70000' -n 1 --port 70000 -- true
usage "unknown checksum" "no checksum 'md5'" -n 1 --checksum md5 -- true
usage "wrong choice" "one of none, cores, not 'core'" -n 1 --bind core -- true
usage "value for a flag" 'takes no value' -n 1 --no-prefix=yes -- true
usage "beginning of a name" 'unknown option --time (did you mean --timeout?)' -n 1 --time 3 -- true
usage "json into nowhere" 'cannot write' -n 1 --json=/nonexistent/folder/x -- true

capture gradmesh run -n 1 printf '%s,' -n 5 --help -- x
check "options after the program are the program's" contains "$out" '^\[0\] -n,5,--help,--,x,$'

# ---- what a worker is told
capture gradmesh run -n 3 --port 0 -- env
for variable in GRADMESH_RANK=1 RANK=1 GRADMESH_LOCAL_RANK=1 LOCAL_RANK=1 GRADMESH_WORLD_SIZE=3 WORLD_SIZE=3 \
    LOCAL_WORLD_SIZE=3 MASTER_ADDR=127.0.0.1; do
    check "rank 1 gets $variable" contains "$out" "^\[1\] $variable\$"
done
value_of() { sed -n "s/^\[$1\] $2=//p" "$out"; }
id=$(value_of 0 GRADMESH_JOB_ID)
check "the job id has 16 to 31 characters" matches "$id" '[0-9a-f]\{16,31\}'
check "all ranks have the same job id" is "$(value_of 2 GRADMESH_JOB_ID)" "$id"
check "the store is on loopback" contains "$out" '^\[0\] GRADMESH_STORE=127.0.0.1:[0-9][0-9]*$'
check "the store's port is not MASTER_PORT" [ "127.0.0.1:$(value_of 0 MASTER_PORT)" != "$(value_of 0 GRADMESH_STORE)" ]
capture gradmesh run -n 1 -- env
check "every run has another job id" [ "$(value_of 0 GRADMESH_JOB_ID)" != "$id" ]
capture env RANK=77 GRADMESH_JOB_ID=outer MASTER_PORT=1 gradmesh run -n 1 -- env
check "the launcher's variables replace inherited ones" is "$(value_of 0 RANK)" 0
check "the job around a job is named" is "$(value_of 0 GRADMESH_OUTER_JOBS)" outer
capture gradmesh run -n 3 -- ls /proc/self/fd
check "no descriptor leaks into a worker" is "$(grep -c '^\[2\]' "$out")" "$(ls /proc/self/fd | wc -l)"

capture gradmesh run -n 2 --encrypt --checksum crc32c -- env
check "--encrypt reaches the workers" contains "$out" '^\[1\] GRADMESH_ENCRYPT=1$'
check "--checksum reaches the workers" contains "$out" '^\[1\] GRADMESH_CHECKSUM=crc32c$'

# ---- workers that do not see the launcher's process, in whose memory the secret is
if unshare -pf --mount-proc true 2>/dev/null; then
    capture gradmesh run -n 2 -- unshare -pf --mount-proc gradmesh bench barrier --iters 1
    check "a worker in a PID namespace of its own does not get in" is "$status" 1
    check "it is told what to do" contains "$err" 'PID namespace that is not seen from here.*GRADMESH_SECRET_FILE'
    head -c 32 /dev/urandom >"$scratch/secret" && chmod 600 "$scratch/secret"
    capture env GRADMESH_SECRET_FILE="$scratch/secret" gradmesh run -n 2 -- unshare -pf --mount-proc gradmesh bench barrier --iters 1
    check "with a file as secret it does" is "$status" 0
fi

printf 'fed\n' | gradmesh run -n 2 -- sh -c 'echo "$(wc -l)"' >"$out" 2>"$err"
check "rank 0 reads standard input" contains "$out" '^\[0\] 1$'
check "the others read nothing" contains "$out" '^\[1\] 0$'

capture_run 'echo $$' 2
check "pids are told at the start" is "$(sed -n 's/^rank 1 pid //p' "$err")" "$(sed -n 's/^\[1\] //p' "$out")"
check "and at the end that none of them joined" is "$(sed -n 's/^gradmesh: //p' "$err")" \
    "warning: no rank joined the job; 2 programs ran side by side, each by itself (do they use gradmesh?)"
quick_training="gradmesh train --data synthetic:64,20 --layers 784,8,10 --batch 16 --steps 2"
# shellcheck disable=SC2086
capture gradmesh run -n 2 -- $quick_training
check "a good run says nothing more" is "$status $(grep -vc "OpenBLAS does not know" "$err")" "0 2"
# shellcheck disable=SC2086
capture gradmesh run -n 2 -- env GRADMESH_RANK=0 GRADMESH_WORLD_SIZE=1 $quick_training
check "workers that were told to be alone are found out" contains "$err" "warning: no rank joined the job; 2 programs"
capture gradmesh run -n 1 -- true
check "one worker has nobody to join" is "$(wc -l <"$err")" 1
capture_run 'ps -o ppid= -p $$ 2>/dev/null || sed "s/.*) . \([0-9]*\).*/\1/" /proc/$$/stat' 2
check "workers are children of one launcher" is "$(sed 's/^\[.\] *//' "$out" | sort -u | wc -l)" 1

# ---- cores
mask() { sed -n "s/^\[$1\] Cpus_allowed_list:[[:space:]]*//p" "$out"; }
mine=$(sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' /proc/self/status)
capture gradmesh run -n 3 -- grep Cpus_allowed_list /proc/self/status
check "workers keep the launcher's mask" is "$(mask 0) $(mask 2)" "$mine $mine"
check "nothing is said of cores" lacks "$err" "core"
if command -v taskset >/dev/null 2>&1 && [ "$(getconf _NPROCESSORS_ONLN)" -gt 1 ]; then
    core=$(taskset -cp $$ | sed 's/.*: *//; s/[,-].*//')
    capture taskset -c "$core" gradmesh run -n 2 -- true
    check "workers on one core of several are a warning" contains "$err" "warning: all 2 workers share core $core: "
else
    skip "workers on one core of several are a warning" "needs taskset and two cores"
fi
capture gradmesh run -n 3 --bind cores --verbose -- grep Cpus_allowed_list /proc/self/status
check "--bind cores gives each rank one core" matches "$(mask 1)" '[0-9][0-9]*'
check "--bind cores says so with --verbose" contains "$err" 'rank 1 is bound to core [0-9]'

# ---- exit statuses
status_of() { # NAME WANTED SCRIPT
    capture_run "$3" 3
    check "$1" is "$status" "$2"
}
status_of "all succeed: 0" 0 'exit 0'
status_of "a rank exits with 3: 3" 3 '[ $RANK = 1 ] && exit 3; exit 0'
status_of "segmentation fault: 139" 139 '[ $RANK = 1 ] && kill -SEGV $$; sleep 30'
check "and the signal is named" contains "$err" 'rank 1 failed first: it was killed by SIGSEGV'
status_of "SIGKILL: 137" 137 '[ $RANK = 1 ] && kill -KILL $$; sleep 30'
check "and the reason is guessed" contains "$err" 'lack of memory'
status_of "one that exits 0 early does not end the job" 0 '[ $RANK = 1 ] && exit 0; sleep 0.2; echo late'
check "the others went on" is "$(grep -c late "$out")" 2
capture gradmesh run -n 3 -- "$scratch/no-such-program"
check "no such program: 127" is "$status" 127
check "no such program: the reason" contains "$err" 'cannot run .*no-such-program: No such file'
check "no such program: no worker was started" lacks "$err" 'pid'
capture gradmesh run -n 3 -- no-such-program
check "no such program in PATH: 127" is "$status" 127
printf 'not a program\n' >"$scratch/plain"
capture gradmesh run -n 3 -- "$scratch/plain"
check "not executable: 126" is "$status" 126
check "not executable: the reason" contains "$err" 'Permission denied'
printf '#!/no/such/interpreter\n' >"$scratch/script"
chmod +x "$scratch/script"
capture gradmesh run -n 1 -- "$scratch/script"
check "no interpreter: 126" is "$status" 126
check "no interpreter: the reason" contains "$err" 'interpreter'

# ---- the first failure
begin=$(now_ms)
capture_run '[ $RANK = 2 ] && exit 7; sleep 30' 4
check "a failing rank gives the exit status" is "$status" 7
check "it is named" ends_with_block 'rank 2 failed first: it exited with status 7'
check "the others are listed as consequences" ends_with_block 'consequence, ranks 0, 1, 3 were ended by the launcher (SIGTERM)'
check "it ends at once" [ $(($(now_ms) - begin)) -lt 5000 ]

capture_run 'if [ $RANK = 1 ]; then echo "the reason" >&2; exit 9; fi; i=0; while [ $i -lt 3000 ]; do echo noise >&2; i=$((i+1)); done; sleep 30' 3
check "noise of others does not hide the reason" ends_with_block '| the reason$'
check "the block is the last thing said" is "$(sed -n '/failed first/,$p' "$err" | grep -c -v '^gradmesh: ')" 0

capture_run "trap '' TERM; if [ \$RANK = 0 ]; then until [ -e '$scratch/deaf' ]; do :; done; exit 5; fi; : >'$scratch/deaf'; while :; do sleep 1; done" 2
check "a rank that ignores TERM is killed after the grace" ends_with_block 'rank 1 was ended by the launcher (SIGKILL)'
check "and the status stays that of the first" is "$status" 5

# The others learn of the death by the end of a pipe, as they would from a socket, and report it (3).
mkfifo "$scratch/fifo"
right=0
for round in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
    how='exit 7' wanted=7
    [ $((round % 2)) = 0 ] && how='kill -KILL $$' wanted=137
    capture_run "if [ \$RANK = 2 ]; then exec 3>'$scratch/fifo'; echo boom >&2; $how; fi; read x <'$scratch/fifo'; exit 3" 4
    if [ "$status" = "$wanted" ] && grep -q 'rank 2 failed first' "$err"; then right=$((right + 1)); fi
done
check "the first rank is named 20 of 20 times, while others report it" is "$right" 20
capture_run '[ $RANK = 1 ] && exit 3; sleep 30' 3
check "status 3 without another failure is a failure too" is "$status" 3

# ---- time limit, ports
begin=$(now_ms)
capture gradmesh run -n 2 --timeout 0.3 -- sleep 30
check "time limit: 124" is "$status" 124
check "time limit: said" contains "$err" 'time limit of 0.3 s has passed'
check "time limit: in time" [ $(($(now_ms) - begin)) -lt 5000 ]
capture gradmesh run -n 2 --timeout 30 -- true
check "a job within its time limit is not disturbed" is "$status" 0

# A first job chooses a port; a second may not have it while it runs, and may right afterwards.
gradmesh run -n 1 -- sh -c 'echo $GRADMESH_STORE; exec sleep 60' >"$scratch/first" 2>/dev/null &
first=$!
eventually contains "$scratch/first" '127.0.0.1'
port=$(sed 's/.*://' "$scratch/first")
begin=$(now_ms)
capture gradmesh run -n 2 --port "$port" -- true
check "a port in use: exit status 1" is "$status" 1
check "a port in use: address and port are named" contains "$err" "127.0.0.1:$port"
check "a port in use: no worker was started" lacks "$err" 'rank 0 pid'
check "a port in use: within 2 s" [ $(($(now_ms) - begin)) -lt 2000 ]
kill -TERM "$first"
wait "$first"
capture gradmesh run -n 2 --port "$port" -- sh -c 'echo $GRADMESH_STORE'
check "the port is free again at once" contains "$out" "^\[0\] 127.0.0.1:$port\$"

# ---- JSON
capture gradmesh run -n 2 --json -- sh -c 'echo words; exit $RANK'
check "--json leaves standard output to one object" is "$(wc -l <"$out")" 1
check "--json: the object" contains "$out" '^{"job_id":".*"exit_status":1.*"first_failed":1.*}$'
check "--json: the workers' output is on standard error" contains "$err" '^\[1\] words$'
capture gradmesh run -n 1 --json="$scratch/result" -- echo words
check "--json=FILE writes the file" contains "$scratch/result" '"end":"done"'
check "--json=FILE leaves the output alone" contains "$out" '^\[0\] words$'
capture gradmesh run -n 1 --json "$scratch/result.json" echo words
check "--json FILE.json writes the file" contains "$scratch/result.json" '"end":"done"'
capture gradmesh run -n 1 --json echo words
check "--json does not take the program for a file" contains "$err" '^\[0\] words$'
check "nothing is left beside the files" is "$(ls "$scratch" | grep -c tmp)" 0

# ---- descriptors
capture sh -c 'ulimit -n 48; exec gradmesh run -n 24 -- sleep 30'
check "too few descriptors: refused" is "$status" 1
check "too few descriptors: limit and need are named" contains "$err" 'need [0-9]* open descriptors.*limit is 48'
capture sh -c 'ulimit -S -n 48; exec gradmesh run -n 24 -- sh -c "ulimit -n"'
check "a soft limit is raised for the launcher" is "$status" 0
check "and given back to the workers" contains "$out" '^\[23\] 48$'
finish
