#!/usr/bin/env bash
# Run by scripts/test-packages in a root with Python and pip, as a user without rights: /packages has the wheel, /sources the
# folder bindings/python and the library.
cd ~ || exit 1
. /tests/try.sh
HOME=$(pwd)
export HOME

tells_a_tale() # python, model
{
    says '24 tokens' "$1" -c '
import sys, spry
with spry.Engine(sys.argv[1], context=256) as engine:
    reply = engine.chat("Tell me a story about a fox.", max_tokens=24, temperature=0).result()
    print(reply.text, "%d tokens" % reply.generated_tokens)' "$2"
}

installs()
{
    python3 -m venv wheel && wheel/bin/pip install --no-index /packages/spry-*.whl
}

installs_from_the_folder()
{
    python3 -m venv folder && cp /sources/libspry.so ~ && SPRY_LIBRARY=$HOME/libspry.so folder/bin/pip install --no-index /sources/bindings/python &&
        folder/bin/pip show spry
}

says_what_is_missing()
{
    local output
    cp -r /sources/bindings/python alone && python3 -m venv none || return 1
    output=$(none/bin/pip install --no-index ./alone 2>&1) && return 1
    echo "$output"
    [[ $output == *"no library and no sources: SPRY_LIBRARY names a libspry.so"* ]]
}

is_checked()
{
    # RECORD has every file with its sum.
    python3 - <<'END'
import base64, glob, hashlib, zipfile
wheel = zipfile.ZipFile(glob.glob("/packages/spry-*.whl")[0])
names = set(wheel.namelist())
record = [line.rsplit(",", 2) for line in wheel.read([n for n in names if n.endswith("/RECORD")][0]).decode().splitlines()]
assert {row[0] for row in record} == names
for name, digest, size in record:
    if digest:
        content = wheel.read(name)
        assert len(content) == int(size)
        assert digest == "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode(), name
END
}

removes()
{
    wheel/bin/pip uninstall -y spry && ! find wheel -path '*spry*' | grep .
}

try "wheel: every file is in its list, with its sum" is_checked
try "wheel: pip installs it without an index" installs
try "wheel: tells a tale with the model inside" tells_a_tale wheel/bin/python Spry-Tales-29M
try "wheel: is removed" removes
try "wheel: pip install . with a library" installs_from_the_folder
try "wheel: that one works, too" tells_a_tale folder/bin/python Spry-Tales-29M
try "wheel: without library and sources it says so" says_what_is_missing
