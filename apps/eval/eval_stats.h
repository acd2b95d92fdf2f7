/* Statistics of evaluations: log probabilities of a text's tokens, and divergence between two models' predictions. Sums
 * are in double precision and in text order. */
#ifndef SPRY_APPS_EVAL_STATS_H
#define SPRY_APPS_EVAL_STATS_H

#include "spry.h"

/* log of the sum of exp over n logits: a logit minus this is a log probability. NaN when a logit is NaN. */
double spry_eval_log_total(const float *logits, size_t n);

/* Mean negative log likelihood, and its standard error. */
typedef struct spry_eval_nll {
    size_t count;
    double sum, squares;
} spry_eval_nll;

void spry_eval_nll_add(spry_eval_nll *nll, double log_probability);
double spry_eval_nll_mean(const spry_eval_nll *nll);
double spry_eval_nll_error(const spry_eval_nll *nll); /* of the mean; 0 for fewer than two tokens */
double spry_eval_perplexity(const spry_eval_nll *nll);

/* Two predictions of the same token. */
typedef struct spry_eval_pair {
    double divergence;                            /* sum of p_base * log(p_base / p_model), in nats; never below 0 */
    bool same_top;                                /* both have the same most probable token */
    double log_probability, base_log_probability; /* of the next token */
} spry_eval_pair;

spry_eval_pair spry_eval_compare(const float *logits, const float *base_logits, size_t n, int32_t next);

/* A list of numbers and its statistics. */
typedef struct spry_eval_summary {
    double mean, median, p99, max;
} spry_eval_summary;

/* Sorts `values`, at least one; the median and the 99th percentile are the nearest values at or above that rank. */
spry_eval_summary spry_eval_summarize(double *values, size_t count);

#endif
