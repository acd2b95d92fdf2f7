/* Log probabilities of the tokens of a prompt. */
#ifndef SPRY_SERVER_PROMPT_LOGPROBS_H
#define SPRY_SERVER_PROMPT_LOGPROBS_H

#include "server/request/completion.h"

/* `tokens` has room for the whole prompt, which is not empty. The log probability of the first token is NaN.
 * Computed as a job of the model. SPRY_ERR_CANCELLED: the client has disconnected. */
spry_status spry_prompt_logprobs(spry_answer_token *tokens, spry_completion *completion, const spry_tokens *prompt,
                                 spry_error *error);

#endif
