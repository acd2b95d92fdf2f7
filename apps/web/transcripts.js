// Conversations as files. JSON of one conversation is what `spry chats export` writes and /load reads; Markdown has the same
// headings as there. A file of all conversations has their branches, too. Everything that is read is validated.

const HEADINGS = { System: "system", User: "user", Assistant: "assistant" };
const HEADING = /^## (System|User|Assistant)$/;

// ---- writing --------------------------------------------------------------------------------------------------------

const shownTurns = own => pathOf(own).filter(message => message.role !== "summary");

function markdownTranscript(own) {
    const sections = [
        ...(systemMessage(own) ? [["System", systemMessage(own)]] : []),
        ...shownTurns(own).map(message => [message.role === "user" ? "User" : "Assistant", plainContent(message)]),
    ];
    const body = sections.map(([heading, text]) => {
        const lines = text.split("\n").map(line => (HEADING.test(line.replace(/^\\+/, "")) ? "\\" + line : line));
        return `\n## ${heading}\n\n${lines.join("\n")}\n`;
    });
    return `# ${own.title.replace(/\s+/g, " ")}\n${body.join("")}`;
}

function jsonTranscript(own) {
    const model = shownTurns(own).findLast(message => message.model)?.model ?? "";
    return JSON.stringify(
        {
            title: own.title,
            model,
            system: systemMessage(own) || null,
            messages: shownTurns(own).map(message => ({ role: message.role, content: plainContent(message) })),
        },
        null,
        2,
    );
}

function exportConversations() {
    const conversations = listConversations()
        .map(entry => loadConversation(entry.id))
        .filter(Boolean);
    const documents = documentTexts(conversations);
    return JSON.stringify({ format: "spry-conversations", version: 2, conversations, documents }, null, 1);
}

// A name for the file of a conversation.
const fileName = (own, ending) =>
    (own.title.replace(/[^\p{L}\p{N}]+/gu, "-").replace(/^-|-$/g, "").slice(0, 60) || "conversation") + ending;

// ---- reading --------------------------------------------------------------------------------------------------------

// {title, system, messages} of a transcript in Markdown; without sections there are no messages.
function readMarkdown(text) {
    const lines = text.replace(/\r\n?/g, "\n").split("\n");
    const sections = [];
    for (const line of lines) {
        const heading = HEADING.exec(line);
        if (heading) {
            sections.push({ role: HEADINGS[heading[1]], lines: [] });
        } else {
            sections.at(-1)?.lines.push(line.replace(/^\\(?=\\*## (System|User|Assistant)$)/, ""));
        }
    }
    const turns = sections.map(({ role, lines: own }) => ({ role, content: own.join("\n").trim() }));
    return {
        title: /^# (.*)$/.exec(lines[0])?.[1] ?? "",
        system: turns.find(turn => turn.role === "system")?.content ?? "",
        messages: turns.filter(turn => turn.role !== "system"),
    };
}

// A conversation of {title, system, messages}, or null.
function fromTranscript(value) {
    const read = cleanConversation({ title: value?.title, messages: value?.messages });
    if (!read?.messages.length) {
        return null;
    }
    read.title ||= firstLine(read.messages[0].content, 60);
    if (typeof value.system === "string" && value.system) {
        read.settings = { ...readSettings(), system: cleanText(value.system) };
    }
    return read;
}

// The conversations in a file; throws an error with a message when there are none.
function readConversations(text, name) {
    let file = null;
    try {
        file = JSON.parse(text);
    } catch {
        if (/\.json$/i.test(name)) {
            throw new Error(say("The file is not JSON."));
        }
    }
    const read =
        file?.format === "spry-conversations" && Array.isArray(file.conversations)
            ? file.conversations.map(cleanConversation).filter(Boolean)
            : [fromTranscript(file ?? readMarkdown(text))].filter(Boolean);
    takeDocumentTexts(file?.documents);
    if (read.length === 0) {
        throw new Error(say("The file has no conversations: no turns in JSON, and no headings \u201c## User\u201d in Markdown."));
    }
    return read;
}

// Imports the conversations of a file and returns how many; one that exists is replaced only by a newer one.
function importConversations(text, name) {
    const known = new Map(listConversations().map(entry => [entry.id, entry.updated]));
    const added = readConversations(text, name).filter(one => !(known.get(one.id) >= one.updated));
    added.forEach(one => saveConversation({ ...one, stored: undefined }));
    return added.length;
}
