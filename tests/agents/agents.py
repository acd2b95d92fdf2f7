"""Coding agents from npm, started by `spry launch`, do small tasks with a scripted model: write a file by a call of a tool and
say so, go on with the conversation, look at a picture, give work to a second agent, compact a conversation that has become too
long, and be interrupted. SDKs run the loops of their own that the same interfaces need. Everything is on the loopback.
`make test-agents` runs this and writes the tables in docs/AGENTS.md.

    agents.py [--write] [--newest] [NAME ...]
    agents.py --patience SECONDS [NAME ...]     every agent waits as long for the first word of an answer

Programs are installed into ~/.cache/spry/test-agents (or SPRY_TEST_CACHE), once; with `--newest` again, as published now. Where
the system's Node is older than some of them need, npm's own is installed beside them. What npm cannot fetch is SKIPPED."""

import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path[:0] = [os.path.join(ROOT, "tests", "server"), os.path.join(ROOT, "tests", "cli")]
os.environ.setdefault("SPRY", os.path.join(ROOT, "build", "tests", "spry_script"))

import mcp_servers  # noqa: E402
from agents_support import ScriptServer, call  # noqa: E402
from server_support import SPRY, TIMEOUT  # noqa: E402

CACHE = os.environ.get("SPRY_TEST_CACHE", os.path.expanduser("~/.cache/spry/test-agents"))
PICTURE = os.path.join(ROOT, "tests", "data", "models", "qwen3-vl", "image0.png")
TASK = "create hello.txt with the word hi"


class Agent:
    """`task`: arguments of one task, which is {TASK}; `more`: of a second one in the same conversation, NULL without. `write`,
    `look`, `helper`: tools that write a file, show the picture {PICTURE} and start another agent (with the task {SUBTASK}), as
    (name, arguments). `compact`: arguments that compact the conversation; a number: tokens after the first prompt with which the
    agent does so itself; `summary`: words of its request for a summary. A feature that an agent has not is None."""

    def __init__(self, title, packages, task, write, more=None, look=None, helper=None, compact=None, summary=None):
        self.title, self.packages, self.task, self.write = title, packages, task, write
        self.more, self.look, self.helper, self.compact, self.summary = more, look, helper, compact, summary


HELPER = {"description": "a small task", "prompt": "{SUBTASK}", "subagent_type": "general-purpose"}
AGENTS = {
    "claude": Agent("Claude Code", ["@anthropic-ai/claude-code"], ["-p", "{TASK}", "--permission-mode", "acceptEdits"],
                    ("Write", {"file_path": "{PATH}", "content": "hi\n"}),
                    more=["-p", "{TASK}", "--continue"], look=("Read", {"file_path": "{PICTURE}"}), helper=("Agent", HELPER),
                    compact=["-p", "/compact", "--continue"], summary="create a detailed summary"),
    "codex": Agent("Codex", ["@openai/codex"], ["exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "{TASK}"],
                   ("exec_command", {"cmd": "echo hi > hello.txt"}),
                   more=["exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "resume", "--last", "{TASK}"],
                   look=("view_image", {"path": "{PICTURE}"}), helper=("multi_agent_v1__spawn_agent", {"message": "{SUBTASK}"}), compact=4500, summary="CONTEXT CHECKPOINT"),
    "opencode": Agent("opencode", ["opencode-ai"], ["run", "{TASK}"], ("write", {"content": "hi\n", "filePath": "{PATH}"}),
                      more=["run", "-c", "{TASK}"], look=("read", {"filePath": "{PICTURE}"}),
                      helper=("task", dict(HELPER, subagent_type="general")), compact=9000, summary="anchored summary"),
    "kilo": Agent("Kilo Code", ["@kilocode/cli", "@kilocode/cli-linux-x64"], ["run", "{TASK}", "--auto"],
                  ("write", {"content": "hi\n", "filePath": "{PATH}"}),
                  more=["run", "-c", "{TASK}", "--auto"], look=("read", {"filePath": "{PICTURE}"}),
                  helper=("task", dict(HELPER, subagent_type="general")), compact=9000, summary="anchored summary"),
    "qwen": Agent("Qwen Code", ["@qwen-code/qwen-code"], ["-p", "{TASK}", "--yolo"], ("write_file", {"file_path": "{PATH}", "content": "hi\n"}),
                  more=["--continue", "-p", "{TASK}", "--yolo"], look=("read_file", {"file_path": "{PICTURE}"}),
                  helper=("agent", HELPER), compact=18000, summary="state_snapshot"),
    "copilot": Agent("Copilot CLI", ["@github/copilot"], ["-p", "{TASK}", "--allow-all-tools"], ("create", {"path": "{PATH}", "file_text": "hi\n"}),
                     more=["--continue", "-p", "{TASK}", "--allow-all-tools"],
                     helper=("task", {"description": "a small task", "prompt": "{SUBTASK}", "agent_type": "general-purpose", "name": "helper"}),
                     compact=["--continue", "-p", "/compact", "--allow-all-tools"], summary="respond only with the summary text"),
    "cline": Agent("Cline", ["cline"], ["{TASK}"], ("editor", {"path": "{PATH}", "new_text": "hi\n"}),
                   look=("read_files", {"files": [{"path": "{PICTURE}"}]}),
                   helper=("spawn_agent", {"systemPrompt": "You help.", "task": "{SUBTASK}"})),
    "pi": Agent("pi", ["@mariozechner/pi-coding-agent"], ["-p", "{TASK}"], ("write", {"path": "{PATH}", "content": "hi\n"}),
                more=["-c", "-p", "{TASK}"], look=("read", {"path": "{PICTURE}"}), compact=9000, summary="summarization assistant"),
    "continue": Agent("Continue", ["@continuedev/cli"], ["-p", "{TASK}", "--auto"], ("Write", {"filepath": "{PATH}", "content": "hi\n"}),
                      more=["--resume", "-p", "{TASK}", "--auto"], compact=4500, summary="summary of our conversation"),
}
# Packages whose program is put in place by a script of their own.
SCRIPTS = {"claude": "node_modules/@anthropic-ai/claude-code/install.cjs", "opencode": "node_modules/opencode-ai/postinstall.mjs"}
COLUMNS = ("tool loop", "next turn", "picture", "second agent", "compaction", "interrupted", "path", "cached in a session",
           "cached in a second one", "named as ignored")
LIMIT = min(TIMEOUT, 120)
NODE = 22  # what agents need; with an older one npm chooses old versions of them, and does not say so
renewed = set()  # folders that `--newest` has emptied


def use_node():
    """Puts a Node that is new enough into PATH."""
    def number():
        try:
            said = subprocess.run(["node", "--version"], capture_output=True, check=False).stdout.decode()
        except OSError:
            said = ""
        return int((re.findall(r"^v(\d+)", said) or ["0"])[0])
    if number() >= NODE:
        return
    machine = {"x86_64": "x64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    package = "node-%s-%s" % (platform.system().lower(), machine)
    if install("node", [package]):
        os.environ["PATH"] = os.path.join(CACHE, "node", "node_modules", package, "bin") + os.pathsep + os.environ["PATH"]
    print("Node %d; agents need %d" % (number(), NODE), flush=True)


def install(name, packages, script=None):
    """The folder with the program, and its version; None: npm cannot fetch it."""
    folder = os.path.join(CACHE, name)
    manifest = os.path.join(folder, "node_modules", packages[0], "package.json")
    if "--newest" in sys.argv and name not in renewed:
        shutil.rmtree(folder, ignore_errors=True)
    renewed.add(name)
    if not os.path.exists(manifest):
        os.makedirs(folder, exist_ok=True)
        command = ["npm", "install", "--prefix", folder, "--no-audit", "--no-fund", "--silent", "--ignore-scripts", *packages]
        try:
            subprocess.run(command, cwd=folder, timeout=600, check=False, capture_output=True)
            if script:
                subprocess.run(["node", script], cwd=folder, timeout=600, check=False, capture_output=True)
        except (OSError, subprocess.TimeoutExpired):
            pass
    if not os.path.exists(manifest):
        return None
    with open(manifest, encoding="utf-8") as file:
        return os.path.join(folder, "node_modules", ".bin"), json.load(file)["version"]


def soon(check, seconds=20):
    """Whether check() becomes true; an agent may do nothing."""
    until = time.monotonic() + seconds
    while not check() and time.monotonic() < until:
        time.sleep(0.1)
    return check()


def version(name, package):
    with open(os.path.join(CACHE, name, "node_modules", package, "package.json"), encoding="utf-8") as file:
        return json.load(file)["version"]


def filled(value, marks):
    if isinstance(value, dict):
        return {key: filled(inner, marks) for key, inner in value.items()}
    if isinstance(value, list):
        return [filled(inner, marks) for inner in value]
    for mark, text in marks.items():
        value = value.replace(mark, text) if isinstance(value, str) else value
    return value


class Trial:
    """One agent with a home and a server of its own."""

    def __init__(self, name, programs):
        self.name, self.agent, self.programs = name, AGENTS[name], programs
        self.server = ScriptServer("--verbose", sees=True)
        self.home = tempfile.mkdtemp(prefix="spry-agent-")
        self.problems = []

    def folder(self, name):
        path = os.path.join(self.home, name)
        os.makedirs(path, exist_ok=True)
        shutil.copy(PICTURE, path)
        return path

    def start(self, project, arguments, task, context=131072):
        environment = {"HOME": self.home, "PATH": self.programs + os.pathsep + os.environ["PATH"], "TERM": "xterm", "LANG": "C.UTF-8"}
        command = [SPRY, "launch", self.name, "--url", "http://127.0.0.1:%d" % self.server.port, "--model", "script",
                   "--context", str(context), "--", *filled(arguments, {"{TASK}": task})]
        return subprocess.Popen(command, cwd=project, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, start_new_session=True)

    def run(self, project, arguments, task, **more):
        """What the agent said, its exit code, and the server's log of it."""
        begun = len(self.server.log)
        process = self.start(project, arguments, task, **more)
        try:
            said, code = process.communicate(timeout=LIMIT)[0].decode("utf-8", "replace"), process.returncode
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            said, code = process.communicate()[0].decode("utf-8", "replace") + "\nno end after %d s" % LIMIT, -1
        soon(lambda: " prompt=" in "".join(self.server.log[begun:]))
        return said, code, "".join(self.server.log[begun:])

    def check(self, feature, fine, said, code, log):
        """Whether all is well: also every request was answered."""
        statuses = re.findall(r"method=POST path=(\S+) status=(\d+)", log)
        fine = fine and code == 0 and bool(statuses) and all(status == "200" for _, status in statuses)
        if not fine:
            self.problems.append("%s, %s: exit code %d, %s\n%s" % (self.name, feature, code, statuses, said[-1500:]))
        return "yes" if fine else "no"

    def tool(self, tool, project, **marks):
        name, arguments = tool
        marks = dict({"{PATH}": os.path.join(project, "hello.txt"), "{PICTURE}": os.path.join(project, "image0.png")}, **marks)
        return "<tool_call>\n%s\n</tool_call>" % json.dumps({"name": name, "arguments": filled(arguments, marks)}), ['"%s"' % name]

    def write(self, project):
        """The tool loop."""
        self.server.answer(("Done: it is written.", ["<tool_response>"]), self.tool(self.agent.write, project), "A short title")
        said, code, log = self.run(project, self.agent.task, TASK)
        path = os.path.join(project, "hello.txt")
        written = os.path.exists(path) and open(path, encoding="utf-8").read().strip() == "hi"
        fine = self.check("tool loop", written and "it is written" in said, said, code, log)
        return fine, log

    def next_turn(self, project):
        self.server.answer(("Goodbye, then.", ["say goodbye"]), "A short title")
        self.server.prompts()
        said, code, log = self.run(project, self.agent.more, "now say goodbye")
        both = any(TASK in prompt and "say goodbye" in prompt for prompt in self.server.prompts())
        return self.check("next turn", both and "Goodbye, then" in said, said, code, log)

    def look(self, project):
        self.server.answer(("I can see a square.", ["<|image_pad|>"]), ("I see nothing.", ["<tool_response>"]),
                           self.tool(self.agent.look, project), "A short title")
        said, code, log = self.run(project, self.agent.task, "look at image0.png and say what you see")
        return self.check("picture", "I can see a square" in said, said, code, log)

    def helper(self, project):
        answer, has = self.tool(self.agent.helper, project, **{"{SUBTASK}": "SUBTASK: say a number"})
        rules = [("It is seventeen.", ["SUBTASK: say"]), (answer, has), "A short title"]
        if self.name == "codex":  # its helpers work beside it
            rules[:0] = [("The helper has answered.", ["echo slept"]), (call("exec_command", cmd="sleep 2; echo slept"), ["<tool_response>"])]
        self.server.answer(("The helper has answered.", ["It is seventeen."]), *rules)
        self.server.prompts()
        said, code, log = self.run(project, self.agent.task, "ask another agent for a number")
        own = any("SUBTASK: say" in prompt and "ask another agent" not in prompt for prompt in self.server.prompts())
        return self.check("second agent", own and "The helper has answered" in said, said, code, log)

    def compact(self, project):
        """A conversation that is compacted: the agent asks for a summary, which is in a later prompt."""
        words = "FIRST-WORDS " + "many words of an old story " * 300
        self.server.answer(("SUMMARY-OF-IT", [self.agent.summary]), ("SECOND-ANSWER", ["SECOND-WORDS"]),
                           ("FIRST-ANSWER", ["FIRST-WORDS"]), "A short title")
        context = {} if isinstance(self.agent.compact, list) else {"context": self.first_prompt + self.agent.compact}
        self.server.prompts()
        whole = [self.run(project, self.agent.task, words, **context)]  # some agents compact at once, others before they go on
        if not context:
            whole += [self.run(project, self.agent.more, "and more"), self.run(project, self.agent.compact, "")]
        whole.append(self.run(project, self.agent.more, "SECOND-WORDS", **context))
        prompts = self.server.prompts()
        asked = any(self.agent.summary in prompt for prompt in prompts)
        fine = asked and any("SUMMARY-OF-IT" in prompt and "SECOND-WORDS" in prompt for prompt in prompts)
        said, code, log = ("\n".join(part[0] for part in whole), max(part[1] for part in whole), "".join(part[2] for part in whole))
        return self.check("compaction", fine, said, code, log)

    def interrupt(self, project):
        """Ctrl-C while the model works: the agent ends, its request ends, and the server answers the next one."""
        self.server.answer("word " * 20000)
        begun = len(self.server.log)
        process = self.start(project, self.agent.task, "tell me everything")
        busy = soon(lambda: any(slot.get("is_processing") for slot in self.server.get("/slots").json), 60)
        time.sleep(0.5)
        for number in (signal.SIGINT, signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
            if process.poll() is None:
                os.killpg(process.pid, number)
                try:
                    process.wait(5)
                except subprocess.TimeoutExpired:
                    pass
        said = process.communicate()[0].decode("utf-8", "replace")
        idle = soon(lambda: not any(slot.get("is_processing") for slot in self.server.get("/slots").json))
        self.server.answer("Fine.")
        reply = self.server.chat(model="script", messages=[{"role": "user", "content": "Hi"}])
        return self.check("interrupted", busy and idle and reply.status == 200, said, 0, "".join(self.server.log[begun:]) + "method=POST path=/ status=200")

    def wait(self, project, seconds):
        """A prompt that takes long: the agent hears events meanwhile, does not give up or ask again, and has the answer."""
        self.server.answer("Here I am, at last.")
        self.server.hold(True)
        begun = len(self.server.log)
        process = self.start(project, self.agent.task, "hello there")
        time.sleep(seconds)
        waited = process.poll() is None
        self.server.hold(False)
        try:
            said, code = process.communicate(timeout=LIMIT)[0].decode("utf-8", "replace"), process.returncode
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            said, code = process.communicate()[0].decode("utf-8", "replace"), -1
        soon(lambda: " prompt=" in "".join(self.server.log[begun:]))
        self.server.stop()
        return self.check("long prompt", waited and "at last" in said, said, code, "".join(self.server.log[begun:]))

    def all(self):
        cells = {}
        cells["tool loop"], log = self.write(self.folder("project"))
        prompts = [(int(prompt), int(found)) for prompt, found in re.findall(r" prompt=(\d+) cached=(\d+)", log)] or [(1, 0)]
        self.first_prompt = max(prompts)[0]
        cells["path"] = ", ".join(sorted(set(re.findall(r"method=POST path=(\S+) ", log))))
        ignored = re.findall(r"ignored=\"([^\"]*)\"", log)
        cells["cached in a session"] = share(prompts[1:] or prompts)
        if self.agent.more:
            cells["next turn"] = self.next_turn(os.path.join(self.home, "project"))
        _, log = self.write(self.folder("other"))
        prompts = [(int(prompt), int(found)) for prompt, found in re.findall(r" prompt=(\d+) cached=(\d+)", log)] or [(1, 0)]
        cells["cached in a second one"] = share(prompts[:-1] or prompts)  # the last one is in the cache of this session
        if self.agent.look:
            cells["picture"] = self.look(self.folder("pictures"))
        if self.agent.helper:
            cells["second agent"] = self.helper(self.folder("helpers"))
        if self.agent.compact:
            cells["compaction"] = self.compact(self.folder("long"))
        cells["interrupted"] = self.interrupt(self.folder("interrupted"))
        cells["named as ignored"] = ", ".join(sorted({name for names in ignored for name in names.split(", ") if name})) or "nothing"
        self.server.stop()
        return cells


def share(prompts):
    """The share of the longest prompt that was in the cache."""
    prompt, found = max(prompts)
    return "%.0f %%" % (100 * found / prompt)


SDKS = ["@anthropic-ai/sdk", "openai", "ai", "ollama-ai-provider-v2", "@ai-sdk/openai-compatible", "zod"]


def try_sdks():
    """(rows of the table, passed, failed); None: npm cannot fetch them."""
    found = install("sdks", SDKS)
    if not found:
        return None
    folder = os.path.join(CACHE, "sdks")
    server = ScriptServer(sees=True)
    server.answer(("It rains.", ["<tool_response>"]), (call("weather", city="Oslo"), ['"weather"']), ("A square.", ["<|image_pad|>"]))
    shutil.copy(os.path.join(HERE, "sdks.mjs"), folder)
    done = subprocess.run(["node", "sdks.mjs", "http://127.0.0.1:%d" % server.port, PICTURE], cwd=folder, capture_output=True,
                          timeout=LIMIT, check=False)
    server.stop()
    print((done.stdout + done.stderr).decode("utf-8", "replace"), flush=True)
    rows = []
    for result, name in re.findall(r"(?m)^(passed|failed) (.*)$", done.stdout.decode("utf-8", "replace")):
        package = name.split(": ")[0]
        rows.append("| %s | %s | %s |" % (name, version("sdks", package), "yes" if result == "passed" else "no"))
    passed = sum(row.endswith("| yes |") for row in rows)
    return rows, passed, len(rows) - passed + (done.returncode != 0)


def try_patience(seconds, names):
    """All agents wait at the same time; the number of those that did not."""
    found = {name: install(name, AGENTS[name].packages, SCRIPTS.get(name)) for name in names}
    trials = [Trial(name, programs[0]) for name, programs in found.items() if programs]
    results = {}

    def run(trial):
        results[trial.name] = trial.wait(trial.folder("project"), seconds)
    threads = [threading.Thread(target=run, args=(trial,)) for trial in trials]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for trial in trials:
        print("\n".join(trial.problems + ["%s waited %d s: %s" % (AGENTS[trial.name].title, seconds, results[trial.name])]), flush=True)
    return list(results.values()).count("no")


def main():
    if sys.argv[1:2] == ["--patience"]:
        use_node()
        sys.exit(try_patience(int(sys.argv[2]), sys.argv[3:] or list(AGENTS)) != 0)
    options = [name for name in sys.argv[1:] if name.startswith("--")]
    use_node()
    wanted = [name for name in sys.argv[1:] if name not in options] or [*AGENTS, "mcp", "sdks"]
    names = [name for name in wanted if name in AGENTS]
    rows, passed, failed, skipped = [], 0, 0, 0
    for name in names:
        found = install(name, AGENTS[name].packages, SCRIPTS.get(name))
        if not found:
            print("SKIPPED %s: npm cannot fetch it" % name)
            skipped += 1
            continue
        trial = Trial(name, found[0])
        cells = trial.all()
        results = [cells.get(column) for column in COLUMNS]
        passed += results.count("yes")
        failed += results.count("no")
        rows.append("| %s | %s | %s |" % (AGENTS[name].title, found[1], " | ".join(cell or "-" for cell in results)))
        print("\n".join(trial.problems + [rows[-1]]), flush=True)
    for_mcp = install("mcp", mcp_servers.PACKAGES) if "mcp" in wanted else None
    if "mcp" in wanted and not for_mcp:
        print("SKIPPED mcp: npm cannot fetch the servers")
        skipped += 1
    servers = mcp_servers.Trial(for_mcp[0]).all(lambda name: version("mcp", "@modelcontextprotocol/" + name)) if for_mcp else []
    passed += sum("yes" in row for row in servers)
    failed += sum("yes" not in row for row in servers)
    print("\n".join(servers), flush=True)
    sdks = try_sdks() if "sdks" in wanted else ([], 0, 0)
    if sdks is None:
        print("SKIPPED sdks: npm cannot fetch them")
        skipped, sdks = skipped + 1, ([], 0, 0)
    passed, failed = passed + sdks[1], failed + sdks[2]
    if "--write" in options and rows:
        write_table("AGENTS.md", "table", "| agent | version | %s |\n|%s\n%s\n" % (" | ".join(COLUMNS), "---|" * (len(COLUMNS) + 2), "\n".join(rows)))
    if "--write" in options and sdks[0]:
        write_table("AGENTS.md", "sdks", "| SDK | version | loop with a tool |\n|---|---|---|\n%s\n" % "\n".join(sdks[0]))
    if "--write" in options and servers:
        write_table("MCP.md", "table", "| server | version | what | result |\n|---|---|---|---|\n%s\n" % "\n".join(servers))
    print("%d passed, %d failed, %d skipped" % (passed, failed, skipped))
    sys.exit(failed != 0)


def merged(before, table):
    """The new table with the old rows of agents that were not tried this time."""
    head, rows = table.splitlines(True)[:2], table.splitlines(True)[2:]
    if before.splitlines(True)[:1] != head[:1]:
        return table
    titles = [row.split("|")[1] for row in rows]
    rows += [row for row in before.splitlines(True)[2:] if row.split("|")[1] not in titles]
    order = [agent.title for agent in AGENTS.values()]
    return "".join(head + sorted(rows, key=lambda row: (order + [row.split("|")[1].strip()]).index(row.split("|")[1].strip())))


def write_table(page, mark, table):
    page = os.path.join(ROOT, "docs", page)
    with open(page, encoding="utf-8") as file:
        text = file.read()
    text = re.sub(r"(?s)(<!-- %s -->\n)(.*?)(<!-- end -->)" % mark, lambda m: m.group(1) + merged(m.group(2), table) + m.group(3), text)
    with open(page, "w", encoding="utf-8") as file:
        file.write(text)


if __name__ == "__main__":
    main()
