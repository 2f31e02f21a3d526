#!/bin/sh
# The installed tree, and the examples built against it as a user would: by pkg-config with the shared and the
# static library, by CMake, moved elsewhere, and run under the installed launcher. Then all of it removed.
. "$(dirname "$0")/../cli/tap.sh"
unset MAKEFLAGS MAKELEVEL MFLAGS
root=$scratch/root
cc=${CC:-cc}
san=${SAN:+-fsanitize=$SAN}
strict="-std=c11 -pedantic -Wall -Wextra -Werror"
examples=$(ls examples/*.c | sed 's|.*/||; s|\.c$||')

make_it() { capture make --no-print-directory BUILD="$BUILD" ${SAN:+SAN=$SAN} "$@"; [ "$status" = 0 ]; }

check "make install" make_it install DESTDIR="$root" PREFIX=/usr
check "make install a second time" make_it install DESTDIR="$root" PREFIX=/usr
here() { for file in "$@"; do [ -f "$root/usr/$file" ] || return 1; done; }
check "program, libraries, header, manual, documents and examples are there" here bin/gradmesh \
    lib/libgradmesh.a lib/libgradmesh.so lib/libgradmesh.so.0 lib/libgradmesh.so.0.1.0 include/gradmesh.h \
    share/man/man1/gradmesh.1 share/doc/gradmesh/README.md share/doc/gradmesh/examples/hello_all_reduce.c \
    lib/pkgconfig/gradmesh.pc lib/cmake/gradmesh/gradmeshConfig.cmake
only_links() { [ "$(readlink "$root/usr/lib/libgradmesh.so")" = libgradmesh.so.0 ] &&
    [ "$(readlink "$root/usr/lib/libgradmesh.so.0")" = libgradmesh.so.0.1.0 ]; }
check "the links of the shared library lead to it" only_links
no_paths() { ! grep -rqF -e "$scratch" -e "$BUILD" "$root/usr/lib/pkgconfig" "$root/usr/lib/cmake"; }
check "no file names the place where it was built or staged" no_paths
program_is_whole() { capture "$root/usr/bin/gradmesh" --version && grep -q '0\.1\.0' "$out"; }
check "the installed program runs" program_is_whole

# ---- pkg-config ----
if command -v pkg-config >/dev/null; then
    export PKG_CONFIG_SYSROOT_DIR="$root" PKG_CONFIG_LIBDIR="$root/usr/lib/pkgconfig"
    version_agrees() { [ "$(pkg-config --modversion gradmesh)" = 0.1.0 ]; }
    check "pkg-config knows the version" version_agrees
    mkdir "$scratch/shared" "$scratch/static"
    shared() { capture $cc $strict $san "examples/$1.c" $(pkg-config --cflags --libs gradmesh) -o "$scratch/shared/$1"
        [ "$status" = 0 ]; }
    static() { capture $cc $strict $san "examples/$1.c" $(pkg-config --cflags gradmesh) "$root/usr/lib/libgradmesh.a" \
        $(pkg-config --static --libs gradmesh | sed "s,-L[^ ]*,,; s,-lgradmesh,,") -o "$scratch/static/$1"; [ "$status" = 0 ]; }
    # expect NAME PROCESSES COUNT PATTERN: under the installed launcher, COUNT lines have the pattern.
    run_it() { capture "$root/usr/bin/gradmesh" run -n "$3" -- "$scratch/$1/$2"
        [ "$status" = 0 ] && [ "$(grep -cE "$5" "$out")" = "$4" ]; }
    expect() {
        check "$1 builds with the shared library" shared "$1"
        LD_LIBRARY_PATH="$root/usr/lib" && export LD_LIBRARY_PATH
        check "$1 says what it should" run_it shared "$@"
        unset LD_LIBRARY_PATH
        check "$1 builds with the static library" static "$1"
        check "$1 says the same with the static library" run_it static "$@"
    }
    expect hello_all_reduce 4 4 'rank [0-3] of 4: the sum is 10$'
    expect broadcast_and_barrier 4 4 'the same on all ranks'
    expect average_gradients 4 4 'y = 3\.000 x -2\.000'
    expect reproducible 5 5 'of 5: y = 0x1\.7ffffcp\+1 x -0x1p\+1$'
    expect overlap 2 2 'layer averages 0\.5 1\.5 2\.5 3\.5'
    expect traffic 3 3 'payload ([0-9]+) bytes by the formula, \1 sent'
    expect when_a_rank_dies 3 2 'status GM_ERR_PEER_LOST, culprit 1'
    all_tried() { [ "$(echo "$examples" | wc -l)" = "$(ls "$scratch/static" | wc -l)" ]; }
    check "every example was tried" all_tried
    alone() { capture env LD_LIBRARY_PATH="$root/usr/lib" "$scratch/shared/hello_all_reduce"
        [ "$status" = 0 ] && grep -q 'rank 0 of 1: the sum is 1' "$out"; }
    check "an example without a launcher is a world of one" alone
    unset PKG_CONFIG_SYSROOT_DIR PKG_CONFIG_LIBDIR
else
    skip "the examples by pkg-config" "no pkg-config"
fi

# ---- CMake, in a tree that has been moved ----
if command -v cmake >/dev/null; then
    moved=$scratch/elsewhere
    cp -a "$root/usr" "$moved"
    mkdir "$scratch/project"
    cp examples/hello_all_reduce.c "$scratch/project"
    cat >"$scratch/project/CMakeLists.txt" <<'END'
cmake_minimum_required(VERSION 3.10)
project(hello C)
find_package(gradmesh 0.1 REQUIRED)
foreach(kind gradmesh static)
    add_executable(hello_${kind} hello_all_reduce.c)
    target_link_libraries(hello_${kind} gradmesh::${kind})
endforeach()
END
    configure() { capture cmake -S "$scratch/project" -B "$scratch/cmake" -DCMAKE_PREFIX_PATH="$moved" \
        -DCMAKE_C_FLAGS="$san"; [ "$status" = 0 ]; }
    build() { capture cmake --build "$scratch/cmake"; [ "$status" = 0 ]; }
    check "CMake finds a tree that was moved" configure
    check "CMake builds with both libraries" build
    by_cmake() { capture "$moved/bin/gradmesh" run -n 2 -- "$scratch/cmake/hello_$1"
        [ "$status" = 0 ] && [ "$(grep -c 'the sum is 3' "$out")" = 2 ]; }
    check "what CMake built with the shared library runs" by_cmake gradmesh
    check "what CMake built with the static library runs" by_cmake static
    wants_other() { sed -i "s/gradmesh [0-9.]* REQUIRED/gradmesh $1 REQUIRED/" "$scratch/project/CMakeLists.txt"
        rm -rf "$scratch/cmake"; ! configure; }
    check "CMake refuses another minor version" wants_other 0.2
    check "CMake refuses another major version" wants_other 1.0
else
    skip "the examples by CMake" "no cmake"
fi

# ---- other places, and back ----
check "make install with a library directory of its own" make_it install DESTDIR="$scratch/multi" PREFIX=/opt/g \
    libdir=/opt/g/lib/x86_64-linux-gnu
multi=$scratch/multi/opt/g/lib/x86_64-linux-gnu
own_libdir() { grep -q '^libdir=${prefix}/lib/x86_64-linux-gnu$' "$multi/pkgconfig/gradmesh.pc" &&
    grep -q '/../../../../include"' "$multi/cmake/gradmesh/gradmeshTargets.cmake"; }
check "which the configurations know" own_libdir

nothing_left() { [ -z "$(find "$1" ! -type d)" ] && [ ! -d "$1/usr/share/doc/gradmesh" ]; }
check "make uninstall" make_it uninstall DESTDIR="$root" PREFIX=/usr
check "make uninstall leaves nothing" nothing_left "$root"
finish
