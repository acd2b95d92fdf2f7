#!/usr/bin/env bash
# Run by scripts/test-packages in a clean Debian root: /packages has this version of the packages, /newer a later one.
# Installs, uses, upgrades and purges them; at the end nothing is left.
cd "$(dirname "$0")" || exit 1
. ./try.sh

install_packages() # folder
{
    apt-get -qq -y --no-install-recommends install "$1"/*.deb
}

files_of_the_system()
{
    find / -xdev \( -path /var/lib/dpkg -o -path /var/lib/apt -o -path /var/cache -o -path /var/log -o -path /tmp -o -path /proc \
        -o -path /sys -o -path /dev -o -path /packages -o -path /newer -o -path '/etc/ld.so.cache' -o -path '/var/lib/systemd' \) -prune \
        -o -print | sort
}

nothing_is_left()
{
    # What other packages brought is removed as well.
    apt-get -qq -y purge spry 'libspry*' 'python3-spry' 'spry-*' && apt-get -qq -y autoremove --purge &&
        ! dpkg-query -W -f '${Package} ${Status}\n' | grep spry &&
        files_of_the_system >/tmp/after && ! diff /tmp/before /tmp/after | grep -E 'spry'
}

python_tells_a_tale()
{
    says '24 tokens' python3 -c '
import spry
with spry.Engine("Spry-Tales-29M", context=256) as engine:
    reply = engine.chat("Tell me a story about a fox.", max_tokens=24, temperature=0).result()
    print(reply.text, "%d tokens" % reply.generated_tokens)'
}

compiles_against_it()
{
    apt-get -qq -y --no-install-recommends install gcc libc6-dev pkg-config &&
        cc -o /tmp/chat /usr/share/doc/libspry-dev/examples/chat.c $(pkg-config --cflags --libs spry) &&
        /tmp/chat /usr/share/spry/models/Spry-Tales-29M.gguf "Tell me a story about a fox." </dev/null
}

key_is_private()
{
    [ "$(stat -c '%U %a' /etc/spry/keys)" = "root 600" ] && grep -qxE '[0-9a-f]{48}' /etc/spry/keys
}

upgrades()
{
    cp /etc/spry/keys /tmp/keys
    says 'Setting up spry (9.' install_packages /newer && cmp /etc/spry/keys /tmp/keys &&
        says spry spry --version && python_tells_a_tale
}

finds_modules()
{
    local module
    for module in page voice mpi $(ls /packages | sed -n 's/^spry-\(cuda\)_.*/\1/p'); do
        ls "/usr/lib/$(uname -m)-linux-gnu/spry/spry_$module.so" || return 1
    done
}

# Without a driver a sentence says so and the CPU computes.
finds_gpu_kernels()
{
    python3 -c 'import ctypes, sys; ctypes.CDLL(sys.argv[1]).spry_cuda_images' "/usr/lib/$(uname -m)-linux-gnu/spry/spry_cuda.so" &&
        says 'cuda: no NVIDIA driver: libcuda.so.1' spry run --device cuda --temperature 0 -n 40 -p "Tell me a story about a fox." &&
        says fox spry run --device cuda --temperature 0 -n 40 -p "Tell me a story about a fox." &&
        says 'DeviceAllow=char-nvidia rw' cat /lib/systemd/system/spry.service.d/nvidia.conf
}

files_of_the_system >/tmp/before
printf '#!/bin/sh\necho built from source\n' >/usr/local/bin/spry && chmod +x /usr/local/bin/spry
try "deb: installs over a build from source, and says which one runs" says 'comes before /usr/bin/spry' install_packages /packages
rm /usr/local/bin/spry
try "deb: tells a tale" says fox spry run --temperature 0 -n 40 -p "Tell me a story about a fox."
try "deb: modules are installed" finds_modules
[ -f "$(echo /packages/spry-cuda_*.deb)" ] && try "deb: kernels for NVIDIA GPUs are found, and without a driver a sentence says so" finds_gpu_kernels
try "deb: the service's key is random and private" key_is_private
try "deb: Python tells a tale" python_tells_a_tale
try "deb: a program compiles against the library" compiles_against_it
try "deb: units are well-formed" systemd-analyze verify /lib/systemd/system/spry.service /lib/systemd/system/spry.socket
try "deb: the service is confined (exposure below 2 of 10)" systemd-analyze security --offline=yes --threshold=20 /lib/systemd/system/spry.service
try "deb: upgrades, and keeps the key" upgrades
try "deb: reinstalls" apt-get -qq -y --no-install-recommends --reinstall --allow-downgrades install /packages/*.deb
rm -rf /tmp/chat /tmp/keys
try "deb: purged, it leaves nothing" nothing_is_left
