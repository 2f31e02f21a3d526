#!/bin/sh
# gradmesh report: which files it takes, what it says about those that it cannot use, and that data cannot break the page.
. tests/cli/tap.sh

share=$scratch/share
mkdir "$share" "$scratch/results" && cp report/page/*.html report/page/*.css report/page/*.js "$share" || exit 1
echo 'window.echarts = {};' >"$share/echarts.min.js" # the real one comes by npm; what is put together is the same
report() { capture gradmesh report --share "$share" "$@"; }
cd "$scratch" || exit 1

report
check "without records it says what makes some" contains "$err" 'make run, gradmesh scaling'
check "and that is wrong usage" is "$status" 2

echo '{"regime":"heavy","world_size":2,"transport":"tcp","median_ms":4.5,"speedup":1.9}' >results/scaling.jsonl
echo '{"some":"other file"}' >results/other.json
report
check "without RUN it takes the results directory" is "$status" 0
check "it says which kind of file it found" contains "$out" 'scaling.jsonl .*scaling study, 1 records'
check "what is no record there is left out with a word" contains "$out" 'left out: results/other.json'
check "it says how to get what is missing" contains "$out" 'gradmesh train --log FILE'
check "the page is written" contains results/report.html '"kind":"scaling"'
check "nothing else is left behind" is "$(ls results)" "other.json
report.html
scaling.jsonl"

report results/other.json
check "a named file that is no record is wrong usage" is "$status" 2
check "and named" contains "$err" 'results/other.json, line 1: JSON, but no record'
report nowhere.jsonl
check "a file that is not there is named" contains "$err" 'cannot read nowhere.jsonl: No such file'
printf '{"traceEvents":[{"ph":"X","pid":0,"ts":1' >cut.json
report cut.json
check "a cut file is said to break off" contains "$err" 'cut.json is not whole JSON: it breaks off'
printf '{"event":"start"}\n{"event":"step","step":1}\n{"event":"st' >live.jsonl
report live.jsonl -o live.html
check "a log that is still being written is taken without its last line" contains "$out" '2 records; its last line is not whole yet'
printf '{"event":"start"}\nnonsense\n{"event":"end"}\n' >broken.jsonl
report broken.jsonl
check "a broken line is named by its number" contains "$err" 'broken.jsonl, line 2: not JSON'

echo '{"event":"start","layers":"</script><script>alert(1)</script><!--"}' >hostile.jsonl
report hostile.jsonl -o hostile.html
check "data cannot end the script element that holds them" lacks hostile.html '</script><script>alert'
check "and are kept" contains hostile.html 'u003c/script>.u003cscript>alert(1)'
report results/scaling.jsonl -o nowhere/page.html
check "a page that cannot be written is said so" contains "$err" 'cannot write nowhere/page.html'
check "with status 1" is "$status" 1
report results/scaling.jsonl -o page.html --json
check "--json names page and files" contains "$out" '"kind":"scaling"'

cp results/scaling.jsonl kept.jsonl
report kept.jsonl -o kept.jsonl
check "a record is not overwritten by the page made of it" contains "$err" 'kept.jsonl is to be read'
check "and stays as it was" cmp -s kept.jsonl results/scaling.jsonl
report kept.jsonl -o a.gif --movie a.gif
check "page and film are two files" contains "$err" 'a.gif cannot be the page and the film'
echo mine >results/report.html
report kept.jsonl
check "a file that nobody named and gradmesh did not write stays" contains "$err" 'results/report.html is there and is no page of gradmesh'
check "untouched" is "$(cat results/report.html)" mine
report kept.jsonl --svg pictures --browser /nowhere/chromium
check "pictures alone write no page" lacks "$out" '^report: '
check "none at all" is "$(cat results/report.html)" mine
rm results/report.html

rm "$share/echarts.min.js"
report results/scaling.jsonl
check "without the chart library it says what to do" contains "$err" 'install npm .* make charts'
finish
