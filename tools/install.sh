#!/bin/sh
# Installs Debian packages, with apt-get when we may (root, or sudo without a password); else it prints the exact
# command and stops. Usage: install.sh PACKAGE...
set -eu

command="apt-get install -y --no-install-recommends $*"
if ! command -v apt-get >/dev/null 2>&1; then
    echo "gradmesh needs these packages (Debian's names): $*" >&2
    exit 1
fi
if [ "$(id -u)" = 0 ]; then sudo=
elif command -v sudo >/dev/null 2>&1 && sudo -n true 2>/dev/null; then sudo=sudo
else
    echo "gradmesh needs packages that are not installed. As root, run:" >&2
    echo "  apt-get update && $command" >&2
    exit 1
fi
echo "installing: $*"
export DEBIAN_FRONTEND=noninteractive
$sudo apt-get update -qq >/dev/null 2>&1 || true
$sudo $command -qq >/dev/null
