// Making and finding elements; toasts, bubbles that explain words, text areas. Text becomes text nodes and never HTML: nothing
// in these files uses innerHTML.

import { say } from "./language.js";

/**
 * The element of page.html with this id. PageElements is made from page.html when the types are checked.
 * @template {keyof PageElements} Id
 * @param {Id} id
 * @returns {PageElements[Id]}
 */
export const byId = id => /** @type {any} */ (document.getElementById(id));

/**
 * A field whose id is made from the name of a setting.
 * @param {string} id
 * @returns {HTMLInputElement}
 */
export const fieldById = id => /** @type {any} */ (document.getElementById(id));

/**
 * The element inside another one, which has it.
 * @param {ParentNode} parent
 * @param {string} selector
 * @returns {HTMLElement}
 */
export const inside = (parent, selector) => /** @type {any} */ (parent.querySelector(selector));

/**
 * The children of an element of the page, which are all HTML.
 * @param {Element} parent
 * @returns {HTMLElement[]}
 */
export const childrenIn = parent => /** @type {any} */ ([...parent.children]);

/**
 * Makes an element with properties (class, dataset, event handlers, aria-... attributes) and children.
 * @template {keyof HTMLElementTagNameMap} Tag
 * @param {Tag} tag
 * @param {Record<string, any>} properties
 * @param {...(Node | string | null | undefined)} children
 * @returns {HTMLElementTagNameMap[Tag]}
 */
export function make(tag, properties = {}, ...children) {
    const element = /** @type {any} */ (document.createElement(tag));
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
/** @param {string} name */
export function icon(name) {
    const space = "http://www.w3.org/2000/svg";
    const svg = document.createElementNS(space, "svg");
    const use = document.createElementNS(space, "use");
    svg.setAttribute("aria-hidden", "true");
    use.setAttribute("href", "#i-" + name);
    svg.append(use);
    return svg;
}

/** @param {string} name @param {string} label @param {() => void} onclick */
export function iconButton(name, label, onclick) {
    return make(
        "button",
        { type: "button", class: "icon-button", title: label, "aria-label": label, onclick },
        icon(name),
    );
}

// The view that is shown is part of the address.
/** @param {string} hash */
export const showHash = hash => {
    location.hash = hash;
};

// Announces a text to screen readers.
/** @param {string} text */
export function speak(text) {
    byId("spoken").textContent = text;
}

let toastTimer = 0;

// Shows a short message that disappears after a while, with a button if `action` is given. It has a line of its own below the
// content, or at the end of the dialog that is open, so that it covers nothing.
/** @param {string} text @param {string} [actionLabel] @param {(() => void) | null} [action] */
export function toast(text, actionLabel = "", action = null) {
    const button = byId("toast-button");
    byId("toast-text").textContent = text;
    button.textContent = actionLabel;
    button.hidden = !action;
    button.onclick = () => {
        byId("toast").hidden = true;
        action?.();
    };
    (document.querySelector("dialog[open] > *") ?? document.body).append(byId("toast"));
    byId("toast").hidden = false;
    byId("toast").scrollIntoView({ block: "nearest" });
    clearTimeout(toastTimer);
    toastTimer = setTimeout(
        () => {
            byId("toast").hidden = true;
        },
        action ? 8000 : 4000,
    );
}

// The clipboard API exists only on https and localhost; elsewhere a selection is copied with execCommand.
/** @param {string} text @param {HTMLElement} button */
export async function copyText(text, button) {
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
    inside(button, "use").setAttribute("href", "#i-done");
    speak(say("Copied"));
    setTimeout(() => inside(button, "use").setAttribute("href", "#i-copy"), 1500);
}

/** @param {string} name @param {string} text */
export function download(name, text) {
    const type = name.endsWith(".md") ? "text/markdown" : "application/json";
    const url = URL.createObjectURL(new Blob([text], { type }));
    make("a", { href: url, download: name }).click();
    setTimeout(() => URL.revokeObjectURL(url), 10000);
}

/** @param {Element} element @param {string} text */
export function setText(element, text) {
    if (element.textContent !== text) {
        element.textContent = text;
    }
}

// Enter sends; with shift, during input method composition, and on touch keyboards it inserts a new line.
/** @param {KeyboardEvent} event */
export function entersMessage(event) {
    return event.key === "Enter" && !event.shiftKey && !event.isComposing && !matchMedia("(pointer: coarse)").matches;
}

// Sets the height of a text area to that of its text; page.css limits it.
/** @param {HTMLTextAreaElement} area */
export function fitHeight(area) {
    area.style.height = "auto";
    area.style.height = area.scrollHeight + area.offsetHeight - area.clientHeight + "px";
}

// ---- bubbles that explain words ------------------------------------------------------------------------------------

/** @param {HTMLElement} button */
function showTip(button) {
    const tip = byId("tip");
    hideTip();
    tip.textContent = say(button.dataset.explanation ?? "");
    tip.hidden = false;
    button.setAttribute("aria-describedby", "tip");
    const place = button.getBoundingClientRect();
    const { width, height } = tip.getBoundingClientRect();
    const below = place.bottom + 6 + height < innerHeight;
    tip.style.left = Math.max(8, Math.min(place.left, innerWidth - width - 8)) + "px";
    tip.style.top = Math.max(8, below ? place.bottom + 6 : place.top - height - 6) + "px";
}

function hideTip() {
    byId("tip").hidden = true;
    document.querySelector("[aria-describedby=tip]")?.removeAttribute("aria-describedby");
}

export function startTerms() {
    /** @param {string} event @param {(button: HTMLElement) => void} work */
    const on = (event, work) =>
        document.addEventListener(
            event,
            ({ target }) => {
                const button = target instanceof Element && target.closest(".term");
                if (button instanceof HTMLElement) {
                    work(button);
                }
            },
            true,
        );
    on("mouseover", showTip);
    on("mouseout", hideTip);
    on("focus", showTip);
    on("blur", hideTip);
    on("click", showTip);
    document.addEventListener("scroll", hideTip, true);
    document.addEventListener(
        "keydown",
        event => {
            if (event.key === "Escape" && !byId("tip").hidden) {
                event.stopPropagation();
                hideTip();
            }
        },
        true,
    );
}
