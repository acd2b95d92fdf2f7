/* Greedy answers to a few prompts; the tokens with and without drafts are compared, since they must be equal. */
#include "bench/bench_draft.h"

#include <stdlib.h>
#include <string.h>

#include "cli/interrupt.h"
#include "cli/terminal.h"
#include "run/drafter.h"

enum { PROMPTS_MAX = 8, PROMPT_TOKENS = 1024, ANSWERS_MAX = PROMPTS_MAX * SPRY_BENCH_REPEAT_MAX * 2 };

typedef struct task {
    const char *what;
    const char *prompts[PROMPTS_MAX]; /* ends with NULL */
} task;

#define PASSAGE                                                                                                        \
    "The miller had three sons, a mill, a donkey and a cat. The oldest took the mill, the second took the donkey, "    \
    "and the youngest got nothing but the cat. He sat down by the river and said: what shall I do with a cat? But "    \
    "the cat looked at him with green eyes and asked for a pair of boots and a bag with a string. "

static const task tasks[SPRY_BENCH_DRAFT_TASKS] = {
    {"tales",
     {"Once upon a time there was a small boat that", "Tell me a story about a girl and her dog.",
      "The fox looked at the moon and", "Write a short tale about an old lighthouse.",
      "In a village by the sea lived a boy who", "A bear and a bird were friends."}},
    {"quoting",
     {PASSAGE PASSAGE "The miller had three sons,", "Read: " PASSAGE "Again: " PASSAGE "And again: The miller had"}},
};

/* Temperatures of a curve: the same tales, less and less likely to be guessed. */
static const struct {
    const char *what;
    float temperature;
} curve_points[SPRY_BENCH_CURVE] = {{"tales, 0.4", 0.4f}, {"tales, 0.7", 0.7f}, {"tales, 1.0", 1.0f},
                                    {"tales, 1.3", 1.3f}, {"tales, 1.7", 1.7f}, {"tales, 2.2", 2.2f}};

/* What every answer gives, for percentiles. */
typedef struct samples {
    double refused[ANSWERS_MAX], prefill_ms[ANSWERS_MAX], ttft_ms[2][ANSWERS_MAX];
    size_t n_refused, n_prefills, count;
    double ms[2];
    size_t tokens, drafted, accepted;
} samples;

typedef struct bench {
    spry_bench_settings *settings;
    spry_engine *engine;
    spry_session *session;
    spry_speculation who;
    samples one, all; /* of the current task; of all but the curve's */
    int32_t got[2][SPRY_BENCH_DRAFT_TOKENS_MAX + 1];
    spry_progress_line line;
    size_t done, whole;
    spry_error *error;
} bench;

/* One answer; its tokens go to `tokens`. */
static spry_status answer(bench *b, const char *prompt, float temperature, bool drafted, spry_result *result,
                          int32_t *tokens, size_t *count)
{
    int32_t ids[PROMPT_TOKENS];
    size_t n_ids, held;
    spry_request request;
    spry_progress_update(&b->line, b->done++, b->whole);
    if (spry_interrupt_seen())
        return spry_fail(b->error, SPRY_ERR_CANCELLED, "interrupted; nothing is reported");
    spry_status status =
        spry_engine_tokenize(b->engine, ids, PROMPT_TOKENS, &n_ids, prompt, strlen(prompt), false, b->error);
    if (status != SPRY_OK)
        return status;
    spry_request_default(&request);
    request.prompt = ids;
    request.n_prompt = n_ids;
    request.max_tokens = b->settings->tokens;
    request.ignore_end = true;
    request.sampling.temperature = temperature;
    request.sampling.seed = 1;
    request.speculation = drafted ? b->who : SPRY_DRAFT_NONE;
    status = spry_session_generate(b->session, result, &request, b->error);
    const int32_t *all = spry_session_tokens(b->session, &held);
    *count = status == SPRY_OK ? held - n_ids : 0;
    memcpy(tokens, all + n_ids, *count * sizeof *tokens);
    return status;
}

static void add_drafts(spry_draft_report *sum, const spry_draft_report *d)
{
    sum->steps += d->steps;
    sum->drafted += d->drafted;
    sum->accepted += d->accepted;
    for (size_t i = 0; i < SPRY_DRAFT_MOST; i++) {
        sum->tried_at[i] += d->tried_at[i];
        sum->accepted_at[i] += d->accepted_at[i];
    }
    for (size_t i = 0; i <= SPRY_DRAFT_MOST; i++)
        sum->lengths[i] += d->lengths[i];
    sum->refused_p50 = d->refused_p50 > sum->refused_p50 ? d->refused_p50 : sum->refused_p50;
    sum->refused_p95 = d->refused_p95 > sum->refused_p95 ? d->refused_p95 : sum->refused_p95;
}

/* An answer without drafts, and the same with them. */
static void add_sample(samples *s, const spry_result results[2])
{
    const spry_draft_report *d = &results[1].drafts;
    if (s->count == ANSWERS_MAX)
        return;
    for (int way = 0; way < 2; way++) {
        s->ttft_ms[way][s->count] = results[way].prefill_ms + results[way].first_step_ms;
        s->ms[way] += results[way].decode_ms;
    }
    s->count++;
    s->tokens += results[0].generated_tokens;
    s->drafted += d->drafted;
    s->accepted += d->accepted;
    if (d->drafted)
        s->refused[s->n_refused++] = (double)(d->drafted - d->accepted) / (double)d->drafted;
    if (d->prefill_ms > 0)
        s->prefill_ms[s->n_prefills++] = d->prefill_ms;
}

/* Sorts. */
static spry_bench_draft_figures figures_of(samples *s)
{
    spry_bench_draft_figures f = {.speedup = spry_bench_ratio(s->ms[0], s->ms[1]),
                                  .acceptance = spry_bench_ratio((double)s->accepted, (double)s->drafted)};
    if (s->n_refused) {
        spry_bench_steps p = spry_bench_steps_of(s->refused, s->n_refused);
        f.refused_p50 = p.p50_ms;
        f.refused_p95 = p.p95_ms;
    }
    if (s->n_prefills)
        f.prefill_ms = spry_bench_stat_of(s->prefill_ms, s->n_prefills).median;
    return f;
}

/* All prompts of a task, with and without drafts, alternating. `counts`: it is not the warm-up. */
static spry_status measure_once(bench *b, const task *t, double *plain, double *drafted, spry_bench_draft_task *out,
                                bool counts)
{
    double ms[2] = {0, 0};
    size_t tokens = 0;
    spry_status status = SPRY_OK;
    out->drafts = (spry_draft_report){0};
    for (size_t i = 0; status == SPRY_OK && i < PROMPTS_MAX && t->prompts[i]; i++) {
        size_t count[2];
        spry_result results[2];
        for (int way = 0; status == SPRY_OK && way < 2; way++) {
            status = answer(b, t->prompts[i], out->temperature, way == 1, &results[way], b->got[way], &count[way]);
            ms[way] += status == SPRY_OK ? results[way].decode_ms : 0;
        }
        if (status == SPRY_OK && (count[0] != count[1] || memcmp(b->got[0], b->got[1], count[0] * sizeof b->got[0][0])))
            return spry_fail(b->error, SPRY_ERR_FORMAT, "drafting changed an answer: this must never happen");
        if (status == SPRY_OK)
            add_drafts(&out->drafts, &results[1].drafts);
        if (status == SPRY_OK && counts) {
            add_sample(&b->one, results);
            if (out->temperature <= 0)
                add_sample(&b->all, results);
        }
        tokens += count[0];
    }
    *plain = ms[0] > 0 ? (double)tokens * 1000 / ms[0] : 0;
    *drafted = ms[1] > 0 ? (double)tokens * 1000 / ms[1] : 0;
    out->tokens = tokens;
    out->drafts.tokens_per_step = out->drafts.steps ? (double)tokens / (double)out->drafts.steps : 1;
    return status;
}

static spry_status measure_task(bench *b, const task *t, const char *what, float temperature,
                                spry_bench_draft_task *out)
{
    double plain[SPRY_BENCH_REPEAT_MAX], drafted[SPRY_BENCH_REPEAT_MAX];
    *out = (spry_bench_draft_task){.what = what, .temperature = temperature};
    b->one = (samples){.count = 0};
    spry_status status = measure_once(b, t, &plain[0], &drafted[0], out, false); /* warms up */
    for (uint32_t i = 0; status == SPRY_OK && i < b->settings->repeat; i++)
        status = measure_once(b, t, &plain[i], &drafted[i], out, true);
    if (status != SPRY_OK)
        return status;
    out->plain = spry_bench_stat_of(plain, b->settings->repeat);
    out->drafted = spry_bench_stat_of(drafted, b->settings->repeat);
    out->drafts.speedup = out->plain.median > 0 ? out->drafted.median / out->plain.median : 1;
    out->figures = figures_of(&b->one);
    out->plain_ttft_ms = spry_bench_stat_of(b->one.ttft_ms[0], b->one.count).median;
    out->drafted_ttft_ms = spry_bench_stat_of(b->one.ttft_ms[1], b->one.count).median;
    return SPRY_OK;
}

static spry_status measure_all(spry_bench_drafts *out, bench *b, bool curve)
{
    spry_status status = SPRY_OK;
    for (size_t i = 0; status == SPRY_OK && i < SPRY_BENCH_DRAFT_TASKS; i++)
        status = measure_task(b, &tasks[i], tasks[i].what, 0, &out->tasks[out->n_tasks++]);
    for (size_t i = 0; curve && status == SPRY_OK && i < SPRY_BENCH_CURVE; i++)
        status =
            measure_task(b, &tasks[0], curve_points[i].what, curve_points[i].temperature, &out->tasks[out->n_tasks++]);
    if (status == SPRY_OK)
        out->all = figures_of(&b->all);
    return status;
}

spry_status spry_bench_draft_run(spry_bench_drafts *out, spry_bench_settings *settings, const spry_model_source *source,
                                 const char *who, bool curve, spry_error *error)
{
    static bench b; /* too large for some stacks */
    b = (bench){.settings = settings, .error = error};
    b.whole = (settings->repeat + 1) * (16 + (curve ? 12 * (size_t)SPRY_BENCH_CURVE : 0));
    spry_drafter_model drafter = {0};
    spry_progress_begin(&b.line, "measuring drafts");
    out->n_tasks = 0;
    spry_status status = spry_bench_machine_name(&out->machine, &settings->engine.options, error);
    if (status == SPRY_OK)
        status = spry_model_source_engine(&b.engine, source, &settings->engine.options, error);
    if (status == SPRY_OK)
        status = spry_drafter_open(&drafter, b.engine, source, who, &settings->model, &settings->engine, error);
    if (status == SPRY_OK)
        status = spry_session_create(&b.session, b.engine, error);
    b.who = drafter.how;
    if (status == SPRY_OK)
        status = measure_all(out, &b, curve);
    spry_progress_end(&b.line);
    spry_session_destroy(b.session);
    spry_engine_close(b.engine);
    spry_drafter_close(&drafter);
    return status;
}
