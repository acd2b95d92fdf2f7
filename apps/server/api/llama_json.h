/* Objects of llama-server's interface. */
#ifndef SPRY_SERVER_LLAMA_JSON_H
#define SPRY_SERVER_LLAMA_JSON_H

#include "server/request/completion.h"

/* The name of this build: "b0-..." where clients of llama-server expect a number. */
const char *spry_llama_build(const spry_server *server);

/* Reads the fields of /completion. */
void spry_llama_read(spry_completion_options *options, spry_fields *fields);

/* The ids of tokens [from, to). */
json_t *spry_llama_ids(const spry_choice *choice, size_t from, size_t to);

/* The log probabilities of tokens [from, to). */
json_t *spry_llama_probabilities(const spry_completion *completion, const spry_choice *choice, size_t from, size_t to);

/* The text of the prompt, with control tokens. */
json_t *spry_llama_prompt_text(const spry_completion *completion, const spry_choice *choice);

/* "generation_settings" */
json_t *spry_llama_settings(const spry_completion_options *options);

#endif
