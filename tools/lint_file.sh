#!/bin/sh
# What clang-tidy and gcc's analyzer find in one source file. Usage: lint_file.sh FILE.c FOUND; beside FOUND it leaves FOUND.d,
# for make: what the file includes. A tool that fails without a finding is an error: silence is not cleanness.
set -u
file=$1 found=$2
flags='-std=gnu11 -Iinclude -Isrc -I. -D_GNU_SOURCE -DGM_BUILDING_SHARED'
new=$found.new.$$
trap 'rm -f "$new" "$new".*' EXIT

clang-tidy --quiet "$file" -- $flags >"$new.tidy" 2>"$new.words"
status=$?
grep -E '^[^ ]+:[0-9]+:[0-9]+: (warning|error): ' "$new.tidy" | sed "s|^$(pwd)/||; s|^\./||; s/,-warnings-as-errors//" >"$new"
if [ $status != 0 ] && [ ! -s "$new" ]; then
    cat "$new.words" >&2
    echo "lint: clang-tidy fails on $file, status $status" >&2
    exit 1
fi
if ! gcc $flags -O2 -fanalyzer -MMD -MP -MT "$found" -MF "$found.d" -c -o /dev/null "$file" 2>"$new.gcc"; then
    cat "$new.gcc" >&2
    exit 1
fi
grep -E ': warning: .*\[-W' "$new.gcc" | sed 's/\x1b\[[0-9;]*m//g' >>"$new"
mv "$new" "$found"
