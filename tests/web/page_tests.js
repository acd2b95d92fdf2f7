// All tests of the page; a word as argument runs those whose name holds it. Ends with "N passed, N failed, N skipped".
"use strict";
require("./page_chat.js");
require("./page_keeping.js");
require("./page_hostile.js");
require("./page_looks.js");
require("./page_report.js");
require("./page_voice.js");
require("./page_watch.js");
const { runAll } = require("./page_support.js");

runAll().catch(error => {
    console.log("FAILED " + error.stack + "\n0 passed, 1 failed, 0 skipped");
    process.exit(1);
});
