/* `spry bench --draft WHO`: the same greedy answers to a few prompts with and without drafts, alternating. The tokens
 * are compared, since they must be equal. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/bench.h"
#include "run/answer.h"

enum {
    PROMPTS_MAX = 8,
    PROMPT_TOKENS = 1024,
    ANSWERS_MAX = PROMPTS_MAX * SPRY_BENCH_REPEAT_MAX * 2,
    TASKS = 2,
    DRAFTS_LEAST = 64
};

#define PASSAGE                                                                                                        \
    "The miller had three sons, a mill, a donkey and a cat. The oldest took the mill, the second took the donkey, "    \
    "and the youngest got nothing but the cat. He sat down by the river and said: what shall I do with a cat? But "    \
    "the cat looked at him with green eyes and asked for a pair of boots and a bag with a string. "

static const char *const tales[PROMPTS_MAX] = {"Once upon a time there was a small boat that",
                                               "Tell me a story about a girl and her dog.",
                                               "The fox looked at the moon and",
                                               "Write a short tale about an old lighthouse.",
                                               "In a village by the sea lived a boy who",
                                               "A bear and a bird were friends."};
static const char *const quoting[PROMPTS_MAX] = {PASSAGE PASSAGE "The miller had three sons,",
                                                 "Read: " PASSAGE "Again: " PASSAGE "And again: The miller had"};

/* Tales, and a text with repetitions; for a curve also the same tales at temperatures that make them harder to guess.
 */
static const struct task {
    const char *what;
    const char *const *prompts; /* [PROMPTS_MAX], ends with NULL */
    float temperature;
} tasks[] = {{"tales", tales, 0},         {"quoting", quoting, 0},     {"tales, 0.4", tales, 0.4f},
             {"tales, 0.7", tales, 0.7f}, {"tales, 1.0", tales, 1.0f}, {"tales, 1.3", tales, 1.3f},
             {"tales, 1.7", tales, 1.7f}, {"tales, 2.2", tales, 2.2f}};

/* What every answer gives. */
typedef struct samples {
    double refused[ANSWERS_MAX], prefill_ms[ANSWERS_MAX], ttft_ms[2][ANSWERS_MAX];
    size_t n_refused, n_prefills, count;
    double ms[2];
    size_t tokens, drafted, accepted;
    double step_cost, chance; /* figures of the last answer with drafts */
} samples;

typedef struct drafting {
    const struct task *task;
    spry_speculation who;
    bool warm;                /* the warm-up is over */
    samples one, all;         /* samples of the current task; samples of all tasks except the curve's */
    spry_draft_report drafts; /* drafts of the last repeat, over all answers */
    size_t tokens;
    int32_t got[2][SPRY_BENCH_DRAFT_TOKENS_MAX + 1];
} drafting;

/* One answer; its tokens go to `tokens`. */
static spry_status answer(spry_bench *b, const drafting *d, const char *prompt, bool drafted, spry_result *result,
                          int32_t *tokens, size_t *count)
{
    int32_t ids[PROMPT_TOKENS];
    size_t n_ids, held;
    spry_status status = spry_bench_go_on(b);
    if (!status)
        status = spry_engine_tokenize(b->engine, ids, PROMPT_TOKENS, &n_ids, prompt, strlen(prompt), false, b->error);
    if (status)
        return status;
    spry_request request = spry_bench_request(ids, n_ids, b->flags->tokens);
    request.sampling.temperature = d->task->temperature;
    request.sampling.seed = 1;
    request.speculation = drafted ? d->who : SPRY_DRAFT_NONE;
    request.draft_most = b->flags->draft_most;
    request.draft_precise = strcmp(b->flags->draft_mode, "precise") == 0;
    status = spry_session_generate(b->session, result, &request, b->error);
    const int32_t *all = spry_session_tokens(b->session, &held);
    *count = status ? 0 : held - n_ids;
    memcpy(tokens, all + n_ids, *count * sizeof *tokens);
    return status;
}

static void add_drafts(spry_draft_report *sum, const spry_draft_report *d)
{
    sum->steps += d->steps;
    sum->drafted += d->drafted;
    sum->accepted += d->accepted;
    sum->refused_p50 = d->refused_p50 > sum->refused_p50 ? d->refused_p50 : sum->refused_p50;
    sum->refused_p95 = d->refused_p95 > sum->refused_p95 ? d->refused_p95 : sum->refused_p95;
}

/* Adds an answer without drafts, and the same with them. */
static void add_sample(samples *s, const spry_result results[2])
{
    const spry_draft_report *d = &results[1].drafts;
    if (s->count == ANSWERS_MAX)
        return;
    for (int way = 0; way < 2; way++) {
        s->ttft_ms[way][s->count] = results[way].first_token_ms;
        s->ms[way] += results[way].decode_ms;
    }
    s->count++;
    s->tokens += results[0].generated_tokens;
    s->drafted += d->drafted;
    s->accepted += d->accepted;
    s->step_cost = d->step_cost;
    s->chance = d->acceptance;
    if (d->drafted)
        s->refused[s->n_refused++] = (double)(d->drafted - d->accepted) / (double)d->drafted;
    if (d->prefill_ms > 0)
        s->prefill_ms[s->n_prefills++] = d->prefill_ms;
}

/* All prompts of a task, with and without drafts. The values are tokens/s without and with. */
static spry_status once(spry_bench *b, void *context, double *tps)
{
    drafting *d = context;
    double ms[2] = {0, 0};
    spry_status status = SPRY_OK;
    d->drafts = (spry_draft_report){0};
    d->tokens = 0;
    for (size_t i = 0; !status && i < PROMPTS_MAX && d->task->prompts[i]; i++) {
        size_t count[2] = {0, 0};
        spry_result results[2];
        for (int way = 0; !status && way < 2; way++) {
            status = answer(b, d, d->task->prompts[i], way == 1, &results[way], d->got[way], &count[way]);
            ms[way] += status ? 0 : results[way].decode_ms;
        }
        if (status)
            return status;
        if (count[0] != count[1] || memcmp(d->got[0], d->got[1], count[0] * sizeof d->got[0][0]) != 0)
            return spry_fail(b->error, SPRY_ERR_FORMAT, "drafting changed an answer: this must never happen");
        add_drafts(&d->drafts, &results[1].drafts);
        if (d->warm)
            add_sample(&d->one, results);
        if (d->warm && d->task->temperature <= 0)
            add_sample(&d->all, results);
        d->tokens += count[0];
    }
    d->warm = true;
    for (int way = 0; way < 2; way++)
        tps[way] = spry_bench_ratio((double)d->tokens * 1000, ms[way]);
    return status;
}

/* Gates of speculation: shares of an answer's drafts with percentiles over answers; the time in which the draft model
 * reads a prompt, as a median over answers. "ttft": the time to the first
 * token, relative to that without drafts. Null: too little was drafted to judge, and "why" says why. */
static json_t *figures_json(samples *s)
{
    double plain = spry_bench_stat_of(s->ttft_ms[0], s->count).median;
    double drafted = spry_bench_stat_of(s->ttft_ms[1], s->count).median;
    json_t *out = json_pack("{s:n, s:n, s:n, s:n, s:n, s:f}", "acceptance", "refused_p50", "refused_p95", "prefill_ms",
                            "speedup", "ttft", spry_bench_ratio(drafted, plain));
    if (s->drafted >= DRAFTS_LEAST) {
        spry_bench_stat_of(s->refused, s->n_refused);
        json_object_set_new(out, "acceptance", json_real((double)s->accepted / (double)s->drafted));
        json_object_set_new(out, "refused_p50", json_real(spry_bench_percentile(s->refused, s->n_refused, 50)));
        json_object_set_new(out, "refused_p95", json_real(spry_bench_percentile(s->refused, s->n_refused, 95)));
        json_object_set_new(out, "speedup", json_real(spry_bench_ratio(s->ms[0], s->ms[1])));
    } else {
        json_object_set_new(
            out, "why",
            json_sprintf("%zu tokens were drafted, a judgement needs %d: a step with one draft takes %.2f "
                         "times as long, and a draft is accepted in %.0f %% of cases",
                         s->drafted, DRAFTS_LEAST, s->step_cost, 100 * s->chance));
    }
    if (s->n_prefills)
        json_object_set_new(out, "prefill_ms", json_real(spry_bench_stat_of(s->prefill_ms, s->n_prefills).median));
    return out;
}

static spry_status measure_task(spry_bench *b, drafting *d, json_t *list)
{
    spry_bench_series series;
    samples *s = &d->one;
    *s = (samples){.count = 0};
    d->warm = false;
    spry_status status = spry_bench_repeat(b, &series, true, once, d);
    if (status)
        return status;
    double plain = spry_bench_stat_of(series.values[0], series.count).median;
    double drafted = spry_bench_stat_of(series.values[1], series.count).median;
    json_t *task = json_pack(
        "{s:s, s:f, s:I, s:f, s:f, s:f, s:I, s:I, s:I, s:f, s:i, s:i, s:f, s:f, s:o}", "task", d->task->what,
        "temperature", (double)d->task->temperature, "tokens", (json_int_t)d->tokens, "plain_tps", plain, "drafted_tps",
        drafted, "ratio", plain > 0 ? drafted / plain : 1, "steps", (json_int_t)d->drafts.steps, "drafted",
        (json_int_t)d->drafts.drafted, "accepted", (json_int_t)d->drafts.accepted, "tokens_per_step",
        d->drafts.steps ? (double)d->tokens / (double)d->drafts.steps : 1, "refused_p50", (int)d->drafts.refused_p50,
        "refused_p95", (int)d->drafts.refused_p95, "plain_ttft_ms", spry_bench_stat_of(s->ttft_ms[0], s->count).median,
        "drafted_ttft_ms", spry_bench_stat_of(s->ttft_ms[1], s->count).median, "figures", figures_json(s));
    b->lacks_memory = json_array_append_new(list, task) != 0 || b->lacks_memory;
    return SPRY_OK;
}

static spry_status measure(spry_bench *b)
{
    drafting *d = calloc(1, sizeof *d);
    spry_drafter_model drafter = {0};
    size_t n_tasks = b->flags->curve ? SPRY_COUNT(tasks) : TASKS;
    json_t *list = json_array();
    snprintf(b->doing, sizeof b->doing, "measuring drafts");
    b->whole = n_tasks;
    spry_bench_put(b, "draft", spry_bench_text_json(b->flags->draft));
    spry_bench_put(b, "tasks", list);
    b->flags->engine.options.draft_head = spry_draft_head_of(b->flags->draft);
    spry_status status = d ? spry_bench_check_baseline(b) : spry_fail_memory(b->error, "answers", sizeof *d);
    if (!status)
        status = spry_bench_open(b, NULL, false);
    if (!status)
        status = spry_drafter_open(&drafter, b->engine, b->source, b->flags->draft, &b->flags->model, &b->flags->engine,
                                   b->error);
    if (!status)
        status = spry_session_create(&b->session, b->engine, b->error);
    for (size_t i = 0; !status && i < n_tasks; i++) {
        d->who = drafter.how;
        d->task = &tasks[i];
        status = measure_task(b, d, list);
    }
    if (!status) {
        spry_bench_put(b, "drafts", figures_json(&d->all));
        spry_bench_put_figures(b, json_object_get(b->report, "drafts"), "");
    }
    spry_bench_close(b);
    spry_drafter_close(&drafter);
    free(d);
    return status;
}

static void print(const json_t *report)
{
    static const spry_bench_column speeds[] = {
        {"Decode", -10, "task", SPRY_BENCH_TEXT, NULL},
        {"tokens", 7, "tokens", SPRY_BENCH_COUNT, NULL},
        {"without", 14, "plain_tps", SPRY_BENCH_TPS, NULL},
        {"with", 14, "drafted_tps", SPRY_BENCH_TPS, NULL},
        {"ratio", 7, "ratio", SPRY_BENCH_TIMES, NULL},
        {"guessed", 9, "drafted", SPRY_BENCH_COUNT, NULL},
        {"right", 9, "accepted", SPRY_BENCH_COUNT, NULL},
        {"a step", 8, "tokens_per_step", SPRY_BENCH_HUNDREDTHS, NULL},
    };
    static const spry_bench_column gates[] = {
        {"Drafts", -10, "task", SPRY_BENCH_TEXT, NULL},
        {"accepted", 9, "figures.acceptance", SPRY_BENCH_PERCENT, NULL},
        {"refused p50", 13, "figures.refused_p50", SPRY_BENCH_PERCENT, NULL},
        {"refused p95", 13, "figures.refused_p95", SPRY_BENCH_PERCENT, NULL},
        {"own prefill", 13, "figures.prefill_ms", SPRY_BENCH_TIME, NULL},
        {"first token", 12, "plain_ttft_ms", SPRY_BENCH_TIME, NULL},
        {"with drafts", 12, "drafted_ttft_ms", SPRY_BENCH_TIME, NULL},
    };
    static const spry_bench_column curve[] = {{"Curve", -12, "task", SPRY_BENCH_TEXT, NULL},
                                              {"accepted", 10, "figures.acceptance", SPRY_BENCH_PERCENT, NULL},
                                              {"ratio", 8, "ratio", SPRY_BENCH_TIMES, NULL},
                                              {"", 0, "ratio", SPRY_BENCH_BAR, NULL}};
    json_t *all = json_object_get(report, "tasks"), *main_tasks = json_array(), *points = json_array();
    for (size_t i = 0; i < json_array_size(all); i++) {
        if (i < TASKS)
            json_array_append(main_tasks, json_array_get(all, i));
        if (i == 0 || i >= TASKS)
            json_array_append(points, json_array_get(all, i));
    }
    spry_bench_print_bold(spry_bench_text(report, "model"));
    spry_out_quote(", drafts by %s\n", spry_bench_text(report, "draft"));
    spry_bench_table(speeds, SPRY_COUNT(speeds), main_tasks, NULL, "");
    spry_bench_table(gates, SPRY_COUNT(gates), main_tasks, NULL, "");
    if (spry_bench_text(report, "drafts.why")[0])
        spry_out_quote("Too few drafts: %s.\n", spry_bench_text(report, "drafts.why"));
    spry_out_format("Refused is the share of an answer's drafts; percentiles are over answers. Drafting does not\n"
                    "shorten the first token's time: a prompt is read as without drafts.\n");
    if (json_array_size(points) > 1) /* the highest acceptance first */
        spry_bench_table(curve, SPRY_COUNT(curve), points, NULL, "");
    json_decref(main_tasks);
    json_decref(points);
}

const spry_bench_kind spry_bench_draft_kind = {"--draft", SPRY_DRAFT_FORMAT, measure, print};
