#!/bin/sh
# The library for another C library (musl), another processor (arm64; s390x, which is big-endian; both under qemu) and an old one of
# this kind (Nehalem: no AVX): it compiles whole, without running anything of the target; the tests of one thread pass there; jobs
# of several ranks do, over TCP and in shared memory, encrypted and not, and together with ranks of this machine's own build.
# Without the target's OpenSSL (tests/long/foreign_openssl.sh) this machine's headers do for compiling, and no job is run. Each part
# is skipped where its tools are not installed. FOREIGN_OPENSSL=FOLDER/%s: where it is already, by name.
. "$(dirname "$0")/../cli/tap.sh"
tests="src/base/rng_test src/base/crc32c_test src/reduce/kernels_test src/reduce/wire_test src/coll/ring_test src/coll/port_test src/coll/op_test
    tests/simulate/by_hand_test tests/simulate/exact_test"
support="guard oracle sim trial"

# Usage: build NAME CC AR: $scratch/NAME/libgradmesh.a, a program for each test, and a rank of a job if $openssl is a folder.
build() {
    there=$scratch/$1 cc=$2 ar=$3
    mkdir -p "$there/include" && touch "$there/.deps" || return 1
    if [ -n "$openssl" ]; then
        cp -r "$openssl/include/openssl" "$there/include/" && link="-L$openssl/lib -lssl -lcrypto -ldl" || return 1
    else
        cp -r /usr/include/openssl "$there/include/" && cp /usr/include/*-linux-gnu/openssl/* "$there/include/openssl/" || return 1
        link=-Wl,--unresolved-symbols=ignore-all
    fi
    [ "$1" = musl ] && for folder in linux asm-generic; do cp -r /usr/include/$folder "$there/include/"; done
    [ "$1" = musl ] && cp -r /usr/include/"$(uname -m)"-linux-gnu/asm "$there/include/"
    objects=
    for file in $support; do objects="$objects $there/obj/tests/support/$file.o"; done
    wanted=
    for test in $tests tests/portable/job; do wanted="$wanted $there/obj/$test.o"; done
    # shellcheck disable=SC2086
    CPPFLAGS="-Itests/portable -idirafter $there/include" make -s -j2 DEV=1 BUILD="$there" CC="$cc" AR="$ar" SAN= \
        "$there/libgradmesh.a" $objects $wanted || return 1
    for test in $tests; do
        # shellcheck disable=SC2086
        $cc -static -pthread -o "$there/$(basename "$test")" "$there/obj/$test.o" $objects "$there/libgradmesh.a" $link -lm || return 1
    done
    # shellcheck disable=SC2086
    [ -z "$openssl" ] || $cc -static -pthread -o "$there/job" "$there/obj/tests/portable/job.o" "$there/libgradmesh.a" $link -lm
}

# Usage: run_all NAME [EMULATOR...]
run_all() {
    there=$scratch/$1
    shift
    for test in $tests; do
        timeout 600 "$@" "$there/$(basename "$test")" || return 1
    done
}

# Usage: job N TRANSPORT OPTION... -- COMMAND...: all ranks print the same digest, which is left in $digest.
job() {
    n=$1
    export GRADMESH_TRANSPORT="$2"
    shift 2
    capture gradmesh run -n "$n" --no-prefix --timeout 200 "$@"
    digest=$(grep '^digest ' "$out" | sort -u)
    [ "$status" = 0 ] && [ "$(grep -c '^digest ' "$out")" = "$n" ] && [ "$(echo "$digest" | wc -l)" = 1 ]
}
as_here() { "$@" && is "$digest" "$digest_here"; }

# Usage: jobs NAME [EMULATOR]
jobs() {
    theirs="${2:+$2 }$scratch/$1/job"
    job 3 tcp -- "$scratch/job"
    digest_here=$digest
    # shellcheck disable=SC2086
    {
        check "$1: three ranks over TCP" as_here job 3 tcp -- $theirs
        check "$1: three ranks over encrypted TCP" as_here job 3 tcp --encrypt -- $theirs
        check "$1: three ranks in shared memory" as_here job 3 shm -- $theirs
        check "$1: three ranks, with checksums" as_here job 3 tcp --checksum crc32c -- $theirs
    }
    mixed="[ \$RANK != 1 ] || exec $theirs; exec $scratch/job"
    if [ "$1" = s390x ]; then # elements travel as they stand in memory
        job 3 tcp -- sh -c "$mixed"
        check "$1: beside ranks of this build it is refused" contains "$err" "setting 'byte order' differs: rank 1 has 'big', rank 0 does not have it"
    else
        check "$1: two ranks of this build and one of that" as_here job 3 tcp --encrypt -- sh -c "$mixed"
    fi
}

capture cc -std=gnu11 -Iinclude -pthread -o "$scratch/job" tests/portable/job.c "$BUILD/libgradmesh.a" -lssl -lcrypto -lm
check "a rank of a job, built here" is "$status" 0

for build in "musl musl-gcc ar" "arm64 aarch64-linux-gnu-gcc aarch64-linux-gnu-ar qemu-aarch64" \
    "s390x s390x-linux-gnu-gcc s390x-linux-gnu-ar qemu-s390x"; do
    # shellcheck disable=SC2086
    set -- $build
    kind=$1 cc=$2 ar=$3
    shift 3
    if ! command -v "$cc" >/dev/null; then
        skip "the library for $kind" "no $cc"
        continue
    fi
    # shellcheck disable=SC2059
    openssl=$(printf "${FOREIGN_OPENSSL:-$BUILD/openssl-%s}" "$kind")
    capture sh tests/long/foreign_openssl.sh "$kind" "$openssl"
    [ "$status" = 0 ] || openssl=
    capture build "$kind" "$cc" "$ar"
    check "$kind: it compiles, with warnings as errors" is "$status" 0
    if [ "$status" = 0 ] && { [ $# = 0 ] || command -v "$1" >/dev/null; }; then
        capture run_all "$kind" "$@"
        check "$kind: the tests of one thread pass" is "$status" 0
        if [ -n "$openssl" ]; then jobs "$kind" "$@"; else skip "$kind: jobs" "no OpenSSL for it"; fi
    else
        skip "$kind: the tests of one thread pass" "nothing to run them with"
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
