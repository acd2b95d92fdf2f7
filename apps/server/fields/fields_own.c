/* Fields of spry's own: on every path that answers, of stored chats, and of tools. */
#include "server/fields/field_row.h"

const spry_field spry_own_fields[SPRY_OWN_FIELDS] = {
    HONOURED("priority", STRING, "\"batch\"",
             "`interactive` (default), or `batch`: it gives way to requests that are not"),
    HONOURED(
        "context_overflow", STRING, "\"slide\"",
        "a full context: `error`; `slide`: the oldest messages or tokens are dropped; `truncate_middle`: the prompt "
        "loses its middle. `timings.dropped_tokens` says how many went"),
    HONOURED("answer_span", BOOL, "true",
             "the answer is computed as a fragment, too, for prompts that contain it as a part with `cache: span`"),
    HONOURED("lora", LIST | STRING | OBJECT, "[]",
             "adapters of this answer: a name, `{\"name\": \"a\", \"scale\": 0.5}` or llama-server's `{\"id\": 0, "
             "\"scale\": 0.5}`, or a list of these; an empty list: none; absent: those of `--lora` by their scales"),
    HONOURED(
        "stream_id", STRING, "\"8f1c2d3e4a5b6c7d\"",
        "with `stream`: 16 to 64 letters and digits of the client's choice. The answer goes on without its connection; "
        "`GET /v1/streams/ID` reads on"),
};

static const spry_field chats[] = {
    HONOURED("title", STRING, "\"A tale\"",
             "at most 60 characters; of a new chat: its first words unless it says otherwise"),
    HONOURED("model", STRING, "\"Spry-Tales-29M\"", "one of `GET /v1/models`; a new chat needs it"),
    HONOURED("system", STRING, "\"Be brief.\"", "the system message; empty: none"),
    HONOURED("messages", LIST, "[{\"role\": \"user\", \"content\": \"Hi\"}]",
             "all of them, in place of those stored; texts of user and assistant"),
    HONOURED("revision", INTEGER, "0", "of the chat as it was read: 409 when it was changed since"),
};

const spry_field_table spry_fields_chats = {
    .title = "POST /api/chats, /api/chats/ID", .within = "", .groups = {SPRY_FIELD_GROUP(chats)}};

#define STATED HONOURED("model", STRING, "\"Spry-Tales-29M\"", "one of `GET /v1/models`")

static const spry_field state[] = {STATED};
static const spry_field pin[] = {STATED, HONOURED("pin", BOOL, "true", "`false`: no longer")};

const spry_field_table spry_fields_model_state = {
    .title = "POST /models/load, /models/unload", .within = "", .groups = {SPRY_FIELD_GROUP(state)}};
const spry_field_table spry_fields_model_pin = {
    .title = "POST /models/pin", .within = "", .groups = {SPRY_FIELD_GROUP(pin)}};

static const spry_field tool_call[] = {
    HONOURED("url", STRING, "\"http://127.0.0.1:9000/weather\"", "one of `GET /v1/tools`"),
    HONOURED("arguments", OBJECT, "{\"city\": \"Oslo\"}", "the body of the call, as JSON; absent: `{}`"),
};

const spry_field_table spry_fields_tool_call = {
    .title = "POST /v1/tools/call", .within = "", .groups = {SPRY_FIELD_GROUP(tool_call)}};
