// Making and finding elements. Text becomes text nodes and never HTML: nothing in these files uses innerHTML.

const byId = id => document.getElementById(id);

// Makes an element with properties (class, dataset, event handlers, aria-... attributes) and children: nodes, strings, or
// null.
function make(tag, properties = {}, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(properties)) {
        if (name === "class") {
            element.className = value;
        } else if (name.startsWith("on")) {
            element.addEventListener(name.slice(2), value);
        } else if (name.includes("-") || name === "role") {
            element.setAttribute(name, value);
        } else {
            element[name] = value;
        }
    }
    element.append(...children.filter(child => child !== null && child !== undefined));
    return element;
}

// An icon of page.html.
function icon(name) {
    const space = "http://www.w3.org/2000/svg";
    const svg = document.createElementNS(space, "svg");
    const use = document.createElementNS(space, "use");
    svg.setAttribute("aria-hidden", "true");
    use.setAttribute("href", "#i-" + name);
    svg.append(use);
    return svg;
}

function iconButton(name, label, onclick) {
    return make(
        "button",
        { type: "button", class: "icon-button", title: label, "aria-label": label, onclick },
        icon(name),
    );
}

// Announces a text to screen readers.
function speak(text) {
    byId("spoken").textContent = text;
}

let toastTimer = 0;

// Shows a short message that disappears after a while, with a button if `action` is given.
function toast(text, actionLabel = "", action = null) {
    const button = byId("toast-button");
    byId("toast-text").textContent = text;
    button.textContent = actionLabel;
    button.hidden = !action;
    button.onclick = () => {
        byId("toast").hidden = true;
        action();
    };
    byId("toast").hidden = false;
    clearTimeout(toastTimer);
    toastTimer = setTimeout(
        () => {
            byId("toast").hidden = true;
        },
        action ? 8000 : 4000,
    );
}

// The clipboard API exists only on https and localhost; elsewhere a selection is copied with execCommand.
async function copyText(text, button) {
    try {
        await navigator.clipboard.writeText(text);
    } catch {
        const area = make("textarea", { class: "hidden", value: text, "aria-hidden": "true" });
        document.body.append(area);
        area.select();
        const copied = document.execCommand("copy");
        area.remove();
        button.focus();
        if (!copied) {
            toast(say("The browser did not allow copying."));
            return;
        }
    }
    button.querySelector("use").setAttribute("href", "#i-done");
    speak(say("Copied"));
    setTimeout(() => button.querySelector("use").setAttribute("href", "#i-copy"), 1500);
}

function download(name, text) {
    const type = name.endsWith(".md") ? "text/markdown" : "application/json";
    const url = URL.createObjectURL(new Blob([text], { type }));
    make("a", { href: url, download: name }).click();
    setTimeout(() => URL.revokeObjectURL(url), 10000);
}
