#!/bin/sh
# The end of make lint: looks at the sources with cppcheck, adds what clang-tidy and gcc's analyzer have found in each
# (lint_file.sh), and compares. What is found and tools/lint.allowed does not explain is an error; so is an explanation of
# something that is not found any more.
#   LINT=build/lint sh tools/lint.sh whole|part FILE.c...      part: explanations of other files, and of headers, are left alone
set -u
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
extent=$1
shift

# A finding is a line "file: message [check]"; line numbers would make the list of the explained ones go stale.
mkdir -p "$LINT/cppcheck"
cppcheck -q --cppcheck-build-dir="$LINT/cppcheck" --enable=warning,performance,portability --inline-suppr --std=c11 \
    -Iinclude -Isrc -I. -D_GNU_SOURCE -D__GNUC__=12 --include=tools/cppcheck.h --suppress=missingIncludeSystem \
    --template='{file}:{line}: {message} [{id}]' --template-location='' "$@" >"$work/cppcheck" 2>&1 || {
    cat "$work/cppcheck"
    exit 1
}
grep '\[[A-Za-z]*\]$' "$work/cppcheck" >"$work/found"
for file in "$@"; do
    cat "$LINT/${file%.c}.found" >>"$work/found" || exit 1
done

sed -E 's/^(\.\/)?([^:]+):.*\[([^]]*)\]$/\2 \3/' "$work/found" | sort -u >"$work/keys"
sed -E '/^#|^$/d; s/^([^ ]+) ([^ ]+).*/\1 \2/' tools/lint.allowed | sort -u >"$work/allowed"
status=0
comm -23 "$work/keys" "$work/allowed" >"$work/new"
while read -r file check; do
    status=1
    grep -F "$file" "$work/found" | grep -F "[$check]"
done <"$work/new"
comm -13 "$work/keys" "$work/allowed" >"$work/stale"
if [ "$extent" = part ]; then
    printf '%s\n' "$@" >"$work/files"
    awk 'NR == FNR { looked_at[$1] = 1; next } $1 in looked_at' "$work/files" "$work/stale" >"$work/stale.here"
    mv "$work/stale.here" "$work/stale"
fi
if [ -s "$work/stale" ]; then
    status=1
    echo "tools/lint.allowed explains what is not found any more:"
    cat "$work/stale"
fi
echo "$# files: $(wc -l <"$work/new") findings not explained, $(comm -12 "$work/keys" "$work/allowed" | wc -l) explained"
exit $status
