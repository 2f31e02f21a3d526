#!/bin/sh
# Runs Spin over the models. Usage: run.sh; prints a line per search, exits non-zero when one is not as it must be.
set -u
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
command -v spin >/dev/null 2>&1 || { echo "docs/model: spin is missing: apt-get install spin" >&2; exit 2; }
failed=0 passed=0

# search WANTED MODEL DEFINES...: a whole search; WANTED is "good" or the text that the error must have.
search() {
    wanted=$1 model=$2
    shift 2
    dir=$(mktemp -d "$work/XXXXXX")
    out=$(cd "$dir" && spin -a "$@" "$here/$model" 2>&1 &&
          ${CC:-cc} -O2 -w -DSAFETY -DCOLLAPSE -DMEMLIM=4096 -o pan pan.c 2>&1 && timeout 600 ./pan -m200000 -w20 2>&1)
    errors=$(printf '%s\n' "$out" | sed -n 's/.*errors: \([0-9]*\).*/\1/p')
    states=$(printf '%s\n' "$out" | sed -n 's/ *\([0-9.e+]*\) states, stored.*/\1/p')
    case "$wanted" in
    good) [ "$errors" = 0 ] && ! printf '%s\n' "$out" | grep -q "search not completed\|max search depth too small\|out of memory" ;;
    *)    [ "${errors:-0}" -gt 0 ] && printf '%s\n' "$out" | grep -q "$wanted" ;;
    esac
    if [ $? = 0 ]; then
        passed=$((passed + 1))
        echo "ok    $model $* ($states states): $wanted"
    else
        failed=$((failed + 1))
        echo "FAIL  $model $*: wanted: $wanted"
        printf '%s\n' "$out" | sed 's/^/      /' | head -40
    fi
}

for n in 2 3; do
    for sizes in "1 1" "2 1" "1 2" "3 1" "3 2" "2 3"; do
        set -- $sizes
        search good ring.pml -DN=$n -DC=$1 -DK=$2
    done
done
search good ring.pml -DN=4 -DC=1 -DK=1
search good ring.pml -DN=4 -DC=2 -DK=1
search "invalid end state" ring.pml -DBLOCKING -DN=3 -DC=2 -DK=1
search good ring.pml -DBLOCKING -DN=3 -DC=2 -DK=2

for n in 2 3 4; do
    search good abort.pml -DN=$n -DCALLS=1
done
search good abort.pml -DN=3 -DCALLS=2
search good abort.pml -DN=3 -DCALLS=2 -DDEATHS=0
search good abort.pml -DN=4 -DCALLS=1 -DDEATHS=2
search "assertion violated" abort.pml -DNO_GRACE -DN=3 -DCALLS=1

echo "$passed passed, $failed failed"
[ $failed = 0 ]
