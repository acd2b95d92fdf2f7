/* Statistics of evaluations: log probabilities of a text's tokens, and divergence between two models' predictions. Sums
 * are in double precision and in text order. */
#ifndef SPRY_EVAL_EVAL_RUN_H
#define SPRY_EVAL_EVAL_RUN_H

#include <jansson.h>

#include "base/error.h"
#include "spry.h"

/* Mean negative log likelihood, and its standard error. */
typedef struct spry_eval_nll {
    size_t count;
    double sum, squares;
} spry_eval_nll;

double spry_eval_nll_mean(const spry_eval_nll *nll);
double spry_eval_nll_error(const spry_eval_nll *nll); /* standard error of the mean; 0 for fewer than two tokens */
double spry_eval_perplexity(const spry_eval_nll *nll);

/* Two predictions of the same token. */
typedef struct spry_eval_pair {
    double divergence;                            /* sum of p_base * log(p_base / p_model), in nats; never below 0 */
    bool same_top;                                /* both have the same most probable token */
    double log_probability, base_log_probability; /* log probability of the next token, in the model and in the base */
} spry_eval_pair;

spry_eval_pair spry_eval_compare(const float *logits, const float *base_logits, size_t n, int32_t next);

/* A list of numbers and its statistics. */
typedef struct spry_eval_summary {
    double mean, median, p99, max;
} spry_eval_summary;

/* Sorts `values`, at least one; the median and the 99th percentile are the nearest values at or above that rank. */
spry_eval_summary spry_eval_summarize(double *values, size_t count);

/* ---- windows ----------------------------------------------------------------------------------------------------- */

/* Divides a text into windows of the context size, so that every token is counted once and with enough text before it.
 *
 * Windows have `context` tokens and begin `stride` tokens apart. The first counts all of its tokens but the first; each
 * later one counts its last `stride` tokens, which therefore have at least context - stride tokens before them. If the
 * tokenizer adds a token before every text, every window begins with it. */

typedef struct spry_eval_windows {
    int32_t *ids; /* owned: the whole text */
    size_t n_ids;
    bool has_start;  /* ids[0] is added by the tokenizer before every text */
    int32_t *window; /* owned: [context] */
    size_t context, stride;
    bool special;     /* spellings of control tokens became those tokens */
    size_t count;     /* windows */
    size_t n_counted; /* tokens, in all windows */
} spry_eval_windows;

typedef struct spry_eval_window {
    const int32_t *ids;
    size_t n_ids;
    size_t first; /* the first id that counts; at least 1 */
} spry_eval_window;

/* Tokenises the text; `stride` 0 is half of the context; `special`: spellings of control tokens become those tokens. A
 * text of fewer than two tokens is refused. */
spry_status spry_eval_windows_init(spry_eval_windows *windows, const spry_engine *engine, const char *text, size_t size,
                                   size_t stride, bool special, spry_error *error);
void spry_eval_windows_deinit(spry_eval_windows *windows);

/* ---- evaluation -------------------------------------------------------------------------------------------------- */

/* Perplexity of the windows' text. Shows progress and the current estimate. */
spry_status spry_eval_ppl(spry_eval_nll *nll, spry_engine *engine, const spry_eval_windows *windows, spry_error *error);

typedef struct spry_eval_kl_result {
    spry_eval_nll nll, base_nll;
    spry_eval_summary divergence; /* divergence of the model from the base, in nats per token */
    double top1;                  /* share of tokens where both have the same most probable token */
    double delta_p;               /* mean absolute difference of the probabilities of the next token */
} spry_eval_kl_result;

/* Both engines must have the vocabulary of the windows. */
spry_status spry_eval_kl(spry_eval_kl_result *result, spry_engine *engine, spry_engine *base,
                         const spry_eval_windows *windows, spry_error *error);

/* ---- the gate ---------------------------------------------------------------------------------------------------- */

/* Compares an evaluation with an earlier one of the same text; fails where the model became worse. */

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
