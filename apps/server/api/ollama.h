/* Names, times and fields that the files of Ollama's interface share. */
#ifndef SPRY_SERVER_API_OLLAMA_H
#define SPRY_SERVER_API_OLLAMA_H

#include "server/request/completion.h"

enum { SPRY_OLLAMA_TIME = 40, SPRY_OLLAMA_NAME = 256 };

void spry_ollama_time(char out[SPRY_OLLAMA_TIME], int64_t seconds);

/* "keep_alive": seconds as a number, or a duration such as "5m" or "1h30m"; negative: no limit. False when it is
 * absent or wrong. */
bool spry_ollama_keep_alive(spry_fields *fields, double *seconds);

/* The name of a model without the default tag: "tales:latest" becomes "tales". */
const char *spry_ollama_model(char out[SPRY_OLLAMA_NAME], const char *name);

/* Whether a chat template, or that of a model, has thoughts before answers. */
bool spry_ollama_template_thinks(spry_view source);

#endif
