// Attaching documents to the message that is being written: picked, dropped or pasted. They are read at once and stored when
// the message is sent.

const LONG_PASTE = 8000; // characters; a longer text becomes a document

const attached = []; // {name, text}, or text null while it is read, in their order

// ---- chips ----------------------------------------------------------------------------------------------------------

function documentWords(name, size) {
    return [
        icon("file"),
        make("bdi", { class: "document-name" }, name),
        make("span", { class: "document-size" }, size),
    ];
}

// The documents of a message that was sent; each opens its text.
function documentList(documents) {
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
                    { type: "button", class: "document", onclick: () => openDocument(document.name, storedText(document)) },
                    ...documentWords(document.name, inBytes(document.size)),
                ),
            ),
        ),
    );
}

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
                ...documentWords(one.name, one.text === null ? say("reading\u2026") : inBytes(one.text.length)),
                iconButton("close", say("Remove {0}", one.name), () => removeAttached(one)),
            ),
        ),
    );
}

function removeAttached(one) {
    attached.splice(attached.indexOf(one), 1);
    showAttached();
    byId("input").focus();
}

// ---- adding ---------------------------------------------------------------------------------------------------------

function sayRefused(sentences) {
    if (sentences.length) {
        const more = sentences.length - 3;
        toast(sentences.slice(0, 3).join(" ") + (more > 0 ? " " + say("{0} more were refused.", inCount(more)) : ""));
    }
}

// Reads files one after the other; what is not text is refused with a sentence.
async function attachFiles(files) {
    const refused = [];
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
            const text = await fileText(file);
            if (attached.some(other => other.text === text && other.name === one.name)) {
                throw new Error(say("{0} is attached already.", one.name));
            }
            one.text = text;
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

function takePaste(event) {
    const text = event.clipboardData.getData("text/plain");
    const files = text === "" ? [...event.clipboardData.files] : [];
    if (files.length) {
        event.preventDefault();
        attachFiles(files);
    } else if (text.length > LONG_PASTE && attached.length < DOCUMENTS_MAX) {
        event.preventDefault();
        attachPasted(text);
    }
}

// ---- sending --------------------------------------------------------------------------------------------------------

const hasAttached = () => attached.length > 0;

// Whether every document is read; says so if not.
function attachedReady() {
    const open = attached.find(one => one.text === null);
    if (open) {
        toast(say("{0} is still being read.", open.name));
    }
    return !open;
}

// Stores the documents and empties the list; undefined: there are none.
function takeAttached() {
    const documents = attached.splice(0).map(({ name, text }) => storeDocument(name, text));
    showAttached();
    return documents.length ? documents : undefined;
}

// ---- starting -------------------------------------------------------------------------------------------------------

// Files that are dropped anywhere become documents; the browser would leave the page and open them.
function startDropping() {
    const hasFiles = event => [...(event.dataTransfer?.types ?? [])].includes("Files");
    let depth = 0;
    byId("chat-view").dataset.drop = say("Drop files to attach them");
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
                attachFiles([...event.dataTransfer.files]);
                byId("input").focus();
            }
        }
    });
}

function startAttachments() {
    const picker = byId("attach-file");
    byId("attach").addEventListener("click", () => picker.click());
    picker.addEventListener("change", () => {
        attachFiles([...picker.files]);
        picker.value = "";
    });
    byId("input").addEventListener("paste", takePaste);
    byId("close-document").addEventListener("click", () => byId("document").close());
    startDropping();
    dropOldDocuments();
}
