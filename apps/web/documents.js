// Documents of messages. A message has `documents` [{doc, name, size}]; the text of each is stored once, under a hash of it,
// apart from the conversations. In a request every document is a part with `cache: span` (docs/SPANS.md), so that the server
// computes it once and knows it afterwards in any order and in any conversation.

const DOCUMENT_MAX = 1 << 20; // characters of a text
const PDF_MAX = 24 << 20; // bytes of a file
const DOCUMENTS_MAX = 20; // of one message
const ASKED_MAX = 400;

// A file's name as one short line, without folders, control characters and marks that change the direction of text.
function documentName(name) {
    const line = cleanText(name, 2000)
        .replace(/^.*[\\/]/s, "")
        .replace(/[\p{C}\p{Zl}\p{Zp}]+/gu, " ")
        .replace(/\s+/g, " ")
        .trim();
    const characters = Array.from(line);
    return characters.length > 80
        ? characters.slice(0, 60).join("") + "\u2026" + characters.slice(-16).join("")
        : line || say("document");
}

// A hash of two halves and the length.
function documentId(text) {
    let one = 0x811c9dc5;
    let other = 0x2545f491;
    for (let at = 0; at < text.length; at++) {
        const unit = text.charCodeAt(at);
        one = Math.imul(one ^ unit, 0x01000193);
        other = Math.imul((other ^ (other >>> 15)) + unit, 0x5bd1e995);
    }
    return [one >>> 0, other >>> 0, text.length].map(part => part.toString(36)).join("x");
}

// ---- files ----------------------------------------------------------------------------------------------------------

// The text of these bytes, or null where they are not text: UTF-8, UTF-16 with its mark, else Windows-1252.
function decodeText(bytes) {
    const mark = bytes[0] === 0xff && bytes[1] === 0xfe ? "utf-16le" : bytes[0] === 0xfe && bytes[1] === 0xff ? "utf-16be" : "";
    const odd = bytes.reduce((sum, byte) => sum + (byte < 32 && ![9, 10, 12, 13, 27].includes(byte)), 0);
    if (!mark && (bytes.includes(0) || odd > bytes.length / 200)) {
        return null;
    }
    try {
        return new TextDecoder(mark || "utf-8", { fatal: true }).decode(bytes);
    } catch {
        return mark ? null : new TextDecoder("windows-1252").decode(bytes);
    }
}

async function pdfText(file) {
    const form = new FormData();
    form.append("file", file, "document.pdf");
    return cleanText(parseAnswer(await (await callServer("/v1/documents/text", form)).text()).text);
}

// The text of a file; throws an error with a sentence where it has none.
async function fileText(file) {
    const name = documentName(file.name);
    const refuse = (sentence, ...values) => {
        throw new Error(say(sentence, name, ...values));
    };
    const bytes = async part => new Uint8Array(await part.arrayBuffer().catch(() => refuse("{0} cannot be read.")));
    const pdf = String.fromCharCode(...(await bytes(file.slice(0, 5)))) === "%PDF-";
    if (file.size > (pdf ? PDF_MAX : 4 * DOCUMENT_MAX)) {
        refuse("{0} is too large: at most {1}.", inBytes(pdf ? PDF_MAX : DOCUMENT_MAX));
    }
    const text = pdf
        ? await pdfText(file).catch(error => refuse("{0}: {1}", error.message))
        : decodeText(await bytes(file));
    if (text === null) {
        refuse("{0} is not a text file.");
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

// ---- storage --------------------------------------------------------------------------------------------------------

const storedText = document => lasting.read("doc." + document.doc);

// Stores a text and returns the document.
function storeDocument(name, text) {
    const doc = documentId(text);
    if (lasting.read("doc." + doc) === null) {
        lasting.write("doc." + doc, text);
    }
    return { doc, name, size: text.length };
}

const cleanDocuments = value =>
    listOf(value)
        .filter(one => isId(one?.doc))
        .slice(0, DOCUMENTS_MAX)
        .map(one => ({ doc: one.doc, name: documentName(one.name), size: finite(one.size) }));

// Removes texts that no conversation has any more.
function dropOldDocuments() {
    const chats = listConversations().map(entry => lasting.read("chat." + entry.id) ?? "");
    lasting
        .keys()
        .filter(key => key.startsWith("doc.") && !chats.some(chat => chat.includes(`"${key.slice(4)}"`)))
        .forEach(lasting.remove);
}

// The texts that these conversations have, by id, for a file.
const documentTexts = conversations =>
    Object.fromEntries(
        conversations
            .flatMap(own => own.messages.flatMap(message => message.documents ?? []))
            .map(document => [document.doc, storedText(document)])
            .filter(([, text]) => text !== null),
    );

function takeDocumentTexts(value) {
    for (const text of Object.values(Object(value))) {
        if (typeof text === "string" && text.length <= DOCUMENT_MAX) {
            storeDocument("", text);
        }
    }
}

// ---- requests -------------------------------------------------------------------------------------------------------

// What the model reads of a message's documents; one whose text is gone is left out.
const documentParts = message =>
    (message.documents ?? [])
        .map(document => [document.name, storedText(document)])
        .filter(([, text]) => text !== null)
        .map(([name, text]) => `Document ${name}:\n\n${text}\n\n`);

// A message as one text, for files and stored chats.
const plainContent = message => documentParts(message).join("") + message.content;

// A message of a request. Fragments cannot slide out of a full context, plain text can.
function requestMessage(message, slides) {
    const texts = documentParts(message);
    const { role, content } = message;
    if (texts.length === 0) {
        return { role, content };
    }
    if (slides) {
        return { role, content: plainContent(message) };
    }
    return {
        role,
        content: [
            ...texts.map(text => ({ type: "text", text, cache: "span" })),
            ...(content ? [{ type: "text", text: content }] : []),
        ],
    };
}

// ---- what the server knew of them -------------------------------------------------------------------------------------

// Notes how many documents an answer was given with, and how many of them the server knew: those that were asked about
// before with this model, if the timings show that as much was found in the cache.
function noteDocuments(own, answer) {
    const path = pathOf(own);
    const sent = path.slice(path.findLastIndex(message => message.role === "summary") + 1, path.indexOf(answer));
    const all = sent.flatMap(message => message.documents ?? []);
    const timings = answer.timings;
    if (all.length === 0 || !timings) {
        return;
    }
    const asked = listOf(readJson("asked"));
    const keyOf = document => answer.model + " " + document.doc;
    const known = all.filter(document => asked.includes(keyOf(document)));
    const size = documents => documents.reduce((sum, document) => sum + document.size, 0);
    const expected = (finite(timings.span_tokens) * size(known)) / Math.max(1, size(all));
    const found = finite(timings.cached_tokens);
    answer.read = { documents: all.length, known: found > 0 && found >= expected / 2 ? known.length : 0 };
    lasting.write("asked", JSON.stringify([...new Set([...all.map(keyOf), ...asked])].slice(0, ASKED_MAX)));
}

// "3 documents known: first word in 0.2 s"; null for an answer without documents.
function documentsNote({ read, timings }) {
    const documents = finite(read?.documents);
    if (documents === 0 || !timings) {
        return null;
    }
    const first = inTime(timings.ttft_ms);
    const known = finite(read.known);
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
