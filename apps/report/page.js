// Shows a document (see report.js): verdict, contents, sections, tables, and charts above the table that has their numbers.
// Texts come from files of others: they are only ever set as text.

const make = (name, properties = {}, ...children) => {
    const made = Object.assign(document.createElement(name), properties);
    made.append(...children);
    return made;
};
const style = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const short = text => (text.length > 40 ? text.slice(0, 39) + "…" : text);

// ---- charts ---------------------------------------------------------------------------------------------------------

const SHAPES = ["circle", "rectRot", "rect", "triangle", "star", "rectRounded", "crossRot", "cross"];
const pieces = new Map(); // numbers of colours by name, in the order of first use
const pieceColour = name => style(`--c${pieces.set(name, pieces.get(name) ?? pieces.size % 12).get(name)}`);
const digits = value => +value.toPrecision(3);

// Draws names into the pieces of bars and labels beside points, where there is room.
const labels = {
    id: "labels",
    afterDatasetsDraw(chart) {
        const { ctx, chartArea: area, data } = chart;
        const taken = [];
        const write = (text, width, x, y, colour) => {
            const isFree = x >= area.left && x + width <= area.right && y >= area.top + 6 && y <= area.bottom - 6 &&
                !taken.some(one => Math.abs(one.y - y) < 13 && x < one.x + one.width && one.x < x + width);
            if (isFree) {
                taken.push({ x, y, width });
                ctx.fillStyle = colour;
                ctx.fillText(text, x, y);
            }
            return isFree;
        };
        ctx.save();
        ctx.font = "12px system-ui, sans-serif";
        ctx.textBaseline = "middle";
        data.datasets.forEach((set, i) => chart.getDatasetMeta(i).data.forEach((item, j) => {
            const text = set.isPiece ? set.label : (set.data[j]?.label ?? "");
            const width = ctx.measureText(text).width;
            const places = [[8, 0], [-width - 8, 0], [-width / 2, -13], [-width / 2, 13]];
            if (set.isPiece && item.width > width + 8) {
                write(text, width, item.x - item.width / 2 - width / 2, item.y, "#161616");
            } else if (!set.isPiece && text) {
                places.some(([x, y]) => write(short(text), width, item.x + x, item.y + y, set.borderColor));
            }
        }));
        ctx.restore();
    },
};

// Horizontal bars of pieces, or rows of marks.
function rowsConfig(chart) {
    const isMarks = chart.type === "marks";
    const names = chart.names ?? [...new Set(chart.bars.flatMap(bar => bar.pieces.map(([name]) => name)))];
    const valueAt = (bar, name, i) => (isMarks ? bar.marks[i] : bar.pieces.find(([piece]) => piece === name)?.[1]) ?? null;
    const datasets = names.map((label, i) => {
        const colour = isMarks ? style(`--s${i}`) : pieceColour(label);
        return { label, data: chart.bars.map(bar => valueAt(bar, label, i)), backgroundColor: colour, borderColor: colour,
            isPiece: !isMarks, maxBarThickness: 24, showLine: false, pointRadius: 6, pointStyle: isMarks ? SHAPES[i] : "rect" };
    });
    const ticks = { maxTicksLimit: 6, callback: value => show(chart.unit, value) };
    return {
        type: isMarks ? "line" : "bar",
        data: { labels: chart.bars.map(bar => (bar.sum ? [short(bar.name), bar.sum] : short(bar.name))), datasets },
        options: { indexAxis: "y", scales: {
            x: { stacked: !isMarks, beginAtZero: true, max: chart.unit === "share" ? 1 : undefined, ticks },
            y: { stacked: !isMarks, grid: { display: false }, ticks: { autoSkip: false }, offset: true } } },
        tip: item => `${item.dataset.label} ${show(chart.unit, item.raw)}`,
    };
}

// Lines or points by two numbers; `roof` are the limits of a machine, a line.
function xyConfig(chart) {
    const xs = [...new Set(chart.series.flatMap(one => one.points.map(point => point.x)))].sort((a, b) => a - b);
    const isLog = chart.log || (xs[0] > 0 && xs[xs.length - 1] >= 4 * xs[0]);
    const datasets = chart.series.map((one, i) => ({
        label: short(one.name), data: one.points, showLine: Boolean(chart.line), borderWidth: 1.75, pointStyle: SHAPES[i % 8],
        borderColor: style(`--s${i % 8}`), backgroundColor: style(`--s${i % 8}`),
        pointRadius: one.points.map(point => (point.label === "taken" ? 8 : 5)),
    }));
    if (chart.roof) {
        const [read, multiply] = chart.roof;
        const ends = [Math.min(...xs, multiply / read) / 2, multiply / read, Math.max(...xs, multiply / read) * 2];
        datasets.push({ label: "limit", data: ends.map(x => ({ x, y: Math.min(multiply, read * x) })), showLine: true, pointRadius: 0,
            borderColor: style("--soft"), borderWidth: 1.5 });
    }
    const chooseTicks = axis => {
        axis.ticks = chart.log ? axis.ticks.filter(tick => /^[125]e/.test(tick.value.toExponential())) : xs.map(value => ({ value }));
    };
    const unit = name => ({ maxTicksLimit: 8, callback: value => (name ? show(name, value) : digits(value)) });
    const xUnit = chart.xUnit ?? (chart.log ? "" : "count");
    return {
        type: "scatter", data: { datasets },
        options: { scales: {
            x: { type: isLog ? "logarithmic" : "linear", title: { display: true, text: chart.axis }, afterBuildTicks: chooseTicks, ticks: unit(xUnit) },
            y: { type: chart.log ? "logarithmic" : "linear", beginAtZero: !chart.from, suggestedMin: chart.from, ticks: unit(chart.yUnit) } } },
        tip: item => `${item.dataset.label}: ${item.raw.label ?? ""} ${digits(item.raw.x)}, ${digits(item.raw.y)}`,
    };
}

const drawn = []; // {canvas, chart, made}

// Draws a chart, or draws it again in other colours.
function draw(one) {
    one.made?.destroy();
    const { type, data, options, tip } = one.chart.type === "xy" ? xyConfig(one.chart) : rowsConfig(one.chart);
    Object.assign(Chart.defaults, { color: style("--soft"), borderColor: style("--line"), animation: false, maintainAspectRatio: false });
    Chart.defaults.font.family = getComputedStyle(document.body).fontFamily;
    options.plugins = { legend: { display: data.datasets.length > 1, position: "bottom", labels: { usePointStyle: true, boxHeight: 8, color: style("--text") } },
        tooltip: { callbacks: { label: tip, title: items => items[0].label } } };
    one.made = new Chart(one.canvas, { type, data, options, plugins: [labels] });
}

function figure(chart) {
    const rows = chart.bars?.length ?? 0;
    if (typeof Chart === "undefined" || !(rows || chart.series?.some(one => one.points.length))) {
        return [];
    }
    const canvas = make("canvas");
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", `${chart.caption}; the numbers are in the table below`);
    const frame = make("div", { className: "frame" }, canvas);
    frame.style.height = rows ? `${(innerWidth < 600 ? 150 : 90) + 30 * rows}px` : "300px";
    drawn.push({ canvas, chart });
    return [make("figure", { className: chart.bars ? "wide" : "" }, make("figcaption", { textContent: chart.caption }), frame)];
}

// ---- tables and text ------------------------------------------------------------------------------------------------

function tableCell(value, isFirst) {
    if (typeof value === "string") {
        return make("td", { className: value.length > 36 ? "t w" : "t", textContent: value });
    }
    const made = make("td", { className: isFirst ? "t" : "", textContent: value.text });
    if (value.ratio !== undefined) {
        const gain = value.better * (value.ratio - 1);
        const arrow = value.ratio > 1.02 ? "▲" : value.ratio < 0.98 ? "▼" : "=";
        made.append(" ", make("small", { className: gain > 0.02 ? "good" : gain < -0.02 ? "bad" : "soft", textContent: `${arrow} ${show("times", value.ratio)}` }));
    }
    return made;
}

function showTable(table) {
    const head = table.columns.map((title, i) => make("th", { scope: "col", className: i && typeof table.rows[0][i] !== "string" ? "" : "t", textContent: title }));
    const scroll = make("div", { className: "scroll", tabIndex: 0 },
        make("table", {}, make("thead", {}, make("tr", {}, ...head)), make("tbody", {}, ...table.rows.map(row => make("tr", {}, ...row.map((value, i) => tableCell(value, i === 0)))))));
    scroll.setAttribute("role", "group");
    scroll.setAttribute("aria-label", table.heading || "table");
    const left = table.leftOut ? [make("p", { textContent: `Left out: ${plural(table.leftOut, "row")} more, for which there is no room here.` })] : [];
    const whole = make("div", {}, ...(table.heading && !table.closed ? [make("h3", { textContent: table.heading })] : []), scroll, ...left);
    return table.closed ? make("details", { open: typeof Chart === "undefined" }, make("summary", { textContent: table.heading }), whole) : whole;
}

const cards = table => make("ul", { className: "cards" }, ...table.rows.filter(row => typeof row[1] !== "string")
    .map(([title, value]) => make("li", {}, make("b", { textContent: value.text }), make("span", { textContent: title }))));

// The charts of neighbouring tables are side by side, and so are the tables.
function showSection(section, i) {
    const made = make("section", { id: `s${i}` }, make("h2", { textContent: section.title }));
    let beside = null;
    for (const block of section.blocks) {
        if (typeof block === "string" || block.about) {
            made.append(make("p", { textContent: block.about ?? block }));
            beside = null;
        }
        if (typeof block !== "string" && !beside) {
            beside = [make("div", { className: "plots" }), make("div", { className: "tables" })];
            made.append(...(block.cards ? [cards(block)] : []), ...beside);
        }
        beside?.[0].append(...(block.charts ?? []).flatMap(figure));
        beside?.[1].append(showTable(block.cards ? { ...block, closed: true, heading: "As a table" } : block));
    }
    return made;
}

const input = JSON.parse(document.getElementById("data").textContent);
const shown = input.document ?? reportDocument(input.files, input.version);
document.title = shown.title;
document.body.append(
    make("h1", { textContent: shown.title }),
    ...(shown.notes ?? []).map(note => make("p", { className: "note", textContent: note })),
    ...(shown.verdict?.length ? [make("ul", { className: "verdict" }, ...shown.verdict.map(text => make("li", { textContent: text })))] : []),
    ...(shown.sections.length > 1 ? [make("nav", { ariaLabel: "Contents" }, ...shown.sections.map((section, i) => make("a", { href: `#s${i}`, textContent: section.title })))] : []),
    ...(typeof Chart === "undefined" ? [make("p", { className: "note", textContent: "The charts are left out: this spry was built without Chart.js (Debian: libjs-chart.js)." })] : []),
    ...shown.sections.map(showSection),
    make("footer", { textContent: shown.footer }),
);
const drawAll = () => drawn.forEach(draw);
drawAll();
for (const query of ["(prefers-color-scheme: dark)", "print"]) {
    matchMedia(query).addEventListener("change", drawAll);
}
