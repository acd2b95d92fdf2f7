/* Reading and writing that several interfaces share: OpenAI's objects, llama-server's, and bodies of other interfaces
 * rewritten as bodies of chat completions. */
#ifndef SPRY_SERVER_API_OPENAI_H
#define SPRY_SERVER_API_OPENAI_H

#include "server/fields/fields.h"
#include "server/request/completion.h"

/* {"content": [...]}: the log probabilities of tokens [from, to), in the form of chat completions. */
json_t *spry_openai_chat_logprobs(const spry_completion *completion, const spry_answer_token *tokens, size_t from,
                                  size_t to);

/* Writes an event about the prompt: `message`, which it takes, with "prompt_progress". */
void spry_openai_progress(spry_completion *completion, json_t *message, const spry_choice *choice);

/* Adds timings where every event has them. */
void spry_openai_add_timings(json_t *message, const spry_choice *choice);

/* Serves a request whose fields are in the interface's table, with the model of its field "model". */
void spry_openai_serve(spry_exchange *exchange, const spry_completion_interface *interface);

/* The reading half of chat completions, for interfaces whose bodies were rewritten as theirs. */
void spry_openai_count_read(spry_completion_options *options, spry_fields *fields); /* of a prompt without answer */
void spry_openai_chat_defaults(spry_completion_options *options);
void spry_openai_chat_read(spry_completion_options *options, spry_fields *fields);
spry_status spry_openai_chat_prompt(spry_completion *completion, spry_fields *fields, spry_error *error);

/* ---- objects of llama-server ------------------------------------------------------------------------------------- */

/* The name of this build: "b0-..." where clients of llama-server expect a number. */
const char *spry_llama_build(const spry_server *server);

/* Reads the fields of /completion. */
void spry_llama_read(spry_completion_options *options, spry_fields *fields);

/* The text of the prompt, with control tokens. */
json_t *spry_llama_prompt_text(const spry_completion *completion, const spry_choice *choice);

/* "generation_settings" */
json_t *spry_llama_settings(const spry_completion_options *options);

/* ---- bodies of other interfaces ---------------------------------------------------------------------------------- */

/* Bodies of other interfaces, written as bodies of OpenAI's chat completions: from there on one reader and one way to a
 * prompt serve all of them. */

/* ---- for the files that make them -------------------------------------------------------------------------------- */

/* Whether obj.key is a string equal to `text`. */
bool spry_chat_body_is(const json_t *object, const char *key, const char *text);

/* {"type": "function", "function": {...}}; takes no reference. */
json_t *spry_chat_body_tool(const json_t *name, const json_t *description, const json_t *schema);

/* A call of a tool, as chat completions have it; takes `arguments`, a string. */
json_t *spry_chat_body_call(const json_t *id, const json_t *name, json_t *arguments);

#endif
