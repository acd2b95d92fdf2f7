/* Making prompts, on the connection's thread. */
#ifndef SPRY_SERVER_REQUEST_PROMPT_H
#define SPRY_SERVER_REQUEST_PROMPT_H

#include <jansson.h>

#include "base/buffer.h"
#include "base/view.h"
#include "server/http/exchange.h"
#include "server/request/completion.h"
#include "spry_serve.h"

/* Makes the only prompt from a conversation: `messages` in OpenAI's form, `tools` NULL or a list, `extra` NULL or an
 * object of template variables. `generate`: with the beginning of the model's answer. Where `choice` (NULL: none)
 * requires a tool call, the prompt ends with the beginning of the call, and the answer is constrained to the schemas of
 * the tools. */
spry_status spry_prompt_chat(spry_completion *completion, const json_t *messages, const json_t *tools,
                             const json_t *extra, const json_t *choice, bool generate, spry_error *error);

/* Makes the only prompt from parts without a template: texts, whose control tokens count, and pictures. */
spry_status spry_prompt_parts(spry_completion *completion, const json_t *parts, spry_error *error);

/* As spry_prompt_chat; a conversation that does not fit the context loses its oldest messages, but never a system
 * message nor its last one. */
spry_status spry_prompt_chat_fit(spry_completion *completion, const json_t *messages, const json_t *tools,
                                 const json_t *extra, const json_t *choice, spry_error *error);

/* Forgets the prompt, so that another can be made. */
void spry_prompt_reset(spry_completion *completion);

/* Appends the ids of a text. `special`: control tokens are recognised; `begin`: with the tokenizer's BOS token. */
spry_status spry_prompt_encode(spry_tokens *out, const spry_engine *engine, spry_view text, bool special, bool begin,
                               spry_error *error);

/* Append the ids of a list of token ids, texts and parts ({"text": "...", "cache": "span"}: a fragment), or of ids
 * only; `what` is its name in messages. A list with more items than the context holds is refused before it is read if
 * it must `fit`, which prompts must that neither slide nor are cut. */
spry_status spry_prompt_list(spry_tokens *out, spry_completion *completion, const json_t *list, const char *what,
                             spry_error *error);
spry_status spry_prompt_ids(spry_tokens *out, const spry_engine *engine, const json_t *list, const char *what, bool fit,
                            spry_error *error);

/* Whether a prompt may be longer than the context. */
bool spry_prompt_slides(const spry_completion *completion);

/* Checks that no prompt is empty, that each leaves room for an answer or slides, and that all answers fit the queue.
 * With SPRY_OVERFLOW_CUT_MIDDLE, prompts that leave no room (for the wanted answer, or a quarter of the context) first
 * lose tokens in their middle; fragments that lose some become plain text. */
spry_status spry_prompt_check(spry_completion *completion, spry_error *error);

/* The text that the template renders, as a JSON string. */
spry_status spry_prompt_render(json_t **out, const spry_engine *engine, const json_t *messages, const json_t *tools,
                               const json_t *extra, bool generate, spry_error *error);

/* ---- fill-in ----------------------------------------------------------------------------------------------------- */

/* Prompts for text between two texts, with the fill-in tokens of models that have them. */

/* Whether a model has fill-in tokens. */
bool spry_engine_can_fill_in(const spry_engine *engine);

/* Appends the ids. `extra` (NULL: none): a list of {"filename", "text"} that precedes them. SPRY_ERR_UNSUPPORTED: the
 * model has no fill-in tokens. */
spry_status spry_prompt_fill_in(spry_tokens *out, const spry_engine *engine, spry_view before, spry_view after,
                                const json_t *extra, spry_error *error);

/* ---- log probabilities ------------------------------------------------------------------------------------------- */

/* `tokens` has room for the whole prompt, which is not empty. The log probability of the first token is NaN.
 * Computed as a job of the model. SPRY_ERR_CANCELLED: the client has disconnected. */
spry_status spry_prompt_logprobs(spry_answer_token *tokens, spry_completion *completion, const spry_tokens *prompt,
                                 spry_error *error);

/* ---- fetch.c: pictures by address -------------------------------------------------------------------------------- */

/* Pictures are fetched from hosts that --allow-fetch names, from no others. */

/* Checks the value of --allow-fetch. */
spry_status spry_fetch_check(const char *allowed, spry_error *error);

/* Puts data: URLs in place of http: and https: addresses of pictures in these messages. Without --allow-fetch they
 * stay, and the engine refuses them. */
spry_status spry_fetch_pictures(spry_exchange *x, const json_t *messages, spry_error *error);

#endif
