/* What chat and text completions of OpenAI's interface share. */
#ifndef SPRY_SERVER_OPENAI_JSON_H
#define SPRY_SERVER_OPENAI_JSON_H

#include "server/fields/field_table.h"
#include "server/request/completion.h"

/* {"id", "object", "created", "model", "system_fingerprint", "choices"}; takes `choices`. */
json_t *spry_openai_envelope(const spry_completion *completion, const char *object, json_t *choices);

/* The bytes of a token inside a text. */
spry_view spry_openai_token_bytes(const spry_completion *completion, int32_t id);

/* {"content": [...]}: the log probabilities of tokens [from, to), in the form of chat completions. */
json_t *spry_openai_chat_logprobs(const spry_completion *completion, const spry_answer_token *tokens, size_t from,
                                  size_t to);

/* Reads the common fields: sampling, stop, constraints, n, stream, stream_options. */
void spry_openai_read_common(spry_completion_options *options, spry_fields *fields);

/* The limit for the answer under any of its names; -1 in the field means 0: none. `least`: the smallest value that is
 * allowed otherwise. */
int64_t spry_openai_limit(spry_fields *fields, int64_t fallback, int64_t least);

/* Writes an event about the prompt: `message`, which it takes, with "prompt_progress". */
void spry_openai_progress(spry_completion *completion, json_t *message, const spry_choice *choice);

/* Adds timings where every event has them. */
void spry_openai_add_timings(json_t *message, const spry_choice *choice);

/* Serves a request with the model of its field "model"; its fields are those of `table`. */
void spry_openai_serve(spry_exchange *exchange, const spry_completion_interface *interface,
                       const spry_field_table *table);

/* The reading half of chat completions, for interfaces whose bodies were rewritten as theirs. */
void spry_openai_count_read(spry_completion_options *options, spry_fields *fields); /* of a prompt without answer */
void spry_openai_chat_read(spry_completion_options *options, spry_fields *fields);
spry_status spry_openai_chat_prompt(spry_completion *completion, spry_fields *fields, spry_error *error);

/* The reply that is not streamed; takes `choices`. */
json_t *spry_openai_whole(const spry_completion *completion, const char *object, json_t *choices);

/* Appends the end of a stream: usage, where wanted, and [DONE]. */
void spry_openai_close_stream(spry_completion *completion, const char *object);

#endif
