// Documents of messages. A message has `documents` [{doc, name, size}]; the text of each is stored once, under a hash of it,
// apart from the conversations. In a request every document is a part with `cache: span` (docs/SPANS.md), so that the server
// computes it once and knows it afterwards in any order and in any conversation.
// Pictures are documents with a width (pictures.js), for models that see.
// Documents for the message that is being written are picked, dropped or pasted. They are read at once and stored when the message
// is sent.

import { byId, fitHeight, icon, iconButton, make, speak, toast } from "./dom.js";
import { finite, inBytes, inCount, inTime, say } from "./language.js";
import {
    dropOldPictures, isPicture, modelSees, openPicture, pictureUrl, readPicture, storePicture, takePictures, thumbnail,
} from "./pictures.js";
import { callServer, parseAnswer } from "./server.js";
import {
    cleanText, documentName, DOCUMENTS_MAX, hashText, lasting, listConversations, listOf, pathOf, readJson,
} from "./store.js";

/** @import { Picture } from "./pictures.js" */
/** @import { Conversation, Message, Said, StoredDocument } from "./store.js" */

const DOCUMENT_MAX = 1 << 20; // characters of a text
const PDF_MAX = 24 << 20; // bytes of a file
const ASKED_MAX = 400;

// ---- files ---------------------------------------------------------------------------------------------------------

// The text of these bytes, or null where they are not text: UTF-8, UTF-16 with its mark, else Windows-1252.
/** @param {Uint8Array} bytes */
function decodeText(bytes) {
    const mark = bytes[0] === 0xff && bytes[1] === 0xfe ? "utf-16le" : bytes[0] === 0xfe && bytes[1] === 0xff ? "utf-16be" : "";
    const odd = bytes.reduce((sum, byte) => sum + (byte < 32 && ![9, 10, 12, 13, 27].includes(byte) ? 1 : 0), 0);
    if (!mark && (bytes.includes(0) || odd > bytes.length / 200)) {
        return null;
    }
    try {
        return new TextDecoder(mark || "utf-8", { fatal: true }).decode(bytes);
    } catch {
        return mark ? null : new TextDecoder("windows-1252").decode(bytes);
    }
}

// What the server reads in a PDF: "text" or "pages".
/** @param {File} file @param {string} what */
async function readPdf(file, what) {
    const form = new FormData();
    form.append("file", file, "document.pdf");
    return parseAnswer(await (await callServer("/v1/documents/" + what, form)).text())[what];
}

/** @param {Blob} file */
const isPdf = async file => (await file.slice(0, 5).text().catch(() => "")) === "%PDF-";

// The text of a file; throws an error with a sentence where it has none.
/** @param {File} file */
async function fileText(file) {
    const name = documentName(file.name);
    /** @type {(sentence: string, ...values: string[]) => never} */
    const refuse = (sentence, ...values) => {
        throw new Error(say(sentence, name, ...values));
    };
    /** @param {Blob} part */
    const bytes = async part => new Uint8Array(await part.arrayBuffer().catch(() => refuse("{0} cannot be read.")));
    const pdf = await isPdf(file);
    if (file.size > (pdf ? PDF_MAX : 4 * DOCUMENT_MAX)) {
        refuse("{0} is too large: at most {1}.", inBytes(pdf ? PDF_MAX : DOCUMENT_MAX));
    }
    const text = pdf
        ? cleanText(await readPdf(file, "text").catch(error => refuse("{0}: {1}", error.message)))
        : decodeText(await bytes(file));
    if (text === null) {
        return refuse("{0} is not a text file.");
    }
    const clean = text.replace(/\r\n?/g, "\n").replace(/\0/g, "").trim();
    if (clean === "") {
        refuse("{0} is empty.");
    }
    if (clean.length > DOCUMENT_MAX) {
        refuse("{0} is too large: at most {1}.", inBytes(DOCUMENT_MAX));
    }
    return clean;
}

// ---- storage -------------------------------------------------------------------------------------------------------

/** @param {StoredDocument} document */
const storedText = document => lasting.read("doc." + document.doc);

// Stores a text and returns the document.
/** @param {string} name @param {string} text */
function storeDocument(name, text) {
    const doc = hashText(text);
    if (lasting.read("doc." + doc) === null) {
        lasting.write("doc." + doc, text);
    }
    return { doc, name, size: text.length };
}

// Removes texts that no conversation has any more.
function dropOldDocuments() {
    const chats = listConversations().map(entry => lasting.read("chat." + entry.id) ?? "");
    /** @param {string} id */
    const isUsed = id => chats.some(chat => chat.includes(`"${id}"`));
    lasting
        .keys()
        .filter(key => key.startsWith("doc.") && !isUsed(key.slice(4)))
        .forEach(lasting.remove);
    dropOldPictures(isUsed);
}

// The texts that these conversations have, by id, for a file.
/** @param {Conversation[]} conversations */
export const documentTexts = conversations =>
    Object.fromEntries(
        conversations
            .flatMap(own => own.messages.flatMap(message => message.documents ?? []))
            .map(document => [document.doc, isPicture(document) ? null : storedText(document)])
            .filter(([, text]) => text !== null),
    );

// Likewise the pictures, once they are loaded.
/** @param {Conversation[]} conversations */
export const documentPictures = conversations =>
    Object.fromEntries(
        conversations
            .flatMap(own => own.messages.flatMap(message => (message.documents ?? []).filter(isPicture)))
            .map(document => [document.doc, pictureUrl(document)])
            .filter(([, url]) => url !== null),
    );

/** @param {any} value @param {any} pictures */
export function takeDocumentTexts(value, pictures) {
    takePictures(pictures);
    for (const text of Object.values(Object(value))) {
        if (typeof text === "string" && text.length <= DOCUMENT_MAX) {
            storeDocument("", text);
        }
    }
}

// ---- requests ------------------------------------------------------------------------------------------------------

// What the model reads of a message's documents; one whose text is gone is left out.
/** @param {Said} message */
const documentParts = message =>
    (message.documents ?? [])
        .filter(document => !isPicture(document))
        .map(document => [document.name, storedText(document)])
        .filter(([, text]) => text !== null)
        .map(([name, text]) => `Document ${name}:\n\n${text}\n\n`);

// A message as one text, for files and stored chats.
/** @param {Said} message */
export const plainContent = message =>
    [
        ...(message.documents ?? []).filter(isPicture).map(picture => `[image: ${picture.name}]\n`),
        ...documentParts(message),
        message.content,
    ].join("");

// A message of a request, whose pictures are loaded. Fragments cannot slide out of a full context, plain text can.
/** @param {Said} message @param {boolean} slides @returns {{ role: string, [member: string]: any }} */
export function requestMessage(message, slides) {
    const texts = documentParts(message);
    const { role, content } = message;
    const pictures = (message.documents ?? []).filter(isPicture).map(pictureUrl).filter(url => url !== null);
    if (texts.length + pictures.length === 0) {
        return { role, content };
    }
    if (slides && pictures.length === 0) {
        return { role, content: plainContent(message) };
    }
    return {
        role,
        content: [
            ...texts.map(text => ({ type: "text", text, ...(slides ? {} : { cache: "span" }) })),
            ...pictures.map(url => ({ type: "image_url", image_url: { url } })),
            ...(content ? [{ type: "text", text: content }] : []),
        ],
    };
}

// ---- what the server knew of them ----------------------------------------------------------------------------------

// Notes how many documents an answer was given with, and how many of them the server knew: those that were asked about
// before with this model, if the timings show that as much was found in the cache.
/** @param {Conversation} own @param {Message} answer */
export function noteDocuments(own, answer) {
    const path = pathOf(own);
    const sent = path.slice(path.findLastIndex(message => message.role === "summary") + 1, path.indexOf(answer));
    const all = sent.flatMap(message => (message.documents ?? []).filter(document => !isPicture(document)));
    const timings = answer.timings;
    if (all.length === 0 || !timings) {
        return;
    }
    const asked = listOf(readJson("asked"));
    /** @param {StoredDocument} document */
    const keyOf = document => answer.model + " " + document.doc;
    const known = all.filter(document => asked.includes(keyOf(document)));
    /** @param {StoredDocument[]} documents */
    const size = documents => documents.reduce((sum, document) => sum + document.size, 0);
    const expected = (finite(timings.span_tokens) * size(known)) / Math.max(1, size(all));
    const found = finite(timings.cached_tokens);
    answer.read = { documents: all.length, known: found > 0 && found >= expected / 2 ? known.length : 0 };
    lasting.write("asked", JSON.stringify([...new Set([...all.map(keyOf), ...asked])].slice(0, ASKED_MAX)));
}

// "3 documents known: first word in 0.2 s"; null for an answer without documents.
/** @param {Message} options */
export function documentsNote({ read, timings }) {
    const documents = finite(read?.documents);
    if (documents === 0 || !timings) {
        return null;
    }
    const first = inTime(timings.ttft_ms);
    const known = finite(read?.known);
    const words =
        known === 0
            ? say(documents === 1 ? "{0} document read: first word in {1}" : "{0} documents read: first word in {1}", documents, first)
            : known < documents
              ? say("{0} of {1} documents known: first word in {2}", known, documents, first)
              : say(documents === 1 ? "{0} document known: first word in {1}" : "{0} documents known: first word in {1}", documents, first);
    const note = make("p", { class: "documents-note" }, icon("file"), words);
    note.classList.toggle("known", known > 0);
    return note;
}

const LONG_PASTE = 8000; // characters; a longer text becomes a document

/** @typedef {{ name: string, text: string | null, picture?: Picture | null }} Attached text is null while it is read */

/** @type {Attached[]} */
const attached = []; // in their order

// ---- chips ---------------------------------------------------------------------------------------------------------

/** @param {string} name @param {string} size */
function documentWords(name, size) {
    return [
        icon("file"),
        make("bdi", { class: "document-name" }, name),
        make("span", { class: "document-size" }, size),
    ];
}

// The documents of a message that was sent; each opens its text.
/** @param {StoredDocument[] | undefined} documents */
export function documentList(documents) {
    if (!documents?.length) {
        return null;
    }
    return make(
        "ul",
        { class: "documents", "aria-label": say("Documents") },
        ...documents.map(document =>
            make(
                "li",
                {},
                make(
                    "button",
                    {
                        type: "button",
                        class: "document",
                        onclick: () =>
                            isPicture(document) ? openPicture(document) : openDocument(document.name, storedText(document)),
                    },
                    ...(isPicture(document) ? [thumbnail(document)] : documentWords(document.name, inBytes(document.size))),
                ),
            ),
        ),
    );
}

/** @param {string} name @param {string | null} text */
function openDocument(name, text) {
    byId("document-title").textContent = name;
    byId("document-text").textContent = text ?? say("The text is no longer stored in this browser.");
    byId("document").showModal();
    byId("document-text").scrollTop = 0;
}

function showAttached() {
    byId("attachments").replaceChildren(
        ...attached.map(one =>
            make(
                "li",
                { class: "document", "aria-busy": String(one.text === null) },
                ...(one.picture ? [make("img", { class: "thumbnail", src: one.picture.url, alt: "" })] : []),
                ...documentWords(
                    one.name,
                    one.text === null
                        ? say("reading\u2026")
                        : one.picture
                          ? `${one.picture.width} \u00d7 ${one.picture.height}`
                          : inBytes(one.text.length),
                ).slice(one.picture ? 1 : 0),
                iconButton("close", say("Remove {0}", one.name), () => removeAttached(one)),
            ),
        ),
    );
}

/** @param {Attached} one */
function removeAttached(one) {
    attached.splice(attached.indexOf(one), 1);
    showAttached();
    byId("input").focus();
}

// ---- adding --------------------------------------------------------------------------------------------------------

/** @param {string[]} sentences */
function sayRefused(sentences) {
    if (sentences.length) {
        const more = sentences.length - 3;
        toast(sentences.slice(0, 3).join(" ") + (more > 0 ? " " + say("{0} more were refused.", inCount(more)) : ""));
    }
}

// A picture for the model that is chosen; null: the file is none.
/** @param {File} file */
async function filePicture(file) {
    const picture = await readPicture(file);
    if (picture && modelSees() === "no") {
        throw new Error(say("{0} is a picture, and {1} cannot see pictures.", documentName(file.name), byId("model").value));
    }
    return picture;
}

// The pages of a PDF, for models that see: in place of its text, if it was attached.
/** @param {File} file @param {Attached} one */
async function attachPages(file, one) {
    const pages = listOf(await readPdf(file, "pages"));
    const { length } = attached;
    const at = attached.includes(one) ? attached.indexOf(one) : length;
    const room = DOCUMENTS_MAX - length + (at < length ? 1 : 0);
    const pictures = await Promise.all(
        pages.slice(0, room).map(async (url, page) => {
            const image = new Image();
            image.src = cleanText(url, PDF_MAX);
            await image.decode();
            const name = documentName(one.name) + " " + (page + 1);
            return { name, text: "", picture: { url: image.src, width: image.naturalWidth, height: image.naturalHeight } };
        }),
    );
    attached.splice(at, 1, ...pictures);
    showAttached();
    if (pages.length > room) {
        toast(say("A message has at most {0} documents: {1} was left out.", DOCUMENTS_MAX, `${one.name} ${room + 1}\u2026`));
    }
}

// A PDF without text is attached as its pages; one with text can be. Returns its text, "" where the pages took its place.
/** @param {File} file @param {Attached} one */
async function pdfOrPages(file, one) {
    if (modelSees() !== "yes" || !(await isPdf(file))) {
        return fileText(file);
    }
    const text = await fileText(file).catch(() => "");
    if (text === "") {
        await attachPages(file, one).catch(error => {
            throw new Error(say("{0}: {1}", one.name, error.message));
        });
    } else {
        toast(say("{0} was attached as text.", one.name), say("Attach its pages as pictures"), () =>
            attachPages(file, one).catch(error => toast(say("{0}: {1}", one.name, error.message))),
        );
    }
    return text;
}

// Reads files one after the other; what is neither text nor a picture is refused with a sentence.
/** @param {File[]} files */
async function attachFiles(files) {
    /** @type {string[]} */
    const refused = [];
    /** @type {[File, Attached][]} */
    const taken = [];
    for (const file of files) {
        if (attached.length < DOCUMENTS_MAX) {
            const one = { name: documentName(file.name), text: null };
            attached.push(one);
            taken.push([file, one]);
        } else {
            refused.push(say("A message has at most {0} documents: {1} was left out.", DOCUMENTS_MAX, documentName(file.name)));
        }
    }
    showAttached();
    for (const [file, one] of taken) {
        try {
            const picture = await filePicture(file);
            const text = picture ? "" : await pdfOrPages(file, one);
            if (
                attached.some(
                    other => other.text === text && other.name === one.name && other.picture?.url === picture?.url,
                )
            ) {
                throw new Error(say("{0} is attached already.", one.name));
            }
            Object.assign(one, { text, picture });
        } catch (error) {
            attached.splice(attached.indexOf(one), attached.includes(one) ? 1 : 0);
            refused.push(error.message);
        }
        showAttached();
    }
    sayRefused(refused);
    speak(attached.length === 1 ? say("1 document attached") : say("{0} documents attached", attached.length));
}

// A long text becomes a document; the user can have it in the message instead.
/** @param {string} text */
function attachPasted(text) {
    const one = { name: say("Pasted text"), text: text.slice(0, DOCUMENT_MAX) };
    attached.push(one);
    showAttached();
    toast(say("The long text was attached as a document."), say("Put it into the message"), () => {
        if (attached.includes(one)) {
            removeAttached(one);
            byId("input").setRangeText(text, byId("input").selectionStart, byId("input").selectionEnd, "end");
            fitHeight(byId("input"));
        }
    });
}

/** @param {ClipboardEvent} event */
function takePaste(event) {
    const text = event.clipboardData?.getData("text/plain") ?? "";
    const files = text === "" ? [...(event.clipboardData?.files ?? [])] : [];
    if (files.length) {
        event.preventDefault();
        attachFiles(files);
    } else if (text.length > LONG_PASTE && attached.length < DOCUMENTS_MAX) {
        event.preventDefault();
        attachPasted(text);
    }
}

// ---- sending -------------------------------------------------------------------------------------------------------

export const hasAttached = () => attached.length > 0;

// Whether every document is read; says so if not.
export function attachedReady() {
    const open = attached.find(one => one.text === null);
    if (open) {
        toast(say("{0} is still being read.", open.name));
    }
    return !open;
}

// Stores the documents and empties the list; undefined: there are none.
export function takeAttached() {
    const documents = attached
        .splice(0)
        .map(({ name, text, picture }) => (picture ? storePicture(name, picture) : storeDocument(name, text ?? "")));
    showAttached();
    return documents.length ? documents : undefined;
}

// ---- starting ------------------------------------------------------------------------------------------------------

// Files that are dropped anywhere become documents; the browser would leave the page and open them.
function startDropping() {
    /** @param {DragEvent} event */
    const hasFiles = event => [...(event.dataTransfer?.types ?? [])].includes("Files");
    let depth = 0;
    byId("chat-view").dataset.drop = say("Drop files to attach them");
    /** @param {number} shown */
    const show = shown => {
        depth = shown;
        document.body.classList.toggle("dropping", depth > 0 && !byId("chat-view").hidden);
    };
    document.addEventListener("dragenter", event => hasFiles(event) && show(depth + 1));
    document.addEventListener("dragleave", event => hasFiles(event) && show(Math.max(0, depth - 1)));
    document.addEventListener("dragover", event => hasFiles(event) && event.preventDefault());
    document.addEventListener("drop", event => {
        if (hasFiles(event)) {
            event.preventDefault();
            show(0);
            if (!byId("chat-view").hidden) {
                attachFiles([...(event.dataTransfer?.files ?? [])]);
                byId("input").focus();
            }
        }
    });
}

export function startAttachments() {
    const picker = byId("attach-file");
    byId("attach").addEventListener("click", () => picker.click());
    picker.addEventListener("change", () => {
        attachFiles([...(picker.files ?? [])]);
        picker.value = "";
    });
    const camera = byId("camera-file");
    byId("camera").addEventListener("click", () => camera.click());
    camera.addEventListener("change", () => {
        attachFiles([...(camera.files ?? [])]);
        camera.value = "";
    });
    byId("input").addEventListener("paste", takePaste);
    byId("close-document").addEventListener("click", () => byId("document").close());
    startDropping();
    dropOldDocuments();
}
