/* Prompts of completions: rendered and tokenised on the connection's thread. */
#ifndef SPRY_SERVER_PROMPT_H
#define SPRY_SERVER_PROMPT_H

#include "server/request/completion.h"

/* A conversation as the only prompt: "messages" as OpenAI's interface has them, `tools` NULL or a list, `extra` NULL or
 * an object of variables for the template. `generate`: ready for the model's answer. */
spry_status spry_prompt_chat(spry_completion *completion, const json_t *messages, const json_t *tools,
                             const json_t *extra, bool generate, spry_error *error);

/* Ids of a text. `begin`: with what the tokenizer puts before a text. These append to `out`. */
spry_status spry_prompt_encode(spry_tokens *out, const spry_engine *engine, spry_view text, bool special, bool begin,
                               spry_error *error);

/* A list of token ids and texts, or of ids alone, called `what`. One with more items than the context holds is refused
 * before it is read; of ids alone only if it must `fit`. */
spry_status spry_prompt_list(spry_tokens *out, const spry_engine *engine, const json_t *list, const char *what,
                             spry_error *error);
spry_status spry_prompt_ids(spry_tokens *out, const spry_engine *engine, const json_t *list, const char *what, bool fit,
                            spry_error *error);

/* Whether every prompt has tokens and fits the context with room for an answer, and all answers can at least wait. */
spry_status spry_prompt_check(const spry_completion *completion, spry_error *error);

/* Makes the model call a tool, where `choice` asks for it: the prompt opens the call, and the rest must fit the tools'
 * schemas. */
spry_status spry_prompt_require_call(spry_completion *completion, const json_t *tools, const json_t *choice,
                                     spry_error *error);

/* The conversation as text, as the template writes it; `out` is appended to. */
spry_status spry_prompt_render(spry_buffer *out, const spry_engine *engine, const json_t *messages, const json_t *tools,
                               const json_t *extra, bool generate, spry_error *error);

#endif
