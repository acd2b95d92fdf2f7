// The pages of `spry report`, opened as files: nothing scrolls sideways, no text lies on another or leaves its drawing,
// everything can be read in light and dark, and on paper no drawing is cut.
"use strict";
const { execFileSync } = require("node:child_process");
const fs = require("node:fs");
const os = require("node:os");
const path = require("node:path");
const { faintTexts } = require("./page_looks.js");
const { assert, test } = require("./page_support.js");

const DATA = path.join(__dirname, "..", "data", "report");
const PAPER = { width: 687, height: 1017 }; // A4 within its margins
const WIDTHS = [360, 768, 1280];
const REPORTS = [["after"], ["before", "after", "laptop", "trace", "machine"]];

// Makes the report, opens it, lets `work` look at it. The page must stay without faults and make no requests.
async function withReport(world, names, context, work) {
    const folder = fs.mkdtempSync(path.join(os.tmpdir(), "spry-report-"));
    const file = path.join(folder, "report.html");
    const inputs = names.map(name => (path.isAbsolute(name) ? name : path.join(DATA, name + ".json")));
    execFileSync(process.env.SPRY, ["report", ...inputs, "-o", file]);
    const browserContext = await world.browser.newContext(context);
    const page = await browserContext.newPage();
    const faults = [];
    page.on("console", message => faults.push(message.text()));
    page.on("pageerror", error => faults.push(error.message));
    page.on("request", request => {
        if (request.url() !== "file://" + file) {
            faults.push(request.url());
        }
    });
    await page.goto("file://" + file);
    try {
        await work(page);
        assert.deepEqual(faults, []);
    } finally {
        await browserContext.close();
        fs.rmSync(folder, { recursive: true, force: true });
    }
}

// Runs in the page: what is wider than the window and does not scroll by itself.
function overflowing() {
    const wide = [...document.querySelectorAll("body *")].filter(
        one => !one.closest(".scroll") && one.getBoundingClientRect().right > document.documentElement.clientWidth + 1,
    );
    if (document.documentElement.scrollWidth > document.documentElement.clientWidth) {
        wide.unshift(document.documentElement);
    }
    return wide.map(one => one.outerHTML.slice(0, 120));
}

// Runs in the page: texts of a drawing that lie on each other, or outside of it.
function crowdedTexts() {
    const found = [];
    for (const drawing of document.querySelectorAll("svg.xy, svg.bar")) {
        const frame = drawing.getBoundingClientRect();
        const texts = [...drawing.querySelectorAll("text")]
            .map(one => ({ text: one.textContent, box: one.getBoundingClientRect() }))
            .filter(one => one.box.width > 0);
        for (const { text, box } of texts) {
            if (box.left < frame.left - 2 || box.right > frame.right + 2 || box.bottom > frame.bottom + 2) {
                found.push("outside: " + text);
            }
        }
        texts.forEach((one, i) => {
            for (const other of texts.slice(i + 1)) {
                const across = Math.min(one.box.right, other.box.right) - Math.max(one.box.left, other.box.left);
                const down = Math.min(one.box.bottom, other.box.bottom) - Math.max(one.box.top, other.box.top);
                if (across > 1 && down > 4) {
                    found.push(one.text + " on " + other.text);
                }
            }
        });
    }
    return found;
}

// Runs in the page: names inside a bar's pieces that are wider than their piece.
function squeezedNames() {
    return [...document.querySelectorAll("svg.bar text.in")]
        .filter(one => {
            const width = one.getBoundingClientRect().width;
            return width > 0 && width > one.previousElementSibling.getBoundingClientRect().width;
        })
        .map(one => one.textContent);
}

test("reports fit every width, and their texts stand free", async world => {
    for (const names of REPORTS) {
        await withReport(world, names, { viewport: { width: 1280, height: 900 } }, async page => {
            for (const width of WIDTHS) {
                await page.setViewportSize({ width, height: 900 });
                const where = `${names} at ${width}`;
                assert.deepEqual(await page.evaluate(overflowing), [], where);
                assert.deepEqual(await page.evaluate(crowdedTexts), [], where);
                assert.deepEqual(await page.evaluate(squeezedNames), [], where);
            }
        });
    }
});

test("reports can be read in light and dark", async world => {
    const grounds = [];
    for (const colorScheme of ["light", "dark"]) {
        await withReport(world, REPORTS[1], { colorScheme, viewport: { width: 1280, height: 900 } }, async page => {
            assert.deepEqual(await page.evaluate(faintTexts), [], colorScheme);
            grounds.push(await page.evaluate(() => getComputedStyle(document.body).backgroundColor));
            const nameless = await page.evaluate(() =>
                [...document.querySelectorAll("[role=img], [tabindex='0']")]
                    .filter(one => !one.getAttribute("aria-label"))
                    .map(one => one.outerHTML.slice(0, 80)),
            );
            assert.deepEqual(nameless, []);
        });
    }
    assert.notEqual(grounds[0], grounds[1]);
});

test("reports are printed whole, on white", async world => {
    await withReport(world, REPORTS[1], { colorScheme: "dark", viewport: PAPER }, async page => {
        await page.emulateMedia({ media: "print", colorScheme: "dark" });
        assert.deepEqual(await page.evaluate(overflowing), []);
        assert.equal(
            await page.evaluate(() => getComputedStyle(document.body).backgroundColor),
            "rgb(255, 255, 255)",
        );
        const cut = await page.evaluate(
            height =>
                [...document.querySelectorAll("figure")]
                    .filter(
                        one =>
                            getComputedStyle(one).breakInside !== "avoid" ||
                            one.getBoundingClientRect().height > height,
                    )
                    .map(one => one.textContent.slice(0, 60)),
            PAPER.height,
        );
        assert.deepEqual(cut, []);
        const wideTables = await page.evaluate(() =>
            [...document.querySelectorAll(".scroll")]
                .filter(one => one.scrollWidth > one.clientWidth + 1)
                .map(one => one.textContent.slice(0, 60)),
        );
        assert.deepEqual(wideTables, []);
        assert.ok((await page.pdf({ format: "A4" })).length > 10000);
    });
});

test("reports show hostile names as they are", async world => {
    const folder = fs.mkdtempSync(path.join(os.tmpdir(), "spry-report-"));
    const name = '<img src=x onerror="window.hit=1">'.repeat(3);
    const bench = JSON.parse(fs.readFileSync(path.join(DATA, "after.json"), "utf8"));
    bench.model = name;
    bench.machine.cpu = "x".repeat(300);
    bench.decode[0].ops[3].op = name;
    const file = path.join(folder, "a-very-long-name-of-a-file-that-has-no-end-".repeat(3) + ".json");
    fs.writeFileSync(file, JSON.stringify(bench));
    await withReport(world, [file, "before"], { viewport: { width: 360, height: 800 } }, async page => {
        assert.equal(await page.evaluate(() => window.hit), undefined);
        assert.equal(await page.locator("img").count(), 0);
        assert.deepEqual(await page.evaluate(overflowing), []);
    });
    fs.rmSync(folder, { recursive: true, force: true });
});
