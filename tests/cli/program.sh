# Sourced by the tests of gradmesh train, eval, predict and parity: TAP lines, a scratch folder, runs of the program.
set -u
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
number=0
same() { [ -n "$1" ] && [ "$1" = "$2" ]; } # nothing equals nothing otherwise

# check NAME COMMAND...: passes when the command succeeds; shows what it printed when it does not.
check() {
    number=$((number + 1))
    name=$1
    shift
    if "$@" >"$work/check" 2>&1; then
        echo "ok $number - $name"
    else
        echo "not ok $number - $name"
        sed 's/^/# /' "$work/check" "$work/out" "$work/err" 2>/dev/null | head -40
    fi
}

# run ARGS...: runs the program; output in $work/out and $work/err, status in $status.
run() {
    gradmesh "$@" >"$work/out" 2>"$work/err"
    status=$?
}
