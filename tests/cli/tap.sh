# Sourced by the command-line tests: TAP lines, a scratch folder, waiting for conditions.
set -u
command -v gradmesh >/dev/null || { echo "not ok - gradmesh is not in PATH"; exit 1; }
n_tests=0
scratch=$(mktemp -d) || exit 1
trap 'rm -rf "$scratch"' EXIT
trap 'exit 1' HUP INT TERM
out=$scratch/out err=$scratch/err

# check NAME COMMAND...: passes when the command does.
check() {
    name=$1
    shift
    n_tests=$((n_tests + 1))
    if "$@"; then
        echo "ok $n_tests - $name"
    else
        echo "not ok $n_tests - $name"
        echo "# failed: $*"
        for file in "$out" "$err"; do
            [ -s "$file" ] && sed "s|^|# ${file##*/}: |" "$file" | cut -c1-300 | tail -n 20
        done
    fi
}

skip() { # NAME WHY
    n_tests=$((n_tests + 1))
    echo "ok $n_tests - $1 # SKIP $2"
}

# Runs a command with its output in $out and $err; its exit status is in $status.
capture() {
    status=0
    "$@" >"$out" 2>"$err" </dev/null || status=$?
}

# eventually COMMAND...: tries until it succeeds, for 20 seconds at most.
eventually() {
    tries=0
    until "$@" 2>/dev/null; do
        tries=$((tries + 1))
        [ "$tries" -lt 400 ] || return 1
        sleep 0.05
    done
}

contains() { grep -q -e "$2" "$1"; }      # FILE PATTERN
lacks() { ! grep -q -e "$2" "$1"; }       # FILE PATTERN
is() { [ "$1" = "$2" ] || { echo "# got '$1', wanted '$2'"; return 1; }; }
matches() { expr "$1" : "$2\$" >/dev/null; } # TEXT PATTERN, the whole of it
now_ms() { date +%s%3N; }

# Living processes that carry this job's id in their environment.
job_processes() {
    grep -lzx -e "GRADMESH_JOB_ID=$1" /proc/[0-9]*/environ 2>/dev/null | sed 's|/proc/\([0-9]*\)/.*|\1|'
}
no_process_of() { [ -z "$(job_processes "$1")" ]; }

# Is there no such process, or is it only waiting to be reaped?
is_gone() {
    state=$(sed 's/.*) \(.\).*/\1/' "/proc/$1/stat" 2>/dev/null)
    [ -z "$state" ] || [ "$state" = Z ]
}
all_gone() { for pid in "$@"; do is_gone "$pid" || return 1; done; }

finish() { echo "1..$n_tests"; }
