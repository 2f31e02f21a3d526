#!/bin/sh
# OpenSSL, static, for something else than this machine, without changing what is installed here: for another processor Debian's
# own package, unpacked; for musl its source, as little of it as links need (some minutes, once).
#
#   foreign_openssl.sh musl|arm64|s390x... FOLDER       FOLDER/include, FOLDER/lib/lib{ssl,crypto}.a; 1: it cannot be had, says why
set -u
kind=$1
mkdir -p "$2" && cd "$2" || exit 1
[ -f lib/libssl.a ] && exit 0
say() { echo "$*" >&2; exit 1; }
command -v apt-get >/dev/null || say "no apt-get"
# shellcheck disable=SC1091
[ -r /etc/os-release ] && . /etc/os-release
[ "${ID:-}" = debian ] || say "not a Debian machine"

# Lists and files of our own, from where this machine has its packages: an architecture more, and sources.
rm -rf apt && mkdir -p apt/sources apt/lists/partial apt/cache/archives/partial unpacked include lib
if [ -r /etc/apt/sources.list.d/debian.sources ]; then
    sed 's/^Types:.*/Types: deb deb-src/' /etc/apt/sources.list.d/debian.sources >apt/sources/debian.sources
else
    sed -n "/^deb .*$VERSION_CODENAME/{p; s/^deb/deb-src/p}" /etc/apt/sources.list >apt/sources/debian.list
fi
cat >apt/apt.conf <<END
Dir::Etc::SourceList "-";
Dir::Etc::SourceParts "$PWD/apt/sources";
Dir::State::Lists "$PWD/apt/lists";
Dir::Cache "$PWD/apt/cache";
APT::Sandbox::User "root";
END
export APT_CONFIG="$PWD/apt/apt.conf"

if [ "$kind" = musl ]; then
    { apt-get update && apt-get source --tar-only openssl && tar xzf openssl_*.orig.tar.gz; } >apt/log 2>&1 || say "cannot bring OpenSSL's source"
    mkdir -p kernel && for part in linux asm-generic; do cp -r /usr/include/$part kernel/; done
    cp -r /usr/include/"$(uname -m)"-linux-gnu/asm kernel/
    here=$PWD
    cd openssl-*/ || exit 1
    # shellcheck disable=SC2046
    CC="musl-gcc -idirafter $here/kernel" ./Configure "linux-$(uname -m)" no-shared no-tests no-asm -O1 $(printf 'no-%s ' engine afalgeng legacy dso \
        comp cms cmp ct ocsp ts srp srtp dtls dgram tls1 tls1_1 tls1_2 aria bf blake2 camellia cast des gost idea md4 mdc2 rc2 rc4 rmd160 seed \
        sm2 sm3 sm4 whirlpool ui-console secure-memory rfc3779 siphash ocb scrypt) >../apt/log 2>&1 &&
        make -j2 -s build_generated >>../apt/log 2>&1 && make -j2 -s libcrypto.a libssl.a >>../apt/log 2>&1 || say "OpenSSL cannot be built for musl"
    cp -r include/openssl "$here/include/" && cp libcrypto.a libssl.a "$here/lib/"
else
    { apt-get -o APT::Architectures::="$(dpkg --print-architecture)" -o APT::Architectures::="$kind" update &&
        apt-get -o APT::Architectures::="$(dpkg --print-architecture)" -o APT::Architectures::="$kind" download "libssl-dev:$kind" &&
        dpkg -x libssl-dev_*.deb unpacked; } >apt/log 2>&1 || say "cannot bring OpenSSL for $kind"
    cp -r unpacked/usr/include/openssl include/ && cp unpacked/usr/include/*/openssl/* include/openssl/ &&
        cp unpacked/usr/lib/*/libssl.a unpacked/usr/lib/*/libcrypto.a lib/
fi
