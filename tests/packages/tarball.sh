#!/usr/bin/env bash
# Run by scripts/test-packages in a root with an old glibc, as a user without rights, whose folder `packages` has what is
# downloaded: tarball, SHA256SUMS, its signature and install.sh.
cd ~ || exit 1
. /tests/try.sh
export PATH=/usr/bin:/bin HOME
HOME=$(pwd)

# A copy of the download, in which something is wrong.
fresh()
{
    rm -rf bad && cp -r packages bad
}

# The command fails, says these words, and installs nothing.
refuses() # words, command
{
    local output
    output=$("${@:2}" 2>&1) && return 1
    echo "$output"
    [[ $output == *"$1"* ]] && [ ! -e .local/bin/spry ]
}

refuses_damage()
{
    fresh && printf x >>bad/spry-*.tar.xz && refuses 'damaged' sh bad/install.sh
}

refuses_foreign_sums()
{
    fresh && printf x >>bad/spry-*.tar.xz && (cd bad && sha256sum spry-*.tar.xz >SHA256SUMS) &&
        refuses 'not signed' sh bad/install.sh &&
        ssh-keygen -q -t ed25519 -N '' -f bad/other && rm bad/SHA256SUMS.sig &&
        ssh-keygen -q -Y sign -f bad/other -n spry-release bad/SHA256SUMS && refuses 'not signed' sh bad/install.sh
}

refuses_what_is_missing()
{
    fresh && rm bad/SHA256SUMS.sig && refuses 'SHA256SUMS.sig is missing' sh bad/install.sh &&
        rm bad/SHA256SUMS && refuses 'SHA256SUMS is missing' sh bad/install.sh &&
        rm bad/spry-*.tar.xz && refuses "no tarball for this processor" sh bad/install.sh &&
        fresh && sed -i "s/^key=.*/key=''/" bad/install.sh && refuses 'has no key' sh bad/install.sh
}

# Another C library, as far as getconf says.
refuses_old_glibc()
{
    mkdir -p old && fresh
    printf '#!/bin/sh\necho glibc 2.28\n' >old/getconf && chmod +x old/getconf
    refuses 'this system has glibc 2.28, and the tarballs need 2.31 or later' env PATH="$HOME/old:$PATH" sh bad/install.sh &&
        printf '#!/bin/sh\nexit 1\n' >old/getconf && refuses 'not glibc' env PATH="$HOME/old:$PATH" sh bad/install.sh
}

tells_a_tale()
{
    says fox "$1/bin/spry" run --temperature 0 -n 40 -p "Tell me a story about a fox."
}

answers_requests()
{
    .local/bin/spry serve --port 8123 --kv-bytes 64M >server.log 2>&1 &
    local server=$! i answer
    for ((i = 0; i < 100; i++)); do
        grep -q listening server.log && break
        sleep 0.1
    done
    exec 3<>/dev/tcp/127.0.0.1/8123 && printf 'GET /page.json HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n' >&3 && answer=$(cat <&3)
    kill $server
    wait $server
    [[ $answer == *'"/highlight.js", "/katex.js"'* || $answer == *'"/highlight.js","/katex.js"'* ]]
}

# HTTPS with the libraries that are linked in: nothing listens there, and a certificate file is found.
reaches_out()
{
    says "127.0.0.1" .local/bin/spry pull https://127.0.0.1:9/model.gguf
    says "onnect" .local/bin/spry pull https://127.0.0.1:9/model.gguf
}

upgrades()
{
    # As if the old version had had one more file.
    touch .local/share/spry/old-file && echo share/spry/old-file >>.local/share/spry/installed-files &&
        sh packages/install.sh && [ ! -e .local/share/spry/old-file ] && tells_a_tale .local
}

removes()
{
    sh packages/install.sh --remove && ! find .local -type f | grep . && ! find .local -type l | grep .
}

echo "glibc $(getconf GNU_LIBC_VERSION)"
try "tarball: a damaged one is refused" refuses_damage
try "tarball: sums that another key signed, or none, are refused" refuses_foreign_sums
try "tarball: an incomplete download is refused" refuses_what_is_missing
try "tarball: an old glibc is refused in a sentence" refuses_old_glibc
try "tarball: installs without root, and says that PATH lacks it" says 'is not in PATH' sh packages/install.sh
try "tarball: tells a tale with glibc 2.31" tells_a_tale .local
try "tarball: serves, with the page's libraries" answers_requests
try "tarball: has HTTPS" reaches_out
try "tarball: installs elsewhere, with a key from a file" sh packages/install.sh --prefix "$HOME/a b" --key <(sed -n "s/^key='\(.*\)'/\1/p" packages/install.sh)
try "tarball: runs there" tells_a_tale "$HOME/a b"
try "tarball: is replaced by a later one" upgrades
try "tarball: removes what it installed" removes
