/* A session gives rows in order. Two sessions alternate, a few rows each, so that only the logits of these rows are
 * held at once. */
#include "eval/eval_run.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/number.h"
#include "cli/terminal.h"

enum { TURN_ROWS = 16, ESTIMATE_MAX = 64 };

typedef struct estimate_line {
    spry_progress_line line;
    char text[ESTIMATE_MAX];
    size_t total;
} estimate_line;

static void begin_estimate(estimate_line *estimate, size_t total)
{
    estimate->total = total;
    spry_progress_begin(&estimate->line, estimate->text);
}

static spry_status not_a_number(size_t token, spry_error *error)
{
    return spry_fail(error, SPRY_ERR_FORMAT, "the model's logits for token %zu of the text are not numbers", token + 1);
}

/* ---- perplexity -------------------------------------------------------------------------------------------------- */

typedef struct ppl_run {
    spry_eval_nll *nll;
    spry_eval_window window;
    size_t vocabulary;
    estimate_line estimate;
} ppl_run;

static bool take_row(void *user, size_t index, const float *logits)
{
    ppl_run *run = user;
    double log_probability = (double)logits[run->window.ids[index + 1]] - spry_eval_log_total(logits, run->vocabulary);
    if (isnan(log_probability))
        return false;
    spry_eval_nll_add(run->nll, log_probability);
    snprintf(run->estimate.text, sizeof run->estimate.text, "perplexity %.4f", spry_eval_perplexity(run->nll));
    spry_progress_update(&run->estimate.line, run->nll->count, run->estimate.total);
    return true;
}

spry_status spry_eval_ppl(spry_eval_nll *nll, spry_engine *engine, const spry_eval_windows *windows, spry_error *error)
{
    spry_engine_info info;
    spry_session *session = NULL;
    spry_engine_describe(engine, &info);
    *nll = (spry_eval_nll){0};
    ppl_run run = {.nll = nll, .vocabulary = info.vocabulary};
    spry_status status = spry_session_create(&session, engine, error);
    begin_estimate(&run.estimate, windows->n_counted);
    for (size_t i = 0; status == SPRY_OK && i < windows->count; i++) {
        run.window = spry_eval_windows_at(windows, i);
        status = spry_session_eval_from(session, run.window.ids, run.window.n_ids - 1, run.window.first - 1, take_row,
                                        &run, error);
    }
    spry_progress_end(&run.estimate.line);
    spry_session_destroy(session);
    return status == SPRY_ERR_CANCELLED ? not_a_number(nll->count, error) : status;
}

/* ---- divergence -------------------------------------------------------------------------------------------------- */

typedef struct kl_run {
    spry_eval_kl_result *result;
    spry_session *session, *base;
    spry_eval_window window;
    size_t vocabulary;
    float *base_logits; /* [TURN_ROWS, vocabulary] */
    size_t turn;        /* the first row of this turn */
    double *divergence; /* [tokens] */
    double sum;
    size_t same, count;
    double moved; /* sum of |delta p| */
    estimate_line estimate;
} kl_run;

static bool keep_base_row(void *user, size_t index, const float *logits)
{
    const kl_run *run = user;
    memcpy(run->base_logits + (index - run->turn) * run->vocabulary, logits, run->vocabulary * sizeof *logits);
    return true;
}

static bool compare_row(void *user, size_t index, const float *logits)
{
    kl_run *run = user;
    const float *base = run->base_logits + (index - run->turn) * run->vocabulary;
    spry_eval_pair pair = spry_eval_compare(logits, base, run->vocabulary, run->window.ids[index + 1]);
    if (isnan(pair.divergence))
        return false;
    spry_eval_nll_add(&run->result->nll, pair.log_probability);
    spry_eval_nll_add(&run->result->base_nll, pair.base_log_probability);
    run->divergence[run->count++] = pair.divergence;
    run->sum += pair.divergence;
    run->same += pair.same_top;
    run->moved += fabs(exp(pair.log_probability) - exp(pair.base_log_probability));
    snprintf(run->estimate.text, sizeof run->estimate.text, "KL divergence %.6f", run->sum / (double)run->count);
    spry_progress_update(&run->estimate.line, run->count, run->estimate.total);
    return true;
}

static spry_status compare_window(kl_run *run, spry_error *error)
{
    const spry_eval_window *w = &run->window;
    spry_status status = SPRY_OK;
    for (run->turn = w->first - 1; status == SPRY_OK && run->turn < w->n_ids - 1; run->turn += TURN_ROWS) {
        size_t end = w->n_ids - 1 - run->turn < TURN_ROWS ? w->n_ids - 1 : run->turn + TURN_ROWS;
        status = spry_session_eval_from(run->base, w->ids, end, run->turn, keep_base_row, run, error);
        if (status == SPRY_OK)
            status = spry_session_eval_from(run->session, w->ids, end, run->turn, compare_row, run, error);
    }
    return status;
}

static spry_status run_create(kl_run *run, spry_engine *engine, spry_engine *base, size_t n_tokens, spry_error *error)
{
    size_t bytes;
    spry_status status = spry_session_create(&run->session, engine, error);
    if (status == SPRY_OK)
        status = spry_session_create(&run->base, base, error);
    if (status != SPRY_OK)
        return status;
    if (!spry_checked_mul(&bytes, run->vocabulary, TURN_ROWS * sizeof *run->base_logits))
        bytes = SIZE_MAX;
    run->base_logits = malloc(bytes);
    run->divergence = calloc(n_tokens, sizeof *run->divergence);
    if (!run->base_logits || !run->divergence)
        return spry_fail_memory(error, "the base model's logits", bytes);
    return SPRY_OK;
}

spry_status spry_eval_kl(spry_eval_kl_result *result, spry_engine *engine, spry_engine *base,
                         const spry_eval_windows *windows, spry_error *error)
{
    spry_engine_info info;
    spry_engine_describe(engine, &info);
    *result = (spry_eval_kl_result){0};
    kl_run run = {.result = result, .vocabulary = info.vocabulary};
    spry_status status = run_create(&run, engine, base, windows->n_counted, error);
    begin_estimate(&run.estimate, windows->n_counted);
    for (size_t i = 0; status == SPRY_OK && i < windows->count; i++) {
        run.window = spry_eval_windows_at(windows, i);
        status = compare_window(&run, error);
    }
    spry_progress_end(&run.estimate.line);
    if (status == SPRY_ERR_CANCELLED)
        status = not_a_number(run.count, error);
    if (status == SPRY_OK) {
        result->divergence = spry_eval_summarize(run.divergence, run.count);
        result->top1 = (double)run.same / (double)run.count;
        result->delta_p = run.moved / (double)run.count;
    }
    spry_session_destroy(run.session);
    spry_session_destroy(run.base);
    free(run.base_logits);
    free(run.divergence);
    return status;
}
