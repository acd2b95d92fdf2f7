"""Run by scripts/test-packages as a service in a booted Debian root with the packages: the server starts at the first
connection to its socket, as a user of its own that may do little, keeps its socket when it restarts, and stops."""

import json
import os
import subprocess
import time
import urllib.error
import urllib.request

URL = "http://127.0.0.1:8080"


def run(*command):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def property_of(unit, name):
    return run("systemctl", "show", "-P", name, unit)


def ask(path, body=None, key=None):
    headers = {"Content-Type": "application/json"}
    if key:
        headers["Authorization"] = "Bearer " + key
    request = urllib.request.Request(URL + path, data=json.dumps(body).encode() if body else None, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=120) as reply:
            return reply.status, reply.read().decode()
    except urllib.error.HTTPError as refusal:
        return refusal.code, refusal.read().decode()


def facts_of(process):
    with open("/proc/%s/status" % process, encoding="utf-8") as file:
        return dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)


def test_starts_at_the_first_connection():
    run("systemctl", "enable", "--now", "spry.socket")
    assert property_of("spry.service", "ActiveState") == "inactive"
    assert ask("/health")[0] == 200
    assert property_of("spry.service", "ActiveState") == "active"


def test_asks_for_the_key():
    with open("/etc/spry/keys", encoding="utf-8") as file:
        key = file.read().strip()
    body = {"messages": [{"role": "user", "content": "Tell me a story about a fox."}], "max_tokens": 8, "temperature": 0}
    assert ask("/v1/chat/completions", body)[0] == 401
    status, text = ask("/v1/chat/completions", body, key)
    assert status == 200 and json.loads(text)["usage"]["completion_tokens"] == 8, text


def test_is_confined():
    process = property_of("spry.service", "MainPID")
    facts = facts_of(process)
    assert facts["Uid"].split()[0] != "0", facts
    assert facts["CapEff"] == facts["CapBnd"] == "0" * 16, facts
    assert (facts["NoNewPrivs"], facts["Seccomp"]) == ("1", "2"), facts
    assert property_of("spry.service", "User") == "spry"
    for path in ("/usr/x", "/etc/x", "/home", "/root"):
        assert subprocess.run(["nsenter", "-t", process, "-m", "-S", facts["Uid"].split()[0], "touch", path + "/x"],
                              stderr=subprocess.DEVNULL, check=False).returncode != 0, path
    assert os.path.isdir("/var/lib/spry/models")


def test_the_socket_outlives_a_restart():
    before = property_of("spry.service", "MainPID")
    run("systemctl", "kill", "-s", "KILL", "spry.service")
    for _ in range(100):
        if property_of("spry.service", "MainPID") not in ("0", before):
            break
        time.sleep(0.2)
    assert ask("/health")[0] == 200
    assert property_of("spry.service", "MainPID") != before


def test_stops():
    run("systemctl", "stop", "spry.socket", "spry.service")
    assert property_of("spry.service", "Result") == "success"
    assert "error" not in run("journalctl", "-u", "spry", "-o", "cat").lower()


def main():
    for name, test in [item for item in globals().items() if item[0].startswith("test_")]:
        what = "deb: the service " + name[5:].replace("_", " ")
        try:
            test()
            print("passed:", what, flush=True)
        except Exception as problem:  # whatever it is, the line says it
            print("    %s: %s" % (type(problem).__name__, problem))
            print(subprocess.run(["journalctl", "-u", "spry", "-o", "cat", "-n", "20"], stdout=subprocess.PIPE, text=True,
                                 check=False).stdout.replace("\n", "\n    "))
            print("failed:", what, flush=True)


if __name__ == "__main__":
    main()
