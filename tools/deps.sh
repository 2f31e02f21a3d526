#!/bin/sh
# Installs the packages that building and testing need, when they are missing (tools/install.sh).
set -eu

missing=
have_header() {  # package, header
    printf '#include <%s>\n' "$2" | ${CC:-cc} -E -x c - >/dev/null 2>&1 || missing="$missing $1"
}

command -v "${CC:-cc}" >/dev/null 2>&1 || missing="$missing gcc libc6-dev"
command -v pkg-config >/dev/null 2>&1 || missing="$missing pkg-config"
if [ -z "$missing" ]; then
    # Another BLAS brings a cblas.h too.
    printf '#include <cblas.h>\n' | ${CC:-cc} -E -x c - 2>/dev/null | grep -q openblas_set_num_threads ||
        missing="$missing libopenblas-dev"
    have_header zlib1g-dev zlib.h
    have_header libcjson-dev cjson/cJSON.h
    have_header libmicrohttpd-dev microhttpd.h
    have_header libssl-dev openssl/evp.h
    have_header libcmocka-dev "stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h"
else
    missing="$missing libopenblas-dev zlib1g-dev libcjson-dev libmicrohttpd-dev libssl-dev libcmocka-dev"
fi
# DEPS=fuzz: also what make fuzz needs.
if [ "${DEPS:-}" = fuzz ]; then
    echo 'int LLVMFuzzerTestOneInput(void); int LLVMFuzzerTestOneInput(void) { return 0; }' |
        clang -fsanitize=fuzzer -o /dev/null -x c - >/dev/null 2>&1 || missing="$missing clang libclang-rt-14-dev"
fi
[ -z "$missing" ] && exit 0

exec sh "$(dirname "$0")/install.sh" $missing
