// Tests of the page: `page_tests.js FILE [WORD]` runs the tests of a file (chat: page_chat.js; all: every file) or, with a word,
// those whose name holds it. Ends with "N passed, N failed, N skipped".
"use strict";
const fs = require("node:fs");
const { runAll } = require("./page_support.js");

const HELPERS = ["page_support.js", "page_tests.js"];
const [, , chosen = "all"] = process.argv;
const files = fs
    .readdirSync(__dirname)
    .filter(name => /^page_\w+\.js$/.test(name) && !HELPERS.includes(name))
    .filter(name => chosen === "all" || name === `page_${chosen}.js`);
files.forEach(name => require("./" + name));

runAll().catch(error => {
    console.log("FAILED " + error.stack + "\n0 passed, 1 failed, 0 skipped");
    process.exit(1);
});
