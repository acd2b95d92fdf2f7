// Requests to the server of this page. Every failure becomes a ServerError with a message for the user.

class ServerError extends Error {
    constructor(sentence, status) {
        super(sentence);
        this.status = status; // 0: it did not answer
    }
}

function errorSentence(status, text) {
    try {
        const error = JSON.parse(text).error;
        const sentence = typeof error === "string" ? error : error.message;
        if (typeof sentence === "string" && sentence) {
            return sentence.slice(0, 2000);
        }
    } catch {
        // The error is not JSON: only its status is known.
    }
    return status === 401 ? "The server needs an API key." : "The server answered with error " + status + ".";
}

function parseAnswer(text) {
    try {
        return JSON.parse(text);
    } catch {
        throw new ServerError("The server sent an invalid response.", 500);
    }
}

// Returns a response or throws a ServerError. With `body` it is a POST; an AbortSignal cancels it.
async function callServer(path, body = null, signal = null) {
    const key = passing.read("key");
    const headers = {};
    if (key) {
        headers.Authorization = "Bearer " + key;
    }
    const form = body instanceof FormData;
    if (body && !form) {
        headers["Content-Type"] = "application/json";
    }
    let response = null;
    try {
        response = await fetch(path, {
            method: body ? "POST" : "GET",
            headers,
            signal,
            body: form ? body : body && JSON.stringify(body),
            cache: "no-store",
        });
    } catch (error) {
        throw error.name === "AbortError" ? error : new ServerError("The server does not answer.", 0);
    }
    if (!response.ok) {
        throw new ServerError(errorSentence(response.status, await response.text().catch(() => "")), response.status);
    }
    return response;
}

// Yields the data of each server-sent event of a response.
async function* serverEvents(response) {
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    let data = [];
    try {
        for (;;) {
            const { value, done } = await reader.read();
            if (done) {
                return;
            }
            const lines = (rest + value).split(/\r\n|\n|\r(?!$)/);
            rest = lines.pop();
            for (const line of lines) {
                if (line.startsWith("data:")) {
                    data.push(line.slice(line[5] === " " ? 6 : 5));
                } else if (line === "" && data.length) {
                    yield data.join("\n");
                    data = [];
                }
            }
        }
    } catch (error) {
        throw error.name === "AbortError" ? error : new ServerError("The connection to the server broke.", 0);
    } finally {
        reader.cancel().catch(() => {});
    }
}

// The names of all models.
async function fetchModels() {
    const answer = parseAnswer(await (await callServer("/v1/models")).text());
    return (answer.data ?? []).map(model => String(model.id));
}

// Streams an answer: calls onChunk with each chunk.
async function streamAnswer(request, signal, onChunk) {
    const response = await callServer("/v1/chat/completions", request, signal);
    for await (const data of serverEvents(response)) {
        if (data === "[DONE]") {
            return;
        }
        const chunk = parseAnswer(data);
        if (chunk.error) {
            throw new ServerError(errorSentence(500, data), 500);
        }
        onChunk(chunk);
    }
    throw new ServerError("The connection to the server broke before the answer was complete.", 0);
}
