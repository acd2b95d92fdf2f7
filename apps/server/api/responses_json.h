/* Objects of OpenAI's Responses. */
#ifndef SPRY_SERVER_RESPONSES_JSON_H
#define SPRY_SERVER_RESPONSES_JSON_H

#include "server/request/ordered_parts.h"

enum { SPRY_ITEM_ID = 80 };

/* The id of the item that a part of the answer becomes. */
void spry_responses_item_id(char out[SPRY_ITEM_ID], const spry_completion *completion, const spry_answer_part *part);

/* {"type": "output_text", ...}, or the text of a thought; takes `logprobs`, NULL: an empty list. */
json_t *spry_responses_text(const spry_answer_part *part, bool empty, json_t *logprobs);

/* An item of the output; `done` false: as it opens in a stream. */
json_t *spry_responses_item(const spry_completion *completion, const spry_answer_part *part, bool done);

/* The response object. `status`: "in_progress", "completed", "incomplete" or "failed"; takes `output`. */
json_t *spry_responses_object(const spry_completion *completion, const char *status, json_t *output);

/* The answer as a message of chat completions, for the next response. */
json_t *spry_responses_message(const spry_answer_parts *parts);

#endif
