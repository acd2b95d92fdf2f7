/* Perplexity and divergence of a text, window by window, and their comparison with an earlier result. */
#include "eval/eval_run.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "base/error.h"
#include "base/json.h"
#include "base/number.h"
#include "cli/terminal.h"
#include "platform/file.h"

/* log of the sum of exp over n logits: a logit minus this is a log probability. NaN when a logit is NaN. */
static double eval_log_total(const float *logits, size_t n)
{
    double max = -INFINITY, sum = 0;
    for (size_t i = 0; i < n; i++) {
        if (isnan(logits[i]))
            return (double)NAN;
        max = (double)logits[i] > max ? (double)logits[i] : max;
    }
    for (size_t i = 0; i < n; i++)
        sum += exp((double)logits[i] - max);
    return max + log(sum);
}

static void eval_nll_add(spry_eval_nll *nll, double log_probability)
{
    nll->count++;
    nll->sum -= log_probability;
    nll->squares += log_probability * log_probability;
}

double spry_eval_nll_mean(const spry_eval_nll *nll)
{
    return nll->count ? nll->sum / (double)nll->count : 0;
}

double spry_eval_nll_error(const spry_eval_nll *nll)
{
    if (nll->count < 2)
        return 0;
    double n = (double)nll->count, mean = spry_eval_nll_mean(nll), variance = nll->squares / n - mean * mean;
    return variance > 0 ? sqrt(variance / (n - 1)) : 0;
}

double spry_eval_perplexity(const spry_eval_nll *nll)
{
    return exp(spry_eval_nll_mean(nll));
}

static size_t top_of(const float *logits, size_t n)
{
    size_t top = 0;
    for (size_t i = 1; i < n; i++)
        if (logits[i] > logits[top])
            top = i;
    return top;
}

spry_eval_pair spry_eval_compare(const float *logits, const float *base_logits, size_t n, int32_t next)
{
    const double total = eval_log_total(logits, n), base_total = eval_log_total(base_logits, n);
    double divergence = 0;
    for (size_t i = 0; i < n; i++) {
        double base = (double)base_logits[i] - base_total, p = exp(base);
        if (p > 0)
            divergence += p * (base - ((double)logits[i] - total));
    }
    /* Rounding may give slightly less than 0 for equal predictions; a NaN is preserved. */
    return (spry_eval_pair){.divergence = divergence < 0 ? 0 : divergence,
                            .same_top = top_of(logits, n) == top_of(base_logits, n),
                            .log_probability = (double)logits[next] - total,
                            .base_log_probability = (double)base_logits[next] - base_total};
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* The smallest value that a share of all values do not exceed. */
static double quantile(const double *sorted, size_t count, double share)
{
    size_t rank = (size_t)ceil(share * (double)count);
    return sorted[rank ? rank - 1 : 0];
}

spry_eval_summary spry_eval_summarize(double *values, size_t count)
{
    double sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += values[i];
    qsort(values, count, sizeof *values, ascending);
    return (spry_eval_summary){.mean = sum / (double)count,
                               .median = quantile(values, count, 0.5),
                               .p99 = quantile(values, count, 0.99),
                               .max = values[count - 1]};
}

/* ---- windows ----------------------------------------------------------------------------------------------------- */

/* Arithmetic of windows. The body is the text without its start token; a window has room for `room` tokens of it. */

static size_t room_of(const spry_eval_windows *w)
{
    return w->context - (w->has_start ? 1 : 0);
}

static size_t body_size(const spry_eval_windows *w)
{
    return w->n_ids - (w->has_start ? 1 : 0);
}

/* Finds the token that the tokenizer adds before every text, if any. */
static spry_status find_start(spry_eval_windows *w, const spry_engine *engine, spry_error *error)
{
    int32_t id = -1;
    size_t count;
    spry_status status = spry_engine_tokenize(engine, &id, 1, &count, "", 0, false, error);
    w->has_start = status == SPRY_OK && count > 0 && w->n_ids > 0 && w->ids[0] == id;
    return status;
}

static spry_status tokenize(spry_eval_windows *w, const spry_engine *engine, const char *text, size_t size,
                            spry_error *error)
{
    size_t capacity = size + 16; /* an estimate that is nearly always enough */
    for (;;) {
        free(w->ids);
        w->ids = calloc(capacity, sizeof *w->ids);
        if (!w->ids)
            return spry_fail_memory(error, "the text's tokens", capacity * sizeof *w->ids);
        spry_status status = spry_engine_tokenize(engine, w->ids, capacity, &w->n_ids, text, size, w->special, error);
        if (status != SPRY_OK || w->n_ids <= capacity)
            return status;
        capacity = w->n_ids;
    }
}

static spry_status check(const spry_eval_windows *w, spry_error *error)
{
    if (w->n_ids < 2)
        return spry_fail(error, SPRY_ERR_INPUT, "the text has %zu token%s, but at least 2 are needed", w->n_ids,
                         w->n_ids == 1 ? "" : "s");
    if (w->context < 2)
        return spry_fail(error, SPRY_ERR_INPUT, "a context of %zu is too small, at least 2 are needed", w->context);
    if (w->stride >= w->context)
        return spry_fail(error, SPRY_ERR_INPUT, "the stride is %zu, but must be less than the context of %zu",
                         w->stride, w->context);
    return SPRY_OK;
}

spry_status spry_eval_windows_init(spry_eval_windows *w, const spry_engine *engine, const char *text, size_t size,
                                   size_t stride, bool special, spry_error *error)
{
    spry_engine_info info;
    spry_engine_describe(engine, &info);
    *w = (spry_eval_windows){
        .context = info.context, .stride = stride ? stride : (info.context + 1) / 2, .special = special};
    spry_status status = tokenize(w, engine, text, size, error);
    if (status == SPRY_OK)
        status = find_start(w, engine, error);
    if (status == SPRY_OK)
        status = check(w, error);
    if (status != SPRY_OK)
        return status;
    w->window = calloc(w->context, sizeof *w->window);
    if (!w->window)
        return spry_fail_memory(error, "a window of the text", w->context * sizeof *w->window);
    size_t body = body_size(w), room = room_of(w);
    w->count = body <= room ? 1 : 1 + (body - room + w->stride - 1) / w->stride;
    w->n_counted = w->n_ids - 1;
    return SPRY_OK;
}

void spry_eval_windows_deinit(spry_eval_windows *w)
{
    free(w->ids);
    free(w->window);
    *w = (spry_eval_windows){0};
}

/* Window number `index`; its ids are valid until the next call. */
static spry_eval_window eval_windows_at(const spry_eval_windows *w, size_t index)
{
    const size_t start = w->has_start ? 1 : 0, room = room_of(w), body = body_size(w), begin = index * w->stride;
    const size_t count = body - begin < room ? body - begin : room;
    if (start)
        w->window[0] = w->ids[0];
    memcpy(w->window + start, w->ids + start + begin, count * sizeof *w->ids);
    return (spry_eval_window){w->window, start + count, index ? start + room - w->stride : 1};
}

/* ---- evaluation -------------------------------------------------------------------------------------------------- */

/* A session gives rows in order. Two sessions alternate, a few rows each, so that only the logits of these rows are
 * held at once. */

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
    double log_probability = (double)logits[run->window.ids[index + 1]] - eval_log_total(logits, run->vocabulary);
    if (isnan(log_probability))
        return false;
    eval_nll_add(run->nll, log_probability);
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
        run.window = eval_windows_at(windows, i);
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
    eval_nll_add(&run->result->nll, pair.log_probability);
    eval_nll_add(&run->result->base_nll, pair.base_log_probability);
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
        run.window = eval_windows_at(windows, i);
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

/* ---- the gate ---------------------------------------------------------------------------------------------------- */

/* A figure that is missing or not finite now is worse than any baseline. */

enum { FILE_BYTES_MAX = 1 << 20 };

/* Divergences below this are rounding, not a loss. */
static const double least_divergence = 1e-6;

static const struct figure {
    const char *name, *key, *inner; /* inner NULL: the number is at `key` */
    bool more_is_better;
    double least; /* a baseline below this counts as this */
} figures[] = {
    {"perplexity", "perplexity", NULL, false, 0},
    {"KL divergence", "kl", "mean", false, least_divergence},
    {"same top token", "top1", NULL, true, 0},
};

/* What must be equal for two results to be comparable. */
static const char *const same[] = {"tokens", "counted", "context", "stride"};

static const json_t *find(const json_t *result, const struct figure *f)
{
    const json_t *value = json_object_get(result, f->key);
    return f->inner ? json_object_get(value, f->inner) : value;
}

static spry_status gate_check(const json_t *baseline, spry_error *error)
{
    for (size_t i = 0; i < SPRY_COUNT(same); i++)
        if (!json_is_integer(json_object_get(baseline, same[i])))
            return spry_fail(error, SPRY_ERR_FORMAT, "is no result of spry eval: \"%s\" is missing", same[i]);
    if (!json_is_number(json_object_get(baseline, "perplexity")))
        return spry_fail(error, SPRY_ERR_FORMAT, "is no result of spry eval ppl or kl: \"perplexity\" is missing");
    return SPRY_OK;
}

spry_status spry_eval_gate_open(spry_eval_gate *gate, spry_error *error)
{
    spry_buffer text;
    if (!gate->path)
        return SPRY_OK;
    spry_buffer_init(&text, FILE_BYTES_MAX);
    spry_status status = spry_file_read(&text, gate->path, error);
    if (!status) {
        status = spry_json_object(&gate->baseline, spry_buffer_view(&text), error);
        if (!status)
            status = gate_check(gate->baseline, error);
        if (status)
            status = spry_fail_prefix(error, status, gate->path);
    }
    spry_buffer_deinit(&text);
    return status;
}

void spry_eval_gate_close(spry_eval_gate *gate)
{
    json_decref(gate->baseline);
    gate->baseline = NULL;
}

/* The loss relative to the baseline; below 0: better. */
static double loss_of(const struct figure *f, double before, double now)
{
    before = before > f->least ? before : f->least;
    double change = before > 0 ? now / before - 1 : 0;
    return f->more_is_better ? -change : change;
}

static spry_status check_same(const spry_eval_gate *gate, const json_t *result, spry_error *error)
{
    for (size_t i = 0; i < SPRY_COUNT(same); i++) {
        json_int_t before = json_integer_value(json_object_get(gate->baseline, same[i]));
        json_int_t now = json_integer_value(json_object_get(result, same[i]));
        if (before != now)
            return spry_fail(error, SPRY_ERR_INPUT,
                             "%s: is of another text or other settings: \"%s\" is %" JSON_INTEGER_FORMAT
                             " there and %" JSON_INTEGER_FORMAT " here",
                             gate->path, same[i], before, now);
    }
    return SPRY_OK;
}

spry_status spry_eval_gate_judge(bool *passed, const spry_eval_gate *gate, json_t *result, spry_error *error)
{
    *passed = true;
    spry_status status = check_same(gate, result, error);
    if (status)
        return status;
    json_t *list = json_array();
    for (size_t i = 0; i < SPRY_COUNT(figures); i++) {
        const json_t *before = find(gate->baseline, &figures[i]), *value = find(result, &figures[i]);
        if (!json_is_number(before))
            continue;
        double now = json_is_number(value) ? json_number_value(value) : NAN;
        double loss = loss_of(&figures[i], json_number_value(before), now);
        bool worse = !(loss <= gate->max_loss);
        *passed = *passed && !worse;
        json_array_append_new(
            list, json_pack("{s:s, s:f, s:o, s:o, s:s}", "what", figures[i].name, "before", json_number_value(before),
                            "now", isfinite(now) ? json_real(now) : json_null(), "loss",
                            isfinite(loss) ? json_real(loss) : json_null(), "verdict", worse ? "worse" : "held"));
    }
    json_t *verdict = json_pack("{s:s, s:f, s:b, s:o}", "baseline", gate->path, "max_loss", gate->max_loss, "passed",
                                *passed, "figures", list);
    return json_object_set_new(result, "gate", verdict) == 0 ? SPRY_OK : spry_fail_memory(error, "the verdict", 0);
}

void spry_eval_gate_print(const json_t *result)
{
    const json_t *gate = json_object_get(result, "gate"), *list = json_object_get(gate, "figures");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *f = json_array_get(list, i);
        spry_out_format("%-14s %.6g before, %.6g now: %s\n", json_string_value(json_object_get(f, "what")),
                        json_number_value(json_object_get(f, "before")),
                        json_is_number(json_object_get(f, "now")) ? json_number_value(json_object_get(f, "now")) : NAN,
                        json_string_value(json_object_get(f, "verdict")));
    }
    spry_out_quote("%s, at most %g %% worse: %s\n", json_string_value(json_object_get(gate, "baseline")),
                   100 * json_number_value(json_object_get(gate, "max_loss")),
                   json_is_true(json_object_get(gate, "passed")) ? "passed" : "failed");
}
