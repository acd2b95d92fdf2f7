#!/usr/bin/env bash
# Opens the server's page in a browser and uses it. $SPRY is the program, $WEB_FOLDER a folder for the packages
# of package.json, which npm fetches the first time; the arguments are those of page_tests.js, or
# "measure" for the figures of measure_page.js. Without a browser, node or npm nothing can be tested, and that is said.
set -u
here=$(cd "$(dirname "$0")" && pwd) || exit 1
folder=${WEB_FOLDER:?say where the driver may be installed}

skip() # why
{
    echo "SKIPPED web_page: $1"
    echo "0 passed, 0 failed, 1 skipped"
    exit 0
}

browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome) || skip "there is no chromium"
command -v node >/dev/null || skip "there is no node"
packages=$(sed -n 's/^ *"\([a-z-]*\)": "\([0-9.]*\)",\{0,1\}$/\1@\2/p' "$here/package.json")
mkdir -p "$folder" || exit 1
exec 9>"$folder/lock" && flock 9 # several may run at the same time
for package in $packages; do
    [ -d "$folder/node_modules/${package%@*}" ] && continue
    command -v npm >/dev/null || skip "there is no npm"
    # shellcheck disable=SC2086 # several words
    npm install --prefix "$folder" --no-package-lock --no-audit --no-fund $packages >"$folder/npm.log" 2>&1 ||
        skip "npm could not install $package (see $folder/npm.log)"
done
exec 9>&-
script=page_tests.js
[ "${1:-}" = measure ] && script=measure_page.js
BROWSER=$browser NODE_PATH=$folder/node_modules exec node "$here/$script" "$@"
