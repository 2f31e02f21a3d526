#!/bin/sh
# The public header by itself, in C and in C++, and the shared library's symbols: just what it declares.
. "$(dirname "$0")/../cli/tap.sh"
header=include/gradmesh.h
library=$BUILD/libgradmesh.so
printf '#include "gradmesh.h"\n#include "gradmesh.h"\nint unused_symbol(void);\nint unused_symbol(void) { return GM_VERSION_MINOR; }\n' \
    >"$scratch/use.c"
cp "$scratch/use.c" "$scratch/use.cpp"
strict="-pedantic -Wall -Wextra -Wshadow -Wconversion -Werror -Iinclude -c -o $scratch/use.o"

compiles() { capture "$@"; [ "$status" = 0 ] && [ ! -s "$err" ]; }
for compiler in "${CC:-cc}" clang; do
    command -v "$compiler" >/dev/null || { skip "the header with $compiler" "no $compiler"; continue; }
    for std in c11 c17; do
        check "the header is $std for $compiler" compiles $compiler -std=$std -Wstrict-prototypes $strict "$scratch/use.c"
    done
done
for compiler in "${CXX:-c++}" clang++; do
    command -v "$compiler" >/dev/null || { skip "the header with $compiler" "no $compiler"; continue; }
    for std in c++11 c++17 c++20; do
        check "the header is $std for $compiler" compiles $compiler -std=$std $strict "$scratch/use.cpp"
    done
done

# A caller who drops the status of a call is told so.
printf '#include "gradmesh.h"\nvoid f(gm_comm *c) { gm_barrier(c); }\n' >"$scratch/careless.c"
careless() { capture "${CC:-cc}" -std=c11 -Iinclude -Werror -c -o "$scratch/use.o" "$scratch/careless.c"
    [ "$status" != 0 ] && grep -q 'unused.result\|warn_unused_result' "$err"; }
check "a dropped status is a warning" careless

# C++ sees the functions with C's names.
printf '#include "gradmesh.h"\nint main() { return gm_version()[0] == 48 ? 0 : 1; }\n' >"$scratch/main.cpp"
links() { capture "${CXX:-c++}" ${SAN:+-fsanitize=$SAN} -Iinclude "$scratch/main.cpp" "$BUILD/libgradmesh.a" -pthread -o "$scratch/main" &&
    [ "$status" = 0 ] && "$scratch/main"; }
if command -v "${CXX:-c++}" >/dev/null; then check "a C++ program links and runs" links; else skip "a C++ program links" "no C++"; fi

declared() { grep -A2 '^GM_API' "$header" | tr '\n' ' ' | sed 's/GM_API/\n/g' | grep -oE '\bgm_[a-z0-9_]+ ?\(' | tr -d ' (' | sort -u; }
exported() { nm -D --defined-only "$library" | awk '$2 == "T" || $2 == "D" || $2 == "B" || $2 == "R" || $2 == "i" { sub(/@.*/, "", $3); print $3 }' | sort -u; }
declared >"$scratch/declared"
exported >"$scratch/exported"
check "the header declares functions" test "$(wc -l <"$scratch/declared")" -gt 30
check "the shared library exports them and nothing else" diff "$scratch/declared" "$scratch/exported"
soname() { readelf -d "$library" | grep -q 'SONAME.*\[libgradmesh\.so\.0\]'; }
check "its SONAME has the major version" soname
needs_little() { readelf -d "$library" | grep NEEDED | grep -vqE 'libc\.|libpthread|libm\.|libgcc_s|ld-linux|libssl|libcrypto|lib[a-z]*san' && return 1; return 0; }
check "it needs the C library and OpenSSL and nothing else" needs_little
no_path() { ! readelf -d "$library" | grep -qE 'RPATH|RUNPATH'; }
check "it has no search path of its own" no_path
versions_agree() { v=$(sed -n 's/^#define GM_VERSION_STRING "\(.*\)"$/\1/p' "$header")
    numbers=$(sed -n 's/^#define GM_VERSION_\(MAJOR\|MINOR\|PATCH\) //p' "$header" | tr '\n' . )
    [ "$v." = "$numbers" ] && [ "$v" = "$(sed -n 's/^VERSION := //p' Makefile)" ] && [ "gradmesh $v" = "$(gradmesh --version)" ]; }
check "header, build and program agree on the version" versions_agree
finish
