/* Pieces that OpenAI's two interfaces for text share. */
#ifndef SPRY_SERVER_OPENAI_JSON_H
#define SPRY_SERVER_OPENAI_JSON_H

#include "server/request/completion.h"

json_t *spry_openai_usage(const spry_completion *completion);

/* {"id", "object", "created", "model", "system_fingerprint", "choices"}; takes `choices`. */
json_t *spry_openai_envelope(const spry_completion *completion, const char *object, json_t *choices);

/* The text and bytes of a token in the middle of a text. */
spry_view spry_openai_token_bytes(const spry_completion *completion, int32_t id);

/* {"content": [...]} of tokens [from, to) in the chat's form. */
json_t *spry_openai_chat_logprobs(const spry_completion *completion, const spry_answer_token *tokens, size_t from,
                                  size_t to);

/* What both read in the same way: sampling, stop, constraint, n, stream, stream_options. */
void spry_openai_read_common(spry_completion_options *options, spry_fields *fields);

/* Serves a request whose "model" names its model. */
void spry_openai_serve(spry_exchange *exchange, const spry_completion_interface *interface);

/* The whole reply; takes `choices`. */
json_t *spry_openai_whole(const spry_completion *completion, const char *object, json_t *choices);

/* What follows the last choice of a stream. */
void spry_openai_close_stream(spry_completion *completion, const char *object);

#endif
