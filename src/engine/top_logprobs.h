/* Log probabilities for whoever asks for them. */
#ifndef SPRY_ENGINE_TOP_LOGPROBS_H
#define SPRY_ENGINE_TOP_LOGPROBS_H

#include "spry.h"

/* Tells request->on_token of a token; what that says. A token nobody asked the model about (NULL) was certain. */
bool spry_report_token(const spry_request *request, int32_t id, const float *logits, size_t n_vocab);

#endif
