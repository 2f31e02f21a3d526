#!/bin/sh
# The reproducible kernels built in other ways: with other compilers and levels they give the known number, and
# a build that may reorder arithmetic is refused at its start.
. "$(dirname "$0")/../cli/tap.sh"
cat >"$scratch/main.c" <<'END'
#include <stdio.h>
#include <string.h>
#include "train/bits.h"
int main(int argc, char **argv)
{
    gm_error error = { 0 };
    if (argc > 1 && !gmt_bits_use(argv[1])) return 77;
    if (gmt_bits_check(&error) == GM_OK) return 0;
    puts(error.text);
    return 1;
}
END
# compiler, variant, flags: the exit code is the program's. What is not compiled anew, as it would not run, comes
# from the archive. -ffast-math is not said to the linker, which would add start-up code that sets the thread's mode:
# that is another test.
build_and_run() {
    compiler=$1 variant=$2 objects=$scratch/main.o
    shift 2
    common="-std=gnu11 -D_GNU_SOURCE -Iinclude -Isrc -I. -fno-math-errno"
    $compiler $common -c "$scratch/main.c" -o "$scratch/main.o" || return 99
    for file in train/bits*.c train/optimizer.c; do
        case $variant:$file in *_test.c | *avx512.c | plain:*avx2.c | *crew.c) continue ;; esac
        object=$scratch/$(basename "$file" .c).o
        $compiler $common "$@" -c "$file" -o "$object" || return 99
        objects="$objects $object"
    done
    $compiler -pthread $objects "$BUILD/libgradmesh_train.a" "$BUILD/libgradmesh.a" ${SAN:+-fsanitize=$SAN} -lm \
        -o "$scratch/main" || return 99
    "$scratch/main" $variant
}
agrees() { capture build_and_run "$@"; [ "$status" = 0 ]; }
is_refused() { capture build_and_run "$@"; [ "$status" = 1 ] && grep -q "self-test.*expected.*ffast-math" "$out"; }

check "gcc -O1 gives the known number" agrees "${CC:-cc}" "" -O1 -ffp-contract=off
check "so does the plain variant at -O0" agrees "${CC:-cc}" plain -O0 -ffp-contract=off
check "and the plain variant with all that the processor has" agrees "${CC:-cc}" plain -O1 -march=native -ffp-contract=off
if command -v clang >/dev/null && [ -z "${SAN:-}" ]; then
    check "and clang" agrees clang "" -O1 -ffp-contract=off
else
    skip "and clang" "no clang, or a sanitizer of another compiler"
fi
check "a build with -ffast-math is refused" is_refused "${CC:-cc}" "" -O2 -ffast-math
check "also in the plain variant" is_refused "${CC:-cc}" plain -O1 -ffast-math
if [ "$(uname -m)" = x86_64 ] && grep -q fma /proc/cpuinfo; then
    check "a build that contracts is refused" is_refused "${CC:-cc}" plain -O2 -mfma -ffp-contract=fast
else
    skip "a build that contracts is refused" "no fused multiply-add"
fi
finish
