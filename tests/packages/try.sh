# Sourced by the tests of packages: one line "passed: what" or "failed: what" for each try.
# shellcheck shell=bash

try() # what, command
{
    local log start=$SECONDS
    log=$(mktemp)
    if "${@:2}" >"$log" 2>&1 </dev/null; then
        echo "passed: $1 ($((SECONDS - start)) s)"
    else
        tail -n 30 "$log" | sed 's/^/    /'
        echo "failed: $1"
    fi
    rm -f "$log"
}

says() # words, command: its output contains the words
{
    local output
    output=$("${@:2}" 2>&1)
    echo "$output"
    [[ $output == *"$1"* ]]
}
