#!/usr/bin/env bash
# Run by scripts/test-packages in a root with Node.js, as a user without rights: /packages has the packed packages.
cd ~ || exit 1
. /tests/try.sh
HOME=$(pwd)
export HOME
mkdir -p project && cd project || exit 1

installs()
{
    echo '{"private": true}' >package.json && npm install --offline --no-audit --no-fund /packages/spry-linux-*.tgz /packages/spry-[0-9]*.tgz
}

passes_exit_codes()
{
    local code
    npx --offline spry no-such-command; code=$?
    [ $code = 2 ] || return 1
    npx --offline spry run missing.gguf -p x; code=$?
    [ $code = 1 ]
}

stops_with_its_starter()
{
    node node_modules/spry/spry.js serve --port 8124 --kv-bytes 64M >log 2>&1 &
    local starter=$! i
    for ((i = 0; i < 100; i++)); do
        grep -q listening log && break
        sleep 0.1
    done
    grep listening log && kill -TERM $starter && wait $starter && ! (exec 3<>/dev/tcp/127.0.0.1/8124)
}

says_what_is_missing()
{
    mkdir -p ../lonely && cd ../lonely && echo '{"private": true}' >package.json || return 1
    npm install --offline --no-audit --no-fund --omit=optional /packages/spry-[0-9]*.tgz
    says 'is not installed: either there is none for this machine' npx --offline spry --version
}

try "npm: installs from packed files" installs
try "npm: npx spry tells a tale" says fox npx --offline spry run --temperature 0 -n 40 -p "Tell me a story about a fox."
try "npm: exit codes are the program's" passes_exit_codes
try "npm: a signal stops the program" stops_with_its_starter
try "npm: without the platform's package it says so" says_what_is_missing
