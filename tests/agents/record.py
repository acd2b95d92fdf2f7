"""Records terminal sessions of agents that finish the small task: record.py FOLDER [NAME ...] writes FOLDER/NAME.cast, in the form
of asciicast 2, which `asciinema play` shows. The agent is the published program at a terminal, started by `spry launch`; server
and answers are those of agents.py."""

import fcntl
import json
import os
import pty
import select
import signal
import struct
import sys
import termios
import time

import agents

COLUMNS, LINES = 100, 30
# Arguments, and what ends the agent.
SESSIONS = {"claude": (["--permission-mode", "acceptEdits", agents.TASK], "\x03\x03"),
            "codex": (["--dangerously-bypass-approvals-and-sandbox", "-c", "check_for_update_on_startup=false", agents.TASK], "\x03\x03")}
# What programs ask a terminal, and its answers: the cursor's place, what it is, its colours.
QUESTIONS = {"\x1b[6n": "\x1b[1;1R", "\x1b[c": "\x1b[?62;c", "\x1b]10;?": "\x1b]10;rgb:dddd/dddd/dddd\x1b\\",
             "\x1b]11;?": "\x1b]11;rgb:1111/1111/1111\x1b\\"}


def believe(trial, project):
    """The settings of a user who has started the agents before, and trusts this folder."""
    with open(os.path.join(trial.home, ".claude.json"), "w", encoding="utf-8") as file:
        json.dump({"hasCompletedOnboarding": True, "theme": "dark", "projects": {project: {"hasTrustDialogAccepted": True}}}, file)
    os.makedirs(os.path.join(trial.home, ".codex"), exist_ok=True)
    with open(os.path.join(trial.home, ".codex", "config.toml"), "w", encoding="utf-8") as file:
        file.write('[projects."%s"]\ntrust_level = "trusted"\n' % project)


def play(command, project, environment, last):
    """[seconds, "o", text] of all that the program wrote; `last` is typed once it has said that the file is written."""
    process, terminal = pty.fork()
    if process == 0:
        os.chdir(project)
        os.execvpe(command[0], command, environment)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
    begun, events, whole, typed = time.monotonic(), [], "", 0
    while time.monotonic() - begun < agents.LIMIT:
        ready = select.select([terminal], [], [], 1)[0]
        try:
            data = os.read(terminal, 65536).decode("utf-8", "replace") if ready else None
        except OSError:
            break  # it has ended
        if data:
            events.append([round(time.monotonic() - begun, 3), "o", data])
            whole += data
            for question, answer in QUESTIONS.items():
                for _ in range(data.count(question)):
                    os.write(terminal, answer.encode())
        if "written" in whole and not data and typed < 3:
            for key in last:
                os.write(terminal, key.encode())
                time.sleep(0.1)
            typed += 1
    try:
        os.kill(process, signal.SIGKILL)
    except ProcessLookupError:
        pass
    os.waitpid(process, 0)
    return events


def main():
    folder, names = sys.argv[1], sys.argv[2:] or list(SESSIONS)
    agents.use_node()
    os.makedirs(folder, exist_ok=True)
    for name in names:
        found = agents.install(name, agents.AGENTS[name].packages, agents.SCRIPTS.get(name))
        trial = agents.Trial(name, found[0])
        project = trial.folder("project")
        believe(trial, project)
        arguments, last = SESSIONS[name]
        trial.server.answer(("Done: it is written.", ["<tool_response>"]), trial.tool(trial.agent.write, project), "A short title")
        command = [agents.SPRY, "launch", name, "--url", "http://127.0.0.1:%d" % trial.server.port, "--model", "script", "--", *arguments]
        environment = {"HOME": trial.home, "PATH": found[0] + os.pathsep + os.environ["PATH"], "TERM": "xterm-256color", "LANG": "C.UTF-8"}
        events = play(command, project, environment, last)
        trial.server.stop()
        with open(os.path.join(project, "hello.txt"), encoding="utf-8") as file:
            assert file.read().strip() == "hi"
        shown = "$ spry launch %s --model MODEL -- %s\r\n" % (name, " ".join(arguments[:-1] + ['"%s"' % arguments[-1]]))
        end = events[-1][0] + 0.5
        events = [[0, "o", shown]] + events + [[end, "o", "\r\n$ cat hello.txt\r\n"], [end + 0.5, "o", "hi\r\n"]]
        with open(os.path.join(folder, name + ".cast"), "w", encoding="utf-8") as file:
            file.write(json.dumps({"version": 2, "width": COLUMNS, "height": LINES, "title": "%s %s with spry" % (
                agents.AGENTS[name].title, found[1])}) + "\n")
            for event in events:
                file.write(json.dumps([event[0], "o", event[2].replace(trial.home, "~")], ensure_ascii=False) + "\n")
        print("%s: %d events, %.1f s" % (name, len(events), events[-1][0]))


if __name__ == "__main__":
    main()
