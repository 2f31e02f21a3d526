#!/bin/sh
# The library for another C library (musl), another processor (arm64, under qemu) and an old one of this kind (Nehalem: no AVX):
# it compiles whole, without running anything of the target, and the tests of one thread pass there. What needs OpenSSL is
# compiled with this machine's headers and never called. Each part is skipped where its tools are not installed.
. "$(dirname "$0")/../cli/tap.sh"
tests="src/base/rng_test src/reduce/kernels_test src/reduce/wire_test src/coll/ring_test src/coll/port_test src/coll/op_test
    tests/simulate/by_hand_test tests/simulate/exact_test"
support="guard oracle sim trial"

# Usage: build NAME CC AR: $scratch/NAME/libgradmesh.a and a program for each test.
build() {
    there=$scratch/$1 cc=$2 ar=$3
    mkdir -p "$there/include" && touch "$there/.deps" &&
        cp -r /usr/include/openssl "$there/include/" && cp /usr/include/*-linux-gnu/openssl/* "$there/include/openssl/" || return 1
    [ "$1" = musl ] && for folder in linux asm-generic; do cp -r /usr/include/$folder "$there/include/"; done
    [ "$1" = musl ] && cp -r /usr/include/"$(uname -m)"-linux-gnu/asm "$there/include/"
    objects=
    for file in $support; do objects="$objects $there/obj/tests/support/$file.o"; done
    wanted=
    for test in $tests; do wanted="$wanted $there/obj/$test.o"; done
    # shellcheck disable=SC2086
    CPPFLAGS="-Itests/portable -idirafter $there/include" make -s DEV=1 BUILD="$there" CC="$cc" AR="$ar" SAN= \
        "$there/libgradmesh.a" $objects $wanted || return 1
    for test in $tests; do
        # shellcheck disable=SC2086
        $cc -static -pthread -Wl,--unresolved-symbols=ignore-all -o "$there/$(basename "$test")" "$there/obj/$test.o" $objects "$there/libgradmesh.a" -lm || return 1
    done
}

# Usage: run_all NAME [EMULATOR...]
run_all() {
    there=$scratch/$1
    shift
    for test in $tests; do
        timeout 600 "$@" "$there/$(basename "$test")" || return 1
    done
}

for build in "musl musl-gcc ar" "arm64 aarch64-linux-gnu-gcc aarch64-linux-gnu-ar qemu-aarch64"; do
    # shellcheck disable=SC2086
    set -- $build
    name=$1 cc=$2 ar=$3
    shift 3
    if ! command -v "$cc" >/dev/null; then
        skip "the library for $name" "no $cc"
        continue
    fi
    capture build "$name" "$cc" "$ar"
    check "$name: it compiles, with warnings as errors" is "$status" 0
    if [ "$status" = 0 ] && { [ $# = 0 ] || command -v "$1" >/dev/null; }; then
        capture run_all "$name" "$@"
        check "$name: the tests of one thread pass" is "$status" 0
    else
        skip "$name: the tests of one thread pass" "nothing to run them with"
    fi
done

if command -v qemu-x86_64 >/dev/null && [ -z "${SAN:-}" ] && [ "$(uname -m)" = x86_64 ]; then
    for test in src/reduce/kernels_test src/reduce/wire_test src/reduce/accumulator_test src/base/crc32c_test; do
        capture timeout 900 qemu-x86_64 -cpu Nehalem "$BUILD/tests/$test"
        check "an old processor: $test" is "$status" 0
    done
    capture env GRADMESH_RANK=0 GRADMESH_WORLD_SIZE=1 timeout 900 qemu-x86_64 -cpu Nehalem "$BUILD/gradmesh" train --data synthetic:64,20 \
        --layers 784,8,10 --batch 16 --steps 2
    check "an old processor: it trains" is "$status" 0
else
    skip "an old processor" "no qemu-x86_64"
fi
finish
