/* Lists of numbers, and the points they form. */
#include <stdio.h>

#include "base/number.h"
#include "bench/bench.h"
#include "platform/memory.h"

spry_status spry_bench_list_parse(spry_bench_list *list, const char *text, uint32_t least, uint32_t most,
                                  const char *name, spry_error *error)
{
    list->count = 0;
    if (!text[0] || strcmp(text, "none") == 0)
        return SPRY_OK;
    for (;;) {
        spry_view part = {text, strcspn(text, ",")};
        uint64_t value;
        if (!spry_number_u64(&value, part) || value < least || value > most)
            return spry_fail(error, SPRY_ERR_INPUT,
                             "--%s: '%.*s' is not a number from %u to %u (separate several with commas, or say none)",
                             name, SPRY_VIEW_ARG(part), least, most);
        if (list->count == SPRY_BENCH_LIST_MAX)
            return spry_fail(error, SPRY_ERR_INPUT, "--%s has more than %d numbers", name, SPRY_BENCH_LIST_MAX);
        list->values[list->count++] = (uint32_t)value;
        text += part.size;
        if (!*text)
            return SPRY_OK;
        text++;
    }
}

bool spry_bench_list_add(spry_bench_list *list, uint32_t value)
{
    for (size_t i = 0; list && i < list->count; i++)
        if (list->values[i] == value)
            return true;
    if (list && list->count == SPRY_BENCH_LIST_MAX)
        return false;
    if (list)
        list->values[list->count++] = value;
    return true;
}

typedef struct planner {
    const spry_bench_settings *settings;
    uint32_t generated; /* tokens of a decode */
    uint32_t limit;     /* tokens a sequence may have */
    size_t token_bytes, memory;
} planner;

static uint32_t point_tokens(const planner *p, const spry_bench_point *point)
{
    return point->decode ? point->tokens + p->generated : point->tokens;
}

static size_t point_pages(const planner *p, const spry_bench_point *point)
{
    return ((size_t)point_tokens(p, point) + SPRY_PAGE_TOKENS - 1) / SPRY_PAGE_TOKENS * point->batch;
}

static void judge(const planner *p, spry_bench_point *point)
{
    size_t bytes = point_pages(p, point) * SPRY_PAGE_TOKENS * p->token_bytes;
    uint32_t chunk = p->settings->engine.options.chunk, rows = chunk < p->limit ? chunk : p->limit;
    if (point_tokens(p, point) > p->limit)
        snprintf(point->skipped, sizeof point->skipped, "%u tokens pass the limit of %u", point_tokens(p, point),
                 p->limit);
    else if (point->batch > rows)
        snprintf(point->skipped, sizeof point->skipped, "--chunk and --context allow %u rows a step", rows);
    else if (p->memory && bytes > p->memory / 2)
        snprintf(point->skipped, sizeof point->skipped, "its KV cache takes %.1f of %.1f GB of memory",
                 (double)bytes / 1e9, (double)p->memory / 1e9);
}

static void add(spry_bench_report *report, const planner *p, spry_bench_point point)
{
    judge(p, &point);
    report->points[report->n_points++] = point;
}

/* Adds the needs of a point that can be run. */
static void need(spry_bench_needs *needs, const planner *p, const spry_bench_point *point)
{
    if (point->skipped[0])
        return;
    uint32_t tokens = point_tokens(p, point);
    size_t pages = point_pages(p, point);
    needs->context = tokens > needs->context ? tokens : needs->context;
    needs->batch = point->batch > needs->batch ? point->batch : needs->batch;
    needs->pages = pages > needs->pages ? pages : needs->pages;
    needs->rows = point->batch > needs->rows ? point->batch : needs->rows;
    needs->rows = point->tokens > needs->rows ? point->tokens : needs->rows;
}

/* The policy's batch sizes at the first depth. */
static void plan_policy(spry_bench_policy *policy, spry_bench_needs *needs, const planner *all)
{
    const spry_bench_settings *s = all->settings;
    planner p = *all;
    p.generated = SPRY_BENCH_POLICY_WARM + SPRY_POLICY_STEPS;
    policy->depth = s->depth.count ? s->depth.values[0] : 0;
    policy->count = 0;
    for (size_t i = 0; i < s->policy.count && i < SPRY_BENCH_POLICY_MAX; i++) {
        spry_bench_point point = {.decode = true, .tokens = policy->depth, .batch = s->policy.values[i]};
        judge(&p, &point);
        need(needs, &p, &point);
        spry_bench_batch *batch = &policy->batches[policy->count++];
        *batch = (spry_bench_batch){.batch = point.batch};
        memcpy(batch->skipped, point.skipped, sizeof batch->skipped);
    }
}

static void settle(spry_bench_needs *needs, const planner *p)
{
    uint32_t asked = p->settings->engine.options.context;
    uint32_t request = SPRY_BENCH_REQUEST < p->limit ? SPRY_BENCH_REQUEST : p->limit;
    needs->context = needs->context < request ? request : needs->context;
    if (asked)
        needs->context = asked;
    else if (needs->context < needs->batch) /* a step never has more rows than the context has tokens */
        needs->context = needs->batch;
    size_t of_one = ((size_t)needs->context + SPRY_PAGE_TOKENS - 1) / SPRY_PAGE_TOKENS;
    needs->sessions = (uint32_t)((needs->pages + of_one - 1) / of_one);
    /* An engine has rows of logits by its sessions: 16, and 4 for each but the first. */
    uint32_t rows = needs->batch > 16 ? (needs->batch - 16 + 3) / 4 + 1 : 1;
    needs->sessions = needs->sessions < rows ? rows : needs->sessions;
}

void spry_bench_plan(spry_bench_report *report, spry_bench_needs *needs, const spry_bench_settings *settings,
                     const spry_checkpoint *checkpoint)
{
    const spry_engine_options *options = &settings->engine.options;
    planner p = {.settings = settings,
                 .generated = settings->tokens,
                 .limit = (uint32_t)checkpoint->context,
                 .token_bytes = checkpoint->kv_token_bytes, /* 0: the engine says what is wrong */
                 .memory = spry_memory_total()};
    if (options->context)
        p.limit = options->context;
    report->n_points = 0;
    for (size_t i = 0; i < settings->prefill.count; i++)
        add(report, &p, (spry_bench_point){.tokens = settings->prefill.values[i], .batch = 1});
    for (size_t d = 0; d < settings->depth.count; d++)
        for (size_t b = 0; b < settings->batch.count; b++)
            add(report, &p,
                (spry_bench_point){
                    .decode = true, .tokens = settings->depth.values[d], .batch = settings->batch.values[b]});
    *needs = (spry_bench_needs){.context = 1, .batch = 1, .pages = 1};
    for (size_t i = 0; i < report->n_points; i++)
        need(needs, &p, &report->points[i]);
    plan_policy(&report->policy, needs, &p);
    settle(needs, &p);
}
