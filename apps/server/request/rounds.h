/* Tools of MCP servers in a request: "tools" may have {"type": "mcp", "server_label": NAME}, which stands for the tools
 * of a server of --mcp. Calls of them are the client's to make, by POST /v1/tools/call, unless "require_approval" is
 * "never": then the server makes them, and the model goes on with their results in a further round of the same answer.
 */
#ifndef SPRY_SERVER_REQUEST_ROUNDS_H
#define SPRY_SERVER_REQUEST_ROUNDS_H

#include "server/request/completion.h"

/* Replaces the entries of type mcp in a body of chat completions by functions. Wrong ones are stored in `fields`. */
void spry_rounds_expand(spry_exchange *exchange, spry_fields *fields, json_t *body);

/* Begins the rounds of a completion, if it has tools that the server calls. */
spry_status spry_rounds_begin(spry_completion *completion, spry_error *error);
void spry_rounds_deinit(spry_completion *completion);

/* Takes an event of the answer, where it is part of a call that the server makes: true. Remembers the text of all. */
bool spry_rounds_take(spry_choice *choice, const spry_chat_event *event);

/* After the jobs have ended: makes the calls of this round and submits the job of the next. False: there are none, or
 * something failed, which is an error of the completion. */
bool spry_rounds_next(spry_completion *completion);

/* A call that was made, as replies have it: {"type": "mcp_call", "id", "server_label", "name", "arguments", "output",
 * "error"}. */
json_t *spry_rounds_call_json(const spry_completion *completion, const json_t *call);

#endif
