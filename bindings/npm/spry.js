#!/usr/bin/env node
// Runs the program of the package for this machine (spry-linux-x64 and so on), with these arguments, this terminal and the
// program's exit status.
"use strict";

const { spawn } = require("node:child_process");
const path = require("node:path");
const os = require("node:os");

const OLDEST_GLIBC = 31;

function giveUp(why) {
    console.error(`spry: ${why}`);
    process.exit(1);
}

function findProgram() {
    const name = `spry-${process.platform}-${process.arch}`;
    if (process.platform === "linux") {
        const glibc = process.report.getReport().header.glibcVersionRuntime;
        if (!glibc) giveUp("this system's C library is not glibc (musl, perhaps): build spry from its sources");
        const [major, minor] = glibc.split(".").map(Number);
        if (major === 2 && minor < OLDEST_GLIBC)
            giveUp(`this system has glibc ${glibc}, and spry's package needs 2.${OLDEST_GLIBC} or later: build spry from its sources`);
    }
    try {
        return path.join(path.dirname(require.resolve(`${name}/package.json`)), "bin", "spry");
    } catch {
        giveUp(`the package ${name} is not installed: either there is none for this machine, or npm left out optional packages (--omit=optional)`);
    }
}

const child = spawn(findProgram(), process.argv.slice(2), { stdio: "inherit" });
child.on("error", error => giveUp(`the program cannot be started: ${error.message}`));
child.on("exit", (code, signal) => {
    if (!signal) process.exit(code);
    process.removeAllListeners(signal);
    process.kill(process.pid, signal);
});
// A terminal sends its signals to the program, too; what others send to this process is passed on.
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2"])
    if (os.constants.signals[signal])
        process.on(signal, () => { if (signal !== "SIGINT" || !process.stdin.isTTY) child.kill(signal); });
