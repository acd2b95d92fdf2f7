// The watch view: a snapshot of the server (documented in WATCH.md) about twice a second, while the view is visible.

const WATCH_KEEP_MS = 120000;
const SPARK_MS = 60000;
const WATTS_MS = 5000;
const HITS_MS = 5000;
const WATCH_ROWS_MAX = 60;

const watch = {
    abort: null,
    now: 0,
    requests: new Map(), // id: its last known state, kept longer than the server sends it
    speeds: [],
    hits: [], // {time, hits, asked} since the models were loaded, and value: the share in the seconds before
    joules: [],
    rows: new Map(),
    cards: new Map(),
};

// ---- snapshots ------------------------------------------------------------------------------------------------------

const numbersOf = (value, names) => Object.fromEntries(names.map(name => [name, Math.max(0, finite(value?.[name]))]));
const listOf = value => (Array.isArray(value) ? value : []);

// A snapshot with every member present and of its type.
function cleanSnapshot(value) {
    return {
        now_ms: finite(value?.now_ms),
        requests: listOf(value?.requests).map(request => ({
            id: cleanText(request?.id, 100),
            model: cleanText(request?.model, 200),
            state: cleanText(request?.state, 20),
            parts: partsOf(request?.parts_ms),
            ...numbersOf(request, [
                "start_ms",
                "prompt_tokens",
                "cached_tokens",
                "generated_tokens",
                "tokens_per_second",
            ]),
        })),
        models: listOf(value?.models).map(model => ({
            name: cleanText(model?.name, 200),
            state: cleanText(model?.state, 20),
            pinned: model?.pinned === true,
            why: cleanText(model?.together?.why, 300),
            kv: numbersOf(model?.kv, ["pages", "free", "cached", "idle", "pinned", "page_bytes"]),
            memory: numbersOf(model?.memory, ["used", "limit", "kv_used", "kv_limit"]),
            ...numbersOf(model, [
                "bytes",
                "running",
                "waiting",
                "hit_tokens",
                "miss_tokens",
                "span_tokens",
                "tokens_per_second",
            ]),
        })),
        pool: numbersOf(value?.pool, ["bytes", "max_bytes"]),
        energy: { ...numbersOf(value?.energy, ["cpu_joules", "gpu_joules"]), why: cleanText(value?.energy?.why, 300) },
    };
}

// Requests remain on the page after the server has stopped sending them. A clock that goes back means a new server.
function rememberSnapshot(snapshot) {
    if (snapshot.now_ms < watch.now) {
        watch.requests.clear();
        watch.speeds = [];
        watch.hits = [];
        watch.joules = [];
    }
    watch.now = snapshot.now_ms;
    const sent = new Set(snapshot.requests.map(request => request.id));
    for (const [id, request] of watch.requests) {
        if (!sent.has(id) && !hasEnded(request)) {
            request.state = "done";
        }
        if (watch.now - request.start_ms > WATCH_KEEP_MS && hasEnded(request)) {
            watch.requests.delete(id);
        }
    }
    for (const request of snapshot.requests) {
        watch.requests.set(request.id, request);
    }
    watch.speeds.push({
        time: watch.now,
        value: snapshot.models.reduce((sum, model) => sum + model.tokens_per_second, 0),
    });
    watch.speeds = watch.speeds.filter(point => watch.now - point.time <= SPARK_MS);
    rememberHits(snapshot);
    watch.joules.push({ time: watch.now, value: snapshot.energy.cpu_joules + snapshot.energy.gpu_joules });
    watch.joules = watch.joules.filter(point => watch.now - point.time <= WATTS_MS);
}

// The share of prompt tokens that were cached, over the last seconds in which there were prompts. Counts that go back mean
// that a model was unloaded.
function rememberHits(snapshot) {
    const sum = name => snapshot.models.reduce((total, model) => total + model[name], 0);
    const hits = sum("hit_tokens");
    const asked = hits + sum("miss_tokens");
    if (watch.hits.at(-1)?.asked > asked) {
        watch.hits = [];
    }
    const before = watch.hits.findLast(point => watch.now - point.time >= HITS_MS) ?? watch.hits[0];
    const fresh = asked - (before?.asked ?? 0);
    const value = fresh > 0 ? (hits - (before?.hits ?? 0)) / fresh : (watch.hits.at(-1)?.value ?? 0);
    watch.hits.push({ time: watch.now, hits, asked, value: Math.min(1, Math.max(0, value)) });
    watch.hits = watch.hits.filter(point => watch.now - point.time <= SPARK_MS);
}

// ---- showing --------------------------------------------------------------------------------------------------------

function drawTiles(snapshot) {
    const sum = name => snapshot.models.reduce((total, model) => total + model[name], 0);
    const hits = sum("hit_tokens");
    const asked = hits + sum("miss_tokens");
    const { bytes, max_bytes } = snapshot.pool;
    setText(byId("watch-speed"), inFigures(sum("tokens_per_second")));
    const most = Math.max(1, ...watch.speeds.map(point => point.value));
    const fastest = say("at most {0} in the last minute", inFigures(most));
    setText(byId("watch-speed-words"), fastest);
    drawSpark(byId("watch-spark"), watch.speeds, watch.now, SPARK_MS, most, fastest);
    setText(byId("watch-load"), inCount(sum("running")));
    setText(byId("watch-load-words"), say("running, {0} waiting", inCount(sum("waiting"))));
    setText(byId("watch-hits"), inPercent(hits, asked));
    setText(byId("watch-hits-words"), say("{0} of {1}", inCount(hits), inPromptTokens(asked)));
    const rate = watch.hits.at(-1)?.value ?? 0;
    drawSpark(byId("watch-hits-spark"), watch.hits, watch.now, SPARK_MS, 1, say("last prompts: {0}", inPercent(rate, 1)));
    setText(byId("watch-pool"), inBytes(bytes));
    setText(byId("watch-pool-words"), max_bytes > 0 ? say("of at most {0}", inBytes(max_bytes)) : "");
    const loaded = snapshot.models.filter(model => model.state === "loaded");
    drawMeter(
        byId("watch-pool-bar"),
        loaded.map((model, at) => ({ share: model.bytes / Math.max(1, max_bytes), kind: "m-" + (at % 3) })),
        loaded.map(model => model.name + " " + inBytes(model.bytes)).join(", "),
    );
    drawEnergy(snapshot.energy);
}

// Watts: the average over the last seconds.
function drawEnergy(energy) {
    const last = watch.joules.at(-1);
    const first = watch.joules[0];
    const watts = last.time > first.time ? (1000 * (last.value - first.value)) / (last.time - first.time) : 0;
    setText(byId("watch-power"), energy.why ? "\u2013" : inFigures(watts) + " W");
    const words = byId("watch-power-words");
    if (!energy.why) {
        setText(words, say("{0} J since the server began", inFigures(last.value)));
    } else if (words.firstElementChild?.explanation !== energy.why) {
        words.replaceChildren(term("unmeasured", energy.why));
    }
}

function drawRequests() {
    const span = 1000 * document.querySelector("#window input:checked").value;
    const shown = [...watch.requests.values()]
        .filter(request => !hasEnded(request) || requestEnd(request) > watch.now - span)
        .sort((one, other) => other.start_ms - one.start_ms)
        .slice(0, WATCH_ROWS_MAX);
    drawList(
        byId("waterfall"),
        watch.rows,
        shown.map(request => ({ key: request.id, request })),
        requestRow,
        (row, { request }) => drawRequest(row, request, watch.now, span),
    );
    byId("waterfall-none").hidden = shown.length > 0;
    setText(
        byId("waterfall-none"),
        watch.requests.size
            ? say("Nothing in this time.")
            : say("No requests yet. Ask something in the chat, or send one with curl."),
    );
}

const requestEnd = request => request.start_ms + partsSum(request.parts);

function showSnapshot(snapshot) {
    rememberSnapshot(snapshot);
    drawTiles(snapshot);
    drawRequests();
    drawList(
        byId("watch-models"),
        watch.cards,
        snapshot.models.map(model => ({ key: model.name, model })),
        modelCard,
        (card, { model }) => drawModel(card, model),
    );
}

// ---- the stream -----------------------------------------------------------------------------------------------------

const isWatched = () => !byId("watch-view").hidden && document.visibilityState === "visible";

function sayWatch(text, failed = false) {
    setText(byId("watch-state"), text);
    byId("watch-state").classList.toggle("error", failed);
}

// Reads the stream until `abort`; throws when it breaks or ends.
async function followWatch(abort) {
    const response = await callServer("/watch", null, abort.signal);
    for await (const { data } of serverEvents(response)) {
        sayWatch("");
        showSnapshot(cleanSnapshot(parseAnswer(data)));
    }
    throw new ServerError(say("The server ended the connection."), 0);
}

// Starts or stops the stream when the page becomes visible or hidden; retries after an error.
async function watchWhileSeen() {
    if (!isWatched() || watch.abort) {
        if (!isWatched()) {
            watch.abort?.abort();
            watch.abort = null;
        }
        return;
    }
    const abort = (watch.abort = new AbortController());
    sayWatch(say("Connecting\u2026"));
    while (watch.abort === abort) {
        try {
            await followWatch(abort);
        } catch (error) {
            if (watch.abort !== abort) {
                return;
            }
            noteFailure(error);
            sayWatch(say("{0} Trying again.", error.message), true);
        }
        await new Promise(resolve => {
            setTimeout(resolve, 2000);
        });
    }
}

function startWatch() {
    byId("part-legend").append(...PARTS.map(name => make("li", { class: "p-" + name }, term(PART_WORDS[name]))));
    byId("page-legend").append(...Object.keys(PAGE_WORDS).map(name => make("li", { class: name }, term(PAGE_WORDS[name]))));
    byId("window").addEventListener("change", drawRequests);
    document.addEventListener("visibilitychange", watchWhileSeen);
}
