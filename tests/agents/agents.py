"""Coding agents from npm, started by `spry launch`, do a small task with a scripted model: write a file by a call of a tool, see
the result, and say so. Everything is on the loopback. `make test-agents` runs this and writes the table in docs/AGENTS.md.

    agents.py [--write] [AGENT ...]

Programs are installed into ~/.cache/spry/test-agents (or SPRY_TEST_CACHE), once. An agent that npm cannot fetch is SKIPPED."""

import json
import os
import re
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path[:0] = [os.path.join(ROOT, "tests", "server"), os.path.join(ROOT, "tests", "cli")]
os.environ.setdefault("SPRY", os.path.join(ROOT, "build", "tests", "spry_script"))

from agents_support import ScriptServer, call  # noqa: E402
from server_support import SPRY, TIMEOUT, eventually  # noqa: E402

CACHE = os.environ.get("SPRY_TEST_CACHE", os.path.expanduser("~/.cache/spry/test-agents"))
TASK = "create hello.txt with the word hi"
# Names as `spry launch` has them: packages, arguments for one task, the tool that writes a file and its arguments.
AGENTS = {
    "claude": ("Claude Code", ["@anthropic-ai/claude-code"], ["-p", TASK, "--permission-mode", "acceptEdits"],
               "Write", {"file_path": "{PATH}", "content": "hi\n"}),
    "codex": ("Codex", ["@openai/codex"], ["exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", TASK],
              "exec_command", {"cmd": "echo hi > hello.txt"}),
    "opencode": ("opencode", ["opencode-ai"], ["run", TASK], "write", {"content": "hi\n", "filePath": "{PATH}"}),
    "kilo": ("Kilo Code", ["@kilocode/cli", "@kilocode/cli-linux-x64"], ["run", TASK, "--auto"], "write",
             {"content": "hi\n", "filePath": "{PATH}"}),
    "qwen": ("Qwen Code", ["@qwen-code/qwen-code"], ["-p", TASK, "--yolo"], "write_file", {"file_path": "{PATH}", "content": "hi\n"}),
    "copilot": ("Copilot CLI", ["@github/copilot"], ["-p", TASK, "--allow-all-tools"], "create", {"path": "{PATH}", "file_text": "hi\n"}),
    "cline": ("Cline", ["cline"], [TASK], "editor", {"path": "{PATH}", "new_text": "hi\n"}),
    "pi": ("pi", ["@mariozechner/pi-coding-agent"], ["-p", TASK], "write", {"path": "{PATH}", "content": "hi\n"}),
    "continue": ("Continue", ["@continuedev/cli"], ["-p", TASK, "--auto"], "Write", {"filepath": "{PATH}", "content": "hi\n"}),
}
# Packages whose program is put in place by a script of their own.
SCRIPTS = {"claude": "node_modules/@anthropic-ai/claude-code/install.cjs", "opencode": "node_modules/opencode-ai/postinstall.mjs"}
COLUMNS = ("tool loop", "text", "path", "cached in a session", "cached in a second one", "named as ignored")


def install(name):
    """The folder with the agent's program, and its version; None: npm cannot fetch it."""
    folder = os.path.join(CACHE, name)
    packages = AGENTS[name][1]
    manifest = os.path.join(folder, "node_modules", packages[0], "package.json")
    if not os.path.exists(manifest):
        os.makedirs(folder, exist_ok=True)
        command = ["npm", "install", "--prefix", folder, "--no-audit", "--no-fund", "--silent", "--ignore-scripts", *packages]
        try:
            subprocess.run(command, cwd=folder, timeout=600, check=False, capture_output=True)
            if name in SCRIPTS:
                subprocess.run(["node", SCRIPTS[name]], cwd=folder, timeout=600, check=False, capture_output=True)
        except (OSError, subprocess.TimeoutExpired):
            pass
    if not os.path.exists(manifest):
        return None
    with open(manifest, encoding="utf-8") as file:
        return os.path.join(folder, "node_modules", ".bin"), json.load(file)["version"]


def share(prompts):
    """The share of the longest prompt that was in the cache."""
    prompt, found = max(prompts)
    return "%.0f %%" % (100 * found / prompt)


def try_agent(name, programs):
    """Whether all is well, and what happened, by column."""
    server = ScriptServer("--verbose")
    home = tempfile.mkdtemp(prefix="spry-agent-")
    fine, cells, prompts = session(name, programs, server, home, "project")
    if fine:
        cells["cached in a session"] = share(prompts[1:])
        again, _, prompts = session(name, programs, server, home, "other")
        cells["cached in a second one"] = share(prompts[:-1])  # the last one is in the cache of this session
        fine = again
    server.stop()
    return fine, cells


def session(name, programs, server, home, folder):
    """The task in a new folder."""
    _, _, arguments, tool, values = AGENTS[name]
    project = os.path.join(home, folder)
    os.mkdir(project)
    path, begun = os.path.join(project, "hello.txt"), len(server.log)
    values = {key: value.replace("{PATH}", path) for key, value in values.items()}
    server.answer(("Done: it is written.", ["<tool_response>"]), (call(tool, **values), ['"%s"' % tool]), "A short title")
    environment = {"HOME": home, "PATH": programs + os.pathsep + os.environ["PATH"], "TERM": "xterm", "LANG": "C.UTF-8"}
    command = [SPRY, "launch", name, "--url", "http://127.0.0.1:%d" % server.port, "--model", "script", "--context", "131072",
               "--", *arguments]
    try:
        done = subprocess.run(command, cwd=project, env=environment, stdin=subprocess.DEVNULL, capture_output=True,
                              timeout=min(TIMEOUT, 180), check=False)
        said, code = (done.stdout + done.stderr).decode("utf-8", "replace"), done.returncode
    except subprocess.TimeoutExpired:
        said, code = "no end after 180 s", -1
    eventually(lambda: len(re.findall(r" prompt=\d+ cached=", "".join(server.log[begun:]))) >= 2)
    log = "".join(server.log[begun:])
    prompts = [(int(prompt), int(found)) for prompt, found in re.findall(r" prompt=(\d+) cached=(\d+)", log)]
    asked = re.findall(r"method=POST path=(\S+) status=(\d+) .* ignored=\"([^\"]*)\"", log)
    written = os.path.exists(path) and open(path, encoding="utf-8").read().strip() == "hi"
    fine = written and code == 0 and len(prompts) > 1 and all(status == "200" for _, status, _ in asked)
    if not fine:
        print("%s: exit code %d, %s\n%s" % (name, code, asked, said[-2000:]))
    return fine, {"tool loop": "yes" if written else "no", "text": "yes" if "it is written" in said else "no",
                  "path": ", ".join(sorted({path for path, _, _ in asked})),
                  "named as ignored": ", ".join(sorted({name for _, _, names in asked for name in names.split(", ") if name})) or "nothing"}, prompts


def main():
    write, names = "--write" in sys.argv, [name for name in sys.argv[1:] if name != "--write"] or list(AGENTS)
    rows, failed, skipped = [], 0, 0
    for name in names:
        found = install(name)
        if not found:
            print("SKIPPED %s: npm cannot fetch it" % name)
            skipped += 1
            continue
        fine, cells = try_agent(name, found[0])
        failed += not fine
        rows.append("| %s | %s | %s |" % (AGENTS[name][0], found[1], " | ".join(cells.get(column, "-") for column in COLUMNS)))
        print(rows[-1])
    if write and rows:
        page = os.path.join(ROOT, "docs", "AGENTS.md")
        with open(page, encoding="utf-8") as file:
            text = file.read()
        table = "| agent | version | %s |\n|%s\n%s\n" % (" | ".join(COLUMNS), "---|" * (len(COLUMNS) + 2), "\n".join(rows))
        text = re.sub(r"(?s)(<!-- table -->\n).*?(<!-- end -->)", lambda m: m.group(1) + table + m.group(2), text)
        with open(page, "w", encoding="utf-8") as file:
            file.write(text)
    print("%d passed, %d failed, %d skipped" % (len(rows) - failed, failed, skipped))
    sys.exit(failed != 0)


if __name__ == "__main__":
    main()
