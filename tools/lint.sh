#!/bin/sh
# Looks at the sources with cppcheck, clang-tidy and gcc's analyzer. What they find and tools/lint.allowed does not explain
# is an error; so is an explanation of something that they no longer find. Usage: lint.sh [FILE...]; takes some minutes.
set -u
cd "$(dirname "$0")/.."
flags='-std=gnu11 -Iinclude -Isrc -I. -D_GNU_SOURCE -DGM_BUILDING_SHARED'
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
missing=
for tool in cppcheck clang-tidy; do command -v $tool >/dev/null 2>&1 || missing="$missing $tool"; done
[ -z "$missing" ] || sh tools/install.sh $missing || exit 2

files=${*:-$(ls src/*.c src/*/*.c train/*.c cli/*.c launch/*.c bench/*.c bench/kernels/*.c plan/*.c report/*.c study/*.c examples/*.c | grep -v _test.c)}
# A finding is a line "file: message [check]"; line numbers would make the list of the explained ones go stale.
cppcheck -q --enable=warning,performance,portability --inline-suppr --std=c11 -Iinclude -Isrc -I. -D_GNU_SOURCE \
    -D__GNUC__=12 --include=tools/cppcheck.h --suppress=missingIncludeSystem --template='{file}:{line}: {message} [{id}]' --template-location='' $files \
    2>&1 | grep '\[[A-Za-z]*\]$' >>"$work/found"
printf '%s\n' $files | xargs -P"$(nproc)" -I{} sh -c "clang-tidy --quiet {} -- $flags 2>/dev/null" |
    grep -E '^[^ ]+:[0-9]+:[0-9]+: (warning|error): ' | sed "s|^$(pwd)/||; s|^\./||; s/,-warnings-as-errors//" >>"$work/found"
printf '%s\n' $files | xargs -P"$(nproc)" -I{} sh -c "gcc $flags -O2 -fanalyzer -c -o /dev/null {} 2>&1" |
    grep -E ': warning: .*\[-W' | sed 's/\x1b\[[0-9;]*m//g' >>"$work/found"

sed -E 's/^(\.\/)?([^:]+):.*\[([^]]*)\]$/\2 \3/' "$work/found" | sort -u >"$work/keys"
sed -E '/^#|^$/d; s/^([^ ]+) ([^ ]+).*/\1 \2/' tools/lint.allowed | sort -u >"$work/allowed"
status=0
comm -23 "$work/keys" "$work/allowed" >"$work/new"
while read -r file check; do
    status=1
    grep -F "$file" "$work/found" | grep -F "[$check]"
done <"$work/new"
if [ $# = 0 ] && [ -n "$(comm -13 "$work/keys" "$work/allowed")" ]; then
    status=1
    echo "tools/lint.allowed explains what is not found any more:"
    comm -13 "$work/keys" "$work/allowed"
fi
echo "$(wc -l <"$work/new") findings not explained, $(comm -12 "$work/keys" "$work/allowed" | wc -l) explained"
exit $status
