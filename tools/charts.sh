#!/bin/sh
# Brings the chart library of the report's page into a folder: npm's package echarts, in the version and with the
# checksum that report/page/package-lock.json names.
#   sh tools/charts.sh FOLDER
# Does nothing when it is there. Gives up after CHARTS_TIMEOUT seconds (60). Exit status: 0 it is there, 1 it is not.
set -u

folder=${1:?usage: charts.sh FOLDER}
page=$(dirname "$0")/../report/page
limit=${CHARTS_TIMEOUT:-60}

fail() {
    echo "charts: $1; everything but gradmesh report works without it (make charts tries again)" >&2
    exit 1
}

wanted=$(cksum <"$page/package-lock.json") || fail "report/page/package-lock.json cannot be read"
[ -s "$folder/echarts.min.js" ] && [ "$(cat "$folder/.charts" 2>/dev/null)" = "$wanted" ] && exit 0
command -v npm >/dev/null 2>&1 || fail "npm is not installed, and the chart library comes by it"

mkdir -p "$folder" || fail "$folder cannot be made"
work=$(mktemp -d "$folder/.charts.XXXXXX") || fail "no folder can be made in $folder"
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
cp "$page/package.json" "$page/package-lock.json" "$page/.npmrc" "$work/" || fail "$work cannot be written"
if ! (cd "$work" && timeout -k 5 "$limit" npm ci --ignore-scripts --no-audit --no-fund --no-update-notifier \
    --loglevel=error --fetch-retries=1 --fetch-retry-mintimeout=1000 --fetch-timeout=30000) \
    >"$work/npm.log" 2>&1 </dev/null
then
    sed 's/^/  /' "$work/npm.log" | head -n 4 >&2
    fail "npm could not bring the chart library within $limit s (is there a network?)"
fi
library=$work/node_modules/echarts
[ -s "$library/dist/echarts.min.js" ] || fail "the package that npm brought has no echarts.min.js"
cp "$library/LICENSE" "$folder/echarts.LICENSE" && cp "$library/NOTICE" "$folder/echarts.NOTICE" &&
    cp "$library/dist/echarts.min.js" "$work/library" && chmod 644 "$work/library" &&
    mv -f "$work/library" "$folder/echarts.min.js" && echo "$wanted" >"$folder/.charts" ||
    fail "$folder cannot be written"
