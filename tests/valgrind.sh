#!/bin/sh
# Runs tests under valgrind (memcheck): an access that is wrong, a value that was never set, memory that nobody can reach any
# more is an error, also in forked ranks. Tests take some 20 times as long: their limits are stretched, and one that is not over
# after VALGRIND_LIMIT seconds is ended and counted as not clean.
#   BUILD=build sh tests/valgrind.sh src/coll/ring_test ...
set -u
log_dir=$BUILD/log/valgrind
mkdir -p "$log_dir"
failed=0
for test in "$@"; do
    log=$log_dir/$(echo "$test" | tr / _).log
    TEST_SLOWNESS=20 timeout "${VALGRIND_LIMIT:-900}" valgrind -q --error-exitcode=99 --leak-check=full \
        --suppressions=tests/valgrind.supp --errors-for-leak-kinds=definite "$BUILD/tests/$test" >"$log" 2>&1
    status=$?
    if [ $status = 0 ] && ! grep -q '^==[0-9]*== [A-Z0-9]' "$log"; then
        echo "clean   $test"
    else
        failed=$((failed + 1))
        echo "FAILED  $test, status $status: $log"
        grep '^==' "$log" | head -n 12
    fi
done
echo "$# tests under valgrind, $failed not clean"
[ "$failed" = 0 ]
