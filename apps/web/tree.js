// A conversation is a tree of messages: an answer has versions beside it, an edited question begins a branch. Each message
// has an `id` and the id of its `parent` ("" at the beginning). `chosen` maps a message to the child that is shown: an id, or
// NO_CHILD where the user goes back to that message; without an entry it is the newest child.

const NO_CHILD = "-";
const TREE_ROLES = ["user", "assistant", "summary"];

function emptyConversation() {
    return { id: newId(), title: "", updated: 0, pinned: false, saved: 0, messages: [], chosen: {}, settings: null };
}

const childrenOf = (conversation, id) => conversation.messages.filter(message => message.parent === id);

// The messages that are shown, from the first to the last.
function pathOf(conversation) {
    const children = new Map();
    for (const message of conversation.messages) {
        children.set(message.parent, [...(children.get(message.parent) ?? []), message]);
    }
    const path = [];
    const seen = new Set();
    for (let id = ""; !seen.has(id);) {
        seen.add(id);
        const choice = conversation.chosen[id];
        const versions = children.get(id) ?? [];
        const next = versions.find(message => message.id === choice) ?? versions.at(-1);
        if (!next || choice === NO_CHILD) {
            break;
        }
        path.push(next);
        id = next.id;
    }
    return path;
}

// Adds a message behind `parent` (null: at the beginning) and shows it.
function addMessage(conversation, parent, fields) {
    const message = { id: newId(), parent: parent?.id ?? "", ...fields };
    conversation.messages.push(message);
    conversation.chosen[message.parent] = message.id;
    return message;
}

// {at, all}: the versions of a message, and which one it is.
function versionsOf(conversation, message) {
    const all = childrenOf(conversation, message.parent).filter(other => other.role === message.role);
    return { at: all.indexOf(message), all };
}

function chooseMessage(conversation, message) {
    conversation.chosen[message.parent] = message.id;
}

// Ends what is shown behind this message; what followed stays as a branch.
function endAt(conversation, message) {
    conversation.chosen[message?.id ?? ""] = NO_CHILD;
}

function withoutMessages(conversation, ids) {
    conversation.messages = conversation.messages.filter(message => !ids.has(message.id));
}

// Deletes a question with its answers; what followed them follows what came before.
function removeTurn(conversation, message) {
    const gone = new Set([message.id]);
    for (const id of message.role === "user" ? gone : []) {
        childrenOf(conversation, id)
            .filter(child => child.role === "assistant")
            .forEach(child => gone.add(child.id)); // and those behind it, which answer results of tools
    }
    const next = pathOf(conversation).find(other => gone.has(other.parent) && !gone.has(other.id));
    for (const other of conversation.messages) {
        if (gone.has(other.parent) && !gone.has(other.id)) {
            other.parent = message.parent;
        }
    }
    withoutMessages(conversation, gone);
    delete conversation.chosen[message.parent];
    if (next) {
        conversation.chosen[message.parent] = next.id;
    }
}

// Shows these messages [{role, content}], adding those that the tree does not have.
function graftMessages(conversation, messages) {
    let parent = null;
    for (const { role, content } of messages) {
        const known = childrenOf(conversation, parent?.id ?? "").find(
            other => other.role === role && plainContent(other) === content,
        );
        parent = known ?? addMessage(conversation, parent, { role, content });
        chooseMessage(conversation, parent);
    }
    conversation.chosen[parent?.id ?? ""] = undefined;
}

// Adds the messages of another copy of the same conversation, which another tab has saved. Of an answer that one of the two
// has streamed further, that one counts; `mine` is the one that is streamed here.
function mergeConversation(conversation, other, mine) {
    const known = new Map(conversation.messages.map(message => [message.id, message]));
    for (const message of other.messages) {
        const own = known.get(message.id);
        if (!own) {
            conversation.messages.push(message);
        } else if (own !== mine && own.stream && message.content.length >= own.content.length) {
            delete own.stream;
            Object.assign(own, message);
        }
    }
}

// ---- validation -----------------------------------------------------------------------------------------------------

// Messages without ids, of older versions and of files, form a single line. What cannot be reached is dropped.
function cleanTree(messages, chosen) {
    const plainId = value => (isId(value) ? value : "");
    let last = "";
    const all = new Map();
    for (const message of messages) {
        const id = plainId(message.id) || newId();
        const parent = message.id ? plainId(message.parent) : last;
        if ((parent === "" || all.has(parent)) && !all.has(id)) {
            all.set(id, { ...message, id, parent });
            last = id;
        }
    }
    const pairs = Object.entries(Object(chosen)).filter(
        ([parent, child]) =>
            (parent === "" || all.has(parent)) && (child === NO_CHILD || all.get(child)?.parent === parent),
    );
    return { messages: [...all.values()], chosen: Object.fromEntries(pairs) };
}
