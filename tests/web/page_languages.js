// The languages of the page: each has a table of every text; nothing on the page is outside of it.
"use strict";
const fs = require("node:fs");
const path = require("node:path");
const { KEY, PAGE_FOLDER, PHONE, answered, assert, closePage, madeUp, openPage, send, test } = require("./page_support.js");

const source = name => fs.readFileSync(path.join(PAGE_FOLDER, name), "utf8");
const LANGUAGES = ["de", "fr", "es", "zh", "ja"];
const TABLES = Object.fromEntries(LANGUAGES.map(name => [name, JSON.parse(source(`translations/${name}.json`))]));
const MESSAGES = TABLES.de; // all languages have its keys

// Words in the program that are not for people who use the page, or are not translated.
const OTHER_WORDS = new Set([
    "spry",
    "The user did not allow this call.", // for the model
    "spry pull hf:OWNER/REPO:Q4_K_M",
    "English",
    "Deutsch",
    "Fran\u00e7ais",
    "Espa\u00f1ol",
    "Enter",
    "Shift+Enter",
    "Esc",
    "Ctrl+K",
    "Ctrl+Shift+O",
    "Escape",
    "ArrowUp",
    "AbortError",
    "NotAllowedError",
    "Authorization",
    "Bearer ",
    "Content-Type",
    "Last-Event-ID",
    "System",
    "User",
    "Assistant",
    "DELETE",
    "GET",
    "POST",
    "WAVEfmt ",
    "math display",
    "noopener noreferrer",
    "tool-schema mono",
    "quiet parts-before",
    "RIFF",
    "WEBP",
    "GIF8",
    "SPAN",
    "Files",
    "KB",
    "MB",
    "GB",
    "TB",
]);

// Those that only the model reads.
const isPrompt = text => /^(Summary of the conversation so far|Summarise this conversation|numbers, decisions|Write a title for this)/.test(text);

const isSelector = text => /^[.#[:]|[.#[][\w-]+|^[a-z]+(, [\w.[]+)+$|^\$\{/.test(text) && !/[.?!]$/.test(text);
const looksLikeWords = text => /^[A-Z][a-z]+|[A-Za-z]{2,} [a-z]{2,}|^[A-Z]{2,}$/.test(text);

// The strings in double quotes of a script, without its comments.
function stringsOf(script) {
    const code = script
        .replace(/\/\*\*[^]*?\*\//g, "")
        .replace(/^\s*\/\/.*$/gm, "")
        .replace(/ \/\/ .*$/gm, "");
    return [...code.matchAll(/"(?:[^"\\\n]|\\.)*"/g)].map(([text]) => JSON.parse(text.replace(/\\x/g, "\\u00")));
}

// The texts and names of page.html.
function htmlTexts() {
    const html = source("page.html").replace(/<svg class="hidden"[^]*?<\/svg>/, "");
    const body = html.slice(html.indexOf("<body>"), html.indexOf("<noscript>"));
    const texts = [...body.matchAll(/>([^<>]+)</g)].map(([, text]) => text.trim());
    const names = [...body.matchAll(/ (?:title|aria-label|placeholder)="([^"]*)"/g)].map(([, text]) => text);
    return [...texts, ...names].filter(text => /[A-Za-z]/.test(text));
}

const scripts = () => fs.readdirSync(PAGE_FOLDER).filter(name => name.endsWith(".js"));

test("every message has all languages, with the same placeholders", async () => {
    assert.ok(Object.keys(MESSAGES).length > 200);
    const holes = text => [...text.matchAll(/\{\d\}/g)].map(String).sort();
    for (const language of LANGUAGES) {
        assert.deepEqual(Object.keys(TABLES[language]), Object.keys(MESSAGES), language);
        for (const [text, words] of Object.entries(TABLES[language])) {
            assert.ok(words.trim().length > 0, `${text} in ${language}`);
            assert.deepEqual(holes(words), holes(text), `${text} in ${language}`);
        }
    }
});

test("no text of the scripts or the page is outside the table, and none in it is unused", async world => {
    const { settings } = await (await fetch(world.url + "/v1/settings", { headers: { Authorization: "Bearer " + KEY } })).json();
    const used = new Set([...htmlTexts(), ...settings.filter(one => source("settings.js").includes(`"${one.name}"`)).map(one => one.help)]);
    const outside = [...used].filter(text => !(text in MESSAGES) && !OTHER_WORDS.has(text));
    for (const name of scripts()) {
        const script = source(name);
        for (const text of stringsOf(script)) {
            used.add(text);
            if (looksLikeWords(text) && !(text in MESSAGES || OTHER_WORDS.has(text) || isPrompt(text) || isSelector(text))) {
                outside.push(`${name}: ${text}`);
            }
        }
        for (const [, text] of script.matchAll(/\bsay\(\s*"((?:[^"\\\n]|\\.)*)"/g)) {
            if (!(JSON.parse(`"${text}"`) in MESSAGES)) {
                outside.push(`${name}: say ${text}`);
            }
        }
    }
    assert.deepEqual([...new Set(outside)], []);
    assert.deepEqual(Object.keys(MESSAGES).filter(text => !used.has(text)), []);
});

// ---- in the browser -------------------------------------------------------------------------------------------------

// Serves the page with every message in double brackets.
async function bracketed(page) {
    await page.route("**/language.js", async route => {
        const script = await (await route.fetch()).text();
        const marked = script.replace(
            "export function say(text, ...values) {",
            "export function say(text, ...values) { return text && '\u27e6' + plainSay(text, ...values) + '\u27e7'; }\nfunction plainSay(text, ...values) {",
        );
        assert.notEqual(marked, script);
        await route.fulfill({ body: marked, contentType: "text/javascript" });
    });
    await page.reload();
    await page.waitForFunction(() => document.getElementById("new-chat")?.textContent.includes("\u27e6"));
}

// Runs in the page: visible texts and names with letters outside the brackets. What users, models and the server write is
// left out, and so are units.
function outsideBrackets() {
    const OWN = ".bubble, .text *, .reasoning div, .open-chat span, #model, .brand, kbd, [lang]:not(html), .row-words b, #model-list p, pre, #pull-how code, noscript";
    const models = [...document.querySelectorAll("#model option")].map(one => one.value);
    const rest = text => {
        let depth = 0;
        return [...models.reduce((words, name) => words.replaceAll(name, ""), text)]
            .filter(letter => {
                depth += letter === "\u27e6" ? 1 : letter === "\u27e7" ? -1 : 0;
                return depth === 0 && letter !== "\u27e7";
            })
            .join("")
            .replace(/\b(ms|s|[KMGT]?B|[WJ])\b/g, "");
    };
    const found = [];
    const check = (where, text) => /\p{L}/u.test(rest(text)) && found.push(`${where}: ${text}`);
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
        const parent = walker.currentNode.parentElement;
        if (!parent.closest(OWN + ", script, small")) {
            check(parent.id || parent.className || parent.tagName, walker.currentNode.data);
        }
    }
    for (const name of ["title", "aria-label", "placeholder"]) {
        for (const one of document.querySelectorAll(`[${name}]`)) {
            if (!one.matches(".open-chat, .row-parts, .math, #s-schema") && !one.closest(".text a")) {
                check(`${name} of ${one.id || one.className}`, one.getAttribute(name));
            }
        }
    }
    return found;
}

const TIMINGS = {
    ttft_ms: 46,
    decode_ms: 500,
    restore_ms: 3,
    parts_ms: { prefill: 40, decode: 490, queue: 2 },
    energy: { joules: 21.5, joules_per_100_tokens: 35.8, watts: 39 },
    generated_tokens: 60,
    prompt_tokens: 1,
    cached_tokens: 1,
    drafted_tokens: 10,
    accepted_tokens: 7,
    span_tokens: 5,
    repaired_tokens: 1,
    context_tokens: 100,
    dropped_tokens: 4,
};

test("everything that is seen comes from the table", async world => {
    const page = await openPage(world, {
        locale: "de-DE",
        before: madeUp("# Title\n\n- [x] yes\n\n```\nx\n```\n\n|a|b|\n|---|---|\n|1|2|", { reasoning: "R.", timings: TIMINGS }),
    });
    await bracketed(page);
    const check = async where => assert.deepEqual(await page.evaluate(outsideBrackets), [], where);
    await check("empty");
    await send(page, "Question");
    await answered(page);
    await page.locator(".assistant .actions button").nth(1).click();
    await answered(page);
    await check("answered");
    await page.click("#open-settings");
    await page.fill("#s-temperature", "900");
    await page.fill("#s-schema", "{");
    assert.match(await page.textContent("#settings-error"), /\u27e6Das Schema/);
    await page.keyboard.press("Escape");
    await page.click("#open-models");
    await page.waitForSelector("#model-list li");
    await page.fill("#pull-source", "/x.gguf");
    await page.click("#pull-start");
    await page.waitForSelector("#pull-words.error");
    await check("models");
    await page.keyboard.press("Escape");
    await page.click("#open-keys");
    await check("keys");
    await page.keyboard.press("Escape");
    await page.click("#tab-watch");
    await page.waitForSelector("#watch-models li .state:not(:empty)");
    await check("watch");
    await page.click("#tab-chat");
    await page.context().setOffline(true);
    await page.waitForSelector("#banner:not([hidden])");
    await check("offline");
    await closePage(page);
});

test("the page speaks the browser's language, or the one that is set", async world => {
    const page = await openPage(world, { locale: "fr-CA", before: madeUp("Bien.") });
    const title = () => page.innerText("#welcome h2");
    assert.equal(await title(), TABLES.fr["What shall we write?"]);
    assert.equal(await page.getAttribute("html", "lang"), "fr");
    for (const language of LANGUAGES) {
        await page.fill("#input", "not sent yet");
        await page.click("#open-settings");
        await Promise.all([page.waitForEvent("load"), page.selectOption("#s-language", language)]);
        await page.waitForSelector(`html[lang=${language}]`);
        assert.equal(await title(), TABLES[language]["What shall we write?"]);
        assert.equal(await page.getAttribute("#send", "aria-label"), TABLES[language].Send);
        assert.equal(await page.inputValue("#input"), "not sent yet");
    }
    await page.click("#open-settings");
    await Promise.all([page.waitForEvent("load"), page.selectOption("#s-language", "")]);
    await page.waitForSelector("html[lang=fr]");
    await closePage(page);
    const other = await openPage(world, { locale: "sv-SE" });
    assert.equal(await other.getAttribute("html", "lang"), "en");
    assert.equal(await other.innerText("#welcome h2"), "What shall we write?");
    await closePage(other);
});

test("numbers are written as the language does", async world => {
    const page = await openPage(world, {
        locale: "de-DE",
        before: madeUp("Gut.", { timings: { ...TIMINGS, generated_tokens: 12345, ttft_ms: 1500 } }),
    });
    await send(page, "Hallo");
    const words = await (await answered(page)).locator(".timings summary").innerText();
    assert.match(words, /1,5 s bis zum ersten Token.*12\.345 Token/);
    await closePage(page);
});

test("in every language nothing is cut on a phone", async world => {
    for (const locale of LANGUAGES) {
        const page = await openPage(world, { locale, viewport: PHONE, before: madeUp("x", { timings: TIMINGS }) });
        await page.fill("#input", "Hello");
        await page.click("#send");
        await answered(page);
        const wide = () =>
            [...document.querySelectorAll("html, body, main, #scroller, #watch-view, #side, dialog[open], .top, button:not(.icon-button)")]
                .filter(one => one.checkVisibility() && one.scrollWidth > one.clientWidth + 1)
                .map(one => one.id || one.className || one.tagName);
        assert.deepEqual(await page.evaluate(wide), [], locale);
        assert.ok((await page.locator("#model").boundingBox()).width > 60, locale);
        await page.click("#open-settings");
        assert.deepEqual(await page.evaluate(wide), [], locale + " settings");
        await page.keyboard.press("Escape");
        await page.click("#tab-watch");
        await page.waitForSelector("#watch-models li");
        assert.deepEqual(await page.evaluate(wide), [], locale + " watch");
        await closePage(page);
    }
});

test("right-to-left text runs from the right, code from the left", async world => {
    const arabic = "\u0645\u0631\u062d\u0628\u0627 \u0628\u0643";
    const page = await openPage(world, {
        before: madeUp(`# ${arabic}\n\n${arabic}\n\n- ${arabic}\n\n> ${arabic}\n\n|${arabic}|b|\n|---|---|\n|${arabic}|2|\n\n\`\`\`\nint x;\n\`\`\`\n\nEnglish.`, { reasoning: arabic }),
    });
    await page.fill("#input", arabic);
    const direction = selector => page.locator(selector).first().evaluate(one => getComputedStyle(one).direction);
    assert.equal(await direction("#input"), "rtl");
    await send(page, arabic);
    await answered(page);
    for (const selector of [".bubble", ".text > h3", ".text > p", ".text li", ".text blockquote", ".text td", ".reasoning div", ".open-chat span"]) {
        assert.equal(await direction(selector), "rtl", selector);
    }
    assert.equal(await direction(".text pre"), "ltr");
    assert.equal(await page.locator(".text > p").last().evaluate(one => getComputedStyle(one).direction), "ltr");
    await closePage(page);
});
