/* Greedy answers to a few prompts; the tokens with and without drafts are compared, since they must be equal. */
#include "bench/bench_draft.h"

#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "cli/interrupt.h"
#include "cli/terminal.h"
#include "run/drafter.h"

enum { PROMPTS_MAX = 8, PROMPT_TOKENS = 1024, ANSWER_TOKENS = 128 };

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

typedef struct bench {
    spry_bench_settings *settings;
    spry_engine *engine;
    spry_session *session;
    spry_speculation who;
    spry_progress_line line;
    size_t done, whole;
    spry_error *error;
} bench;

/* One answer; its tokens go to `tokens`. */
static spry_status answer(bench *b, const char *prompt, bool drafted, spry_result *result, int32_t *tokens,
                          size_t *count)
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
    request.max_tokens = ANSWER_TOKENS;
    request.ignore_end = true;
    request.sampling.temperature = 0;
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

/* All prompts of a task, with and without drafts, alternating. */
static spry_status measure_once(bench *b, const task *t, double *plain, double *drafted, spry_bench_draft_task *out)
{
    double ms[2] = {0, 0};
    size_t tokens = 0;
    spry_status status = SPRY_OK;
    out->drafts = (spry_draft_report){0};
    for (size_t i = 0; status == SPRY_OK && i < PROMPTS_MAX && t->prompts[i]; i++) {
        int32_t got[2][ANSWER_TOKENS + 1];
        size_t count[2];
        for (int way = 0; status == SPRY_OK && way < 2; way++) {
            spry_result result;
            status = answer(b, t->prompts[i], way == 1, &result, got[way], &count[way]);
            ms[way] += status == SPRY_OK ? result.decode_ms : 0;
            if (status == SPRY_OK && way == 1)
                add_drafts(&out->drafts, &result.drafts);
        }
        if (status == SPRY_OK && (count[0] != count[1] || memcmp(got[0], got[1], count[0] * sizeof **got)))
            return spry_fail(b->error, SPRY_ERR_FORMAT, "drafting changed an answer: this must never happen");
        tokens += count[0];
    }
    *plain = ms[0] > 0 ? (double)tokens * 1000 / ms[0] : 0;
    *drafted = ms[1] > 0 ? (double)tokens * 1000 / ms[1] : 0;
    out->tokens = tokens;
    out->drafts.tokens_per_step = out->drafts.steps ? (double)tokens / (double)out->drafts.steps : 1;
    return status;
}

static spry_status measure_task(bench *b, const task *t, spry_bench_draft_task *out)
{
    double plain[SPRY_BENCH_REPEAT_MAX], drafted[SPRY_BENCH_REPEAT_MAX];
    out->what = t->what;
    spry_status status = measure_once(b, t, &plain[0], &drafted[0], out); /* warms up */
    for (uint32_t i = 0; status == SPRY_OK && i < b->settings->repeat; i++)
        status = measure_once(b, t, &plain[i], &drafted[i], out);
    if (status != SPRY_OK)
        return status;
    out->plain = spry_bench_stat_of(plain, b->settings->repeat);
    out->drafted = spry_bench_stat_of(drafted, b->settings->repeat);
    out->drafts.speedup = out->plain.median > 0 ? out->drafted.median / out->plain.median : 1;
    return SPRY_OK;
}

spry_status spry_bench_draft_run(spry_bench_drafts *out, spry_bench_settings *settings, const spry_model_source *source,
                                 const char *who, spry_error *error)
{
    bench b = {.settings = settings, .whole = (settings->repeat + 1) * 16, .error = error};
    spry_drafter_model drafter = {0};
    spry_progress_begin(&b.line, "measuring drafts");
    spry_status status = spry_model_source_engine(&b.engine, source, &settings->engine.options, error);
    if (status == SPRY_OK)
        status = spry_drafter_open(&drafter, b.engine, source, who, &settings->model, &settings->engine, error);
    if (status == SPRY_OK)
        status = spry_session_create(&b.session, b.engine, error);
    b.who = drafter.how;
    for (size_t i = 0; status == SPRY_OK && i < SPRY_BENCH_DRAFT_TASKS; i++)
        status = measure_task(&b, &tasks[i], &out->tasks[i]);
    spry_progress_end(&b.line);
    spry_session_destroy(b.session);
    spry_engine_close(b.engine);
    spry_drafter_close(&drafter);
    return status;
}

/* ---- telling ----------------------------------------------------------------------------------------------------- */

void spry_bench_draft_print_table(const spry_bench_drafts *d)
{
    const char *bold = spry_style_begin(stdout, SPRY_STYLE_BOLD), *plain = spry_style_end(stdout);
    spry_out_format("%s%s%s, drafts by %s\n"
                    "\n",
                    bold, d->model, plain, d->who);
    spry_out_format("%s%-10s %7s %14s %14s %7s %9s %9s %8s%s\n", bold, "Decode", "tokens", "without", "with", "ratio",
                    "guessed", "right", "a step", plain);
    for (size_t i = 0; i < SPRY_BENCH_DRAFT_TASKS; i++) {
        const spry_bench_draft_task *t = &d->tasks[i];
        spry_out_format("%-10s %7zu %8.1f tok/s %8.1f tok/s %6.2fx %9zu %9zu %8.2f\n", t->what, t->tokens,
                        t->plain.median, t->drafted.median, t->drafts.speedup, t->drafts.drafted, t->drafts.accepted,
                        t->drafts.tokens_per_step);
    }
}

spry_status spry_bench_draft_print_json(const spry_bench_drafts *d, spry_error *error)
{
    json_t *list = json_array();
    for (size_t i = 0; i < SPRY_BENCH_DRAFT_TASKS; i++) {
        const spry_bench_draft_task *t = &d->tasks[i];
        json_array_append_new(list, json_pack("{s:s, s:I, s:f, s:f, s:f, s:I, s:I, s:I, s:f, s:i, s:i}", "task",
                                              t->what, "tokens", (json_int_t)t->tokens, "plain_tps", t->plain.median,
                                              "drafted_tps", t->drafted.median, "ratio", t->drafts.speedup, "steps",
                                              (json_int_t)t->drafts.steps, "drafted", (json_int_t)t->drafts.drafted,
                                              "accepted", (json_int_t)t->drafts.accepted, "tokens_per_step",
                                              t->drafts.tokens_per_step, "refused_p50", (int)t->drafts.refused_p50,
                                              "refused_p95", (int)t->drafts.refused_p95));
    }
    json_t *out = json_pack("{s:s, s:s, s:o}", "model", d->model, "draft", d->who, "tasks", list);
    char *text = out ? json_dumps(out, JSON_REAL_PRECISION(6)) : NULL;
    json_decref(out);
    if (!text)
        return spry_fail_memory(error, "the report as JSON", sizeof *d);
    spry_out_format("%s\n", text);
    free(text);
    return SPRY_OK;
}
