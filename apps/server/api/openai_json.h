/* What chat and text completions of OpenAI's interface share. */
#ifndef SPRY_SERVER_OPENAI_JSON_H
#define SPRY_SERVER_OPENAI_JSON_H

#include "server/request/completion.h"

json_t *spry_openai_usage(const spry_completion *completion);

/* {"id", "object", "created", "model", "system_fingerprint", "choices"}; takes `choices`. */
json_t *spry_openai_envelope(const spry_completion *completion, const char *object, json_t *choices);

/* The bytes of a token inside a text. */
spry_view spry_openai_token_bytes(const spry_completion *completion, int32_t id);

/* {"content": [...]}: the log probabilities of tokens [from, to), in the form of chat completions. */
json_t *spry_openai_chat_logprobs(const spry_completion *completion, const spry_answer_token *tokens, size_t from,
                                  size_t to);

/* Reads the common fields: sampling, stop, constraints, n, stream, stream_options. */
void spry_openai_read_common(spry_completion_options *options, spry_fields *fields);

/* Serves a request with the model of its field "model". */
void spry_openai_serve(spry_exchange *exchange, const spry_completion_interface *interface);

/* The reply that is not streamed; takes `choices`. */
json_t *spry_openai_whole(const spry_completion *completion, const char *object, json_t *choices);

/* Appends the end of a stream: usage, where wanted, and [DONE]. */
void spry_openai_close_stream(spry_completion *completion, const char *object);

#endif
