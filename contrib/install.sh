#!/bin/sh
# Installs spry from a tarball into ~/.local, without root:
#
#   sh install.sh [--prefix FOLDER] [--key FILE | --unsigned] [--remove] [FOLDER]
#
# FOLDER (the one of this file unless given) has spry-VERSION-linux-PROCESSOR.tar.xz, SHA256SUMS and its signature SHA256SUMS.sig. The signature is
# checked with ssh-keygen against the release's key, which is written below, or against the public key in FILE; --unsigned
# checks the sums only. --remove removes what was installed. An older version is replaced.
set -eu
key=''
prefix=$HOME/.local folder=$(dirname "$0") unsigned='' remove='' given=''

give_up() # why
{
    echo "install.sh: $1" >&2
    exit 1
}

while [ $# -gt 0 ]; do
    case $1 in
    --prefix | --key)
        [ $# -gt 1 ] || give_up "$1 needs a value"
        if [ "$1" = --prefix ]; then prefix=$2; else given=$2; fi
        shift
        ;;
    --unsigned) unsigned=yes ;;
    --remove) remove=yes ;;
    -*) give_up "there is no option $1: sh install.sh [--prefix FOLDER] [--key FILE | --unsigned] [--remove] [FOLDER]" ;;
    *) folder=$1 ;;
    esac
    shift
done
case $prefix in
/*) ;;
*) prefix=$PWD/$prefix ;;
esac
list=$prefix/share/spry/installed-files

if [ -n "$remove" ]; then
    [ -f "$list" ] || give_up "nothing is installed in $prefix"
    (cd "$prefix" && while IFS= read -r file; do rm -f "./$file"; done <"$list" && rm -f "$list" &&
        rmdir share/spry/models share/spry/python lib/spry share/spry 2>/dev/null) || true
    echo "removed from $prefix; models and caches in ~/.local/share/spry and ~/.cache/spry are kept"
    exit 0
fi

# ---- this machine ----------------------------------------------------------------------------------------------------

[ "$(uname -s)" = Linux ] || give_up "the tarballs are for Linux; on $(uname -s) build spry from its sources (docs/PLATFORMS.md)"
processor=$(uname -m)
libc=$(getconf GNU_LIBC_VERSION 2>/dev/null | sed -n 's/^glibc //p') || true
[ -n "$libc" ] || give_up "this system's C library is not glibc (musl, perhaps): build spry from its sources (docs/PLATFORMS.md)"
if [ "${libc%%.*}" -lt 2 ] || { [ "${libc%%.*}" = 2 ] && [ "$(echo "${libc#*.}" | sed 's/[^0-9].*//')" -lt 31 ]; }; then
    give_up "this system has glibc $libc, and the tarballs need 2.31 or later (Debian 11, Ubuntu 20.04, RHEL 9): build spry from its sources (docs/PLATFORMS.md)"
fi

# ---- what was downloaded ---------------------------------------------------------------------------------------------

set -- "$folder"/spry-*-linux-"$processor".tar.xz
[ -f "$1" ] || give_up "$folder has no tarball for this processor: spry-VERSION-linux-$processor.tar.xz"
[ $# = 1 ] || give_up "$folder has several tarballs for $processor: leave one"
tarball=$(basename "$1")
[ -f "$folder/SHA256SUMS" ] || give_up "$folder/SHA256SUMS is missing: download it beside the tarball"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if [ -z "$unsigned" ]; then
    if [ -n "$given" ]; then key=$(cat "$given") || give_up "$given: this key cannot be read"; fi
    [ -n "$key" ] || give_up "this copy of install.sh has no key of the release: --key FILE names one, --unsigned does without a signature"
    [ -f "$folder/SHA256SUMS.sig" ] || give_up "$folder/SHA256SUMS.sig is missing: download it beside the tarball"
    command -v ssh-keygen >/dev/null || give_up "ssh-keygen checks the signature and is missing: install openssh-client, or say --unsigned"
    echo "release $key" >"$work/signers"
    ssh-keygen -q -Y verify -f "$work/signers" -I release -n spry-release -s "$folder/SHA256SUMS.sig" <"$folder/SHA256SUMS" >/dev/null 2>&1 ||
        give_up "SHA256SUMS is not signed with the release's key: download everything again, and do not install this"
fi
(cd "$folder" && grep "  $tarball\$" SHA256SUMS >"$work/sum" && sha256sum -c --status "$work/sum") ||
    give_up "$tarball is damaged, or not the one that SHA256SUMS names: download it again"

# ---- installing ------------------------------------------------------------------------------------------------------

command -v xz >/dev/null || give_up "xz unpacks the tarball and is missing: install xz-utils"
mkdir -p "$prefix/share/spry" || give_up "$prefix cannot be written to: --prefix FOLDER installs elsewhere"
tar -xJf "$folder/$tarball" -C "$work" || give_up "$tarball cannot be unpacked"
tree=$work/${tarball%.tar.xz}
"$tree/bin/spry" --version >/dev/null || give_up "the program does not run on this machine"
(cd "$tree" && find . \( -type f -o -type l \) | sed 's|^\./||' | sort) >"$work/files"
# Files of an older version go, and each new one replaces its predecessor at once, also while spry runs.
if [ -f "$list" ]; then
    sort "$list" | comm -23 - "$work/files" | while IFS= read -r file; do rm -f "$prefix/$file"; done
fi
while IFS= read -r file; do
    mkdir -p "$prefix/$(dirname "$file")"
    cp -Pp "$tree/$file" "$prefix/$file.new"
    mv -f "$prefix/$file.new" "$prefix/$file"
done <"$work/files"
cp "$work/files" "$list"
echo "installed $("$prefix/bin/spry" --version) in $prefix"
first=$(command -v spry || true)
case $first in
"$prefix/bin/spry") ;;
'') echo "$prefix/bin is not in PATH: add it, or run $prefix/bin/spry" ;;
*) echo "$first comes first in PATH: it runs when you say spry" ;;
esac
