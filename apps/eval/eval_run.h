/* Evaluates a text with one model, or with two side by side. */
#ifndef SPRY_APPS_EVAL_RUN_H
#define SPRY_APPS_EVAL_RUN_H

#include "eval/eval_stats.h"
#include "eval/eval_windows.h"

/* Perplexity of the windows' text. Shows progress and the current estimate. */
spry_status spry_eval_ppl(spry_eval_nll *nll, spry_engine *engine, const spry_eval_windows *windows, spry_error *error);

typedef struct spry_eval_kl_result {
    spry_eval_nll nll, base_nll;
    spry_eval_summary divergence; /* of the model from the base, in nats per token */
    double top1;                  /* share of tokens where both have the same most probable token */
    double delta_p;               /* mean absolute difference of the probabilities of the next token */
} spry_eval_kl_result;

/* Both engines must have the vocabulary of the windows. */
spry_status spry_eval_kl(spry_eval_kl_result *result, spry_engine *engine, spry_engine *base,
                         const spry_eval_windows *windows, spry_error *error);

#endif
