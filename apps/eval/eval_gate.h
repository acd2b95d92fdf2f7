/* An evaluation held against an earlier one of the same text: fails where the model became worse. */
#ifndef SPRY_APPS_EVAL_GATE_H
#define SPRY_APPS_EVAL_GATE_H

#include <jansson.h>

#include "base/error.h"

typedef struct spry_eval_gate {
    const char *path; /* the result of an earlier `spry eval --json`; NULL: no gate */
    double max_loss;  /* share that a figure may be worse by */
    json_t *baseline;
} spry_eval_gate;

/* Reads the baseline, so that an invalid one is reported before anything is computed. */
spry_status spry_eval_gate_open(spry_eval_gate *gate, spry_error *error);
void spry_eval_gate_close(spry_eval_gate *gate);

/* Compares a result with the baseline: perplexity, and of kl also mean divergence and same top tokens. Adds "gate" to
 * the result. Fails where they are results of different texts or settings. */
spry_status spry_eval_gate_judge(bool *passed, const spry_eval_gate *gate, json_t *result, spry_error *error);

/* Prints the "gate" of a result. */
void spry_eval_gate_print(const json_t *result);

#endif
