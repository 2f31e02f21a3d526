#!/bin/sh
# The program itself: help, version, subcommands, and how wrong usage is answered.
. "$(dirname "$0")/tap.sh"

one_line() { is "$(wc -l <"$1")" 1; }

capture gradmesh --version
check "version is printed" contains "$out" '^gradmesh [0-9]*\.[0-9]*\.[0-9]*$'

capture gradmesh --help
check "help lists the commands on standard output" contains "$out" '^  run '
check "help exits with 0" is "$status" 0

capture gradmesh
check "no command is wrong usage" is "$status" 2
check "and shows help on standard error" contains "$err" 'usage: gradmesh COMMAND'

capture gradmesh rum
check "an unknown command is wrong usage" is "$status" 2
check "and the nearest one is suggested" contains "$err" "did you mean 'run'"
check "in one line" one_line "$err"

gradmesh run --help >"$scratch/a" 2>&1
capture gradmesh help run
check "help COMMAND equals COMMAND --help" cmp -s "$scratch/a" "$out"

gradmesh --help >/dev/full 2>"$err"
check "what cannot be written is a failure" is $? 1
check "with a sentence" contains "$err" '^gradmesh: cannot write standard output: No space left on device$'
gradmesh train --data synthetic --steps 1 >/dev/full 2>"$err"
check "also of a training by one process" is $? 1
gradmesh --help >&- 2>"$err"
check "an output that was closed on purpose is none" is $? 0

# Each command that there is has the three options that all have, and refuses an unknown one.
for command in $(gradmesh --help | sed -n 's/^  \([a-z]*\)  .*/\1/p'); do
    capture gradmesh "$command" --help
    check "$command --help works" is "$status" 0
    check "$command has --verbose" contains "$out" '-v, --verbose'
    check "$command has --json" contains "$out" '--json'
    capture gradmesh "$command" --hepl
    check "$command refuses an unknown option" is "$status" 2
    check "$command suggests the nearest" contains "$err" 'did you mean --help'
    check "$command does it in one line that names its help" contains "$err" "^gradmesh $command: .*; see gradmesh $command --help$"
done
finish
