/* Reading and writing that several interfaces share: OpenAI's objects and llama-server's. */
#ifndef SPRY_SERVER_API_OPENAI_H
#define SPRY_SERVER_API_OPENAI_H

#include "server/fields/fields.h"
#include "server/request/completion.h"

/* {"content": [...]}: the log probabilities of tokens [from, to), in the form of chat completions. */
json_t *spry_openai_chat_logprobs(const spry_completion *completion, const spry_answer_token *tokens, size_t from,
                                  size_t to);

/* Writes an event about the prompt: `message`, which it takes, with "prompt_progress". */
void spry_openai_progress(spry_completion *completion, json_t *message, const spry_choice *choice);

/* Reads the count of a prompt's tokens as a request without an answer: {"object", "input_tokens"}. */
extern const spry_completion_interface spry_openai_count;

/* Adds timings where every event has them. */
void spry_openai_add_timings(json_t *message, const spry_choice *choice);

/* Serves a request whose fields are in the interface's table, with the model of its field "model". */
void spry_openai_serve(spry_exchange *exchange, const spry_completion_interface *interface);

/* The reading half of chat completions, for interfaces whose bodies were rewritten as theirs. */
void spry_openai_count_read(spry_completion_options *options, spry_fields *fields); /* a prompt without an answer */
void spry_openai_chat_defaults(spry_completion_options *options);
void spry_openai_chat_read(spry_completion_options *options, spry_fields *fields);
spry_status spry_openai_chat_prompt(spry_completion *completion, spry_fields *fields, spry_error *error);

/* ---- objects of llama-server ------------------------------------------------------------------------------------- */

/* The name of this build: "b0-..." where clients of llama-server expect a number. */
const char *spry_llama_build(const spry_server *server);

/* The text of the prompt, with control tokens. */
json_t *spry_llama_prompt_text(const spry_completion *completion, const spry_choice *choice);

/* "generation_settings" */
json_t *spry_llama_settings(const spry_completion_options *options);

#endif
