/* `spry bench`: points, the batch sizes of the policies, loading and memory.
 *
 * A point is one measurement: a prefill of some length, or a decode at some depth with some number of sequences. Points
 * that cannot be run stay in the report with the reason. Each is run once without counting, to map pages and warm
 * caches; then as often as requested, timed, with the energy of all repeats together; then twice with per-op timing, of
 * which the faster is reported, because disturbances only add to the times of ops. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/bench.h"
#include "cli/energy_figures.h"
#include "platform/clock.h"
#include "platform/gpu.h"
#include "platform/memory.h"

enum {
    REQUEST = 1040,  /* tokens of a session for a request of about a thousand */
    POLICY_WARM = 8, /* warm-up steps of a batch size before the steps that count */
    WATCHED = 2,
    SUMS_MAX = SPRY_OP_PLACES * SPRY_OP_COUNT * SPRY_TYPES_ROOM
};

typedef struct point {
    bool decode;
    uint32_t tokens;  /* tokens of the prefill, or the depth of a decode */
    uint32_t batch;   /* sequences decoded together; 1 for a prefill */
    char skipped[96]; /* why it is not run; empty: it is */
    json_t *json;     /* the result; owned */
} point;

typedef struct points {
    spry_bench *b;
    point list[SPRY_BENCH_POINTS_MAX], policy[SPRY_BENCH_LIST_MAX];
    size_t count, n_policy;
    const point *now; /* the one that is measured */
    uint32_t limit;   /* tokens a sequence may have */
    size_t token_bytes, memory;
    /* What the points need: context and sessions of the engine, the largest batch, rows of the largest step without
     * chunks, and the maximum number of pages in use at once. */
    uint32_t context, sessions, batch, rows;
    size_t pages;
    spry_steps *steps;
    spry_energy *energy;
    double *step_ms; /* [tokens x repeat, at least the policy's steps]: of the current decode */
    size_t n_steps;
} points;

/* Whether --only leaves this part in. */
static bool wants(const spry_bench *b, const char *part)
{
    return !b->flags->only || strcmp(b->flags->only, part) == 0;
}

const char *const spry_bench_only[] = {"start", "prefill", "decode", "request", "first-call", NULL};

/* ---- which points there are, and what they need ------------------------------------------------------------------ */

static void plan_point(points *p, point *at, uint32_t generated)
{
    const uint32_t chunk = p->b->flags->engine.options.chunk, rows = chunk < p->limit ? chunk : p->limit;
    uint32_t tokens = at->decode ? at->tokens + generated : at->tokens;
    size_t pages = ((size_t)tokens + SPRY_PAGE_TOKENS - 1) / SPRY_PAGE_TOKENS * at->batch;
    size_t bytes = pages * SPRY_PAGE_TOKENS * p->token_bytes;
    if (tokens > p->limit)
        snprintf(at->skipped, sizeof at->skipped, "%u tokens pass the limit of %u", tokens, p->limit);
    else if (at->batch > rows)
        snprintf(at->skipped, sizeof at->skipped, "--chunk and --context allow %u rows a step", rows);
    else if (p->memory && bytes > p->memory / 2)
        snprintf(at->skipped, sizeof at->skipped, "its KV cache takes %.1f of %.1f GB of memory", (double)bytes / 1e9,
                 (double)p->memory / 1e9);
    if (at->skipped[0])
        return;
    uint32_t step_rows = at->batch > at->tokens ? at->batch : at->tokens;
    p->context = tokens > p->context ? tokens : p->context;
    p->batch = at->batch > p->batch ? at->batch : p->batch;
    p->pages = pages > p->pages ? pages : p->pages;
    p->rows = step_rows > p->rows ? step_rows : p->rows;
    p->b->whole++;
}

static void settle_needs(points *p, uint32_t asked)
{
    uint32_t request = REQUEST < p->limit ? REQUEST : p->limit;
    p->context = p->context < request ? request : p->context;
    if (asked)
        p->context = asked;
    else if (p->context < p->batch) /* a step never has more rows than the context has tokens */
        p->context = p->batch;
    size_t of_one = ((size_t)p->context + SPRY_PAGE_TOKENS - 1) / SPRY_PAGE_TOKENS;
    p->sessions = (uint32_t)((p->pages + of_one - 1) / of_one);
    /* An engine has rows of logits by its sessions: 16, and 4 for each but the first. */
    uint32_t rows = p->batch > 16 ? (p->batch - 16 + 3) / 4 + 1 : 1;
    p->sessions = p->sessions < rows ? rows : p->sessions;
}

/* Reads the model's file, without opening an engine, to see what can be run. */
static spry_status plan(points *p)
{
    const spry_bench_flags *f = p->b->flags;
    const spry_model_file file = spry_model_source_file(p->b->source);
    spry_checkpoint checkpoint;
    spry_status status = spry_checkpoint_read(&checkpoint, &file, f->engine.options.kv_type, p->b->error);
    if (status)
        return status;
    p->limit = f->engine.options.context ? f->engine.options.context : (uint32_t)checkpoint.context;
    p->token_bytes = checkpoint.kv_token_bytes; /* 0: the engine says what is wrong */
    p->memory = spry_memory_total();
    p->context = p->batch = 1;
    p->pages = 1;
    p->b->whole = 4;
    for (size_t i = 0; wants(p->b, "prefill") && i < f->prefill.count; i++)
        p->list[p->count++] = (point){.tokens = f->prefill.values[i], .batch = 1};
    for (size_t d = 0; wants(p->b, "decode") && d < f->depth.count; d++)
        for (size_t n = 0; n < f->batch.count; n++)
            p->list[p->count++] = (point){.decode = true, .tokens = f->depth.values[d], .batch = f->batch.values[n]};
    for (size_t i = 0; i < p->count; i++)
        plan_point(p, &p->list[i], f->tokens);
    for (; p->n_policy < f->policy.count; p->n_policy++) { /* at the first depth */
        p->policy[p->n_policy] = (point){
            .decode = true, .tokens = f->depth.count ? f->depth.values[0] : 0, .batch = f->policy.values[p->n_policy]};
        plan_point(p, &p->policy[p->n_policy], POLICY_WARM + SPRY_POLICY_STEPS);
    }
    settle_needs(p, f->engine.options.context);
    return SPRY_OK;
}

/* ---- what is repeated -------------------------------------------------------------------------------------------- */

/* Appends tokens to the first sequence up to `tokens`. */
static spry_status fill(points *p, size_t tokens)
{
    spry_bench *b = p->b;
    spry_status status = SPRY_OK;
    for (size_t done = spry_steps_held(p->steps); !status && done < tokens;) {
        size_t part = tokens - done < b->chunk ? tokens - done : b->chunk;
        status = spry_bench_go_on(b);
        if (!status)
            status = spry_steps_prefill(p->steps, b->ids + done, part, done + part == tokens, b->error);
        done += part;
    }
    return status;
}

/* Brings `batch` sequences to `depth` tokens each. */
static spry_status reach(points *p, size_t depth, size_t batch)
{
    spry_steps_truncate(p->steps, depth);
    spry_status status = fill(p, depth);
    return status ? status : spry_steps_spread(p->steps, batch, p->b->error);
}

/* Runs steps of one token for each sequence, timed into step_ms. */
static spry_status generate(points *p, size_t n_tokens, size_t batch)
{
    spry_bench *b = p->b;
    spry_status status = SPRY_OK;
    for (size_t i = 0; !status && i < n_tokens; i++) {
        status = spry_bench_go_on(b);
        uint64_t start = spry_clock_ns();
        if (!status)
            status = spry_steps_decode(p->steps, b->ids + i * batch % (b->n_ids - batch + 1), batch, b->error);
        p->step_ms[p->n_steps++] = spry_bench_ms_since(start);
    }
    return status;
}

/* Tokens of one repeat. */
static double point_tokens(const points *p)
{
    return p->now->decode ? (double)p->b->flags->tokens * p->now->batch : p->now->tokens;
}

/* One prefill, or one round of decoding; the sequences have the same length afterwards. The values are tokens/s and
 * seconds. */
static spry_status once(spry_bench *b, void *context, double *values)
{
    points *p = context;
    uint64_t start = spry_clock_ns();
    spry_status status = p->now->decode ? generate(p, b->flags->tokens, p->now->batch) : fill(p, p->now->tokens);
    values[1] = spry_bench_ms_since(start) / 1e3;
    values[0] = point_tokens(p) / values[1];
    spry_steps_truncate(p->steps, p->now->decode ? p->now->tokens : 0);
    return status;
}

/* ---- energy and ops ---------------------------------------------------------------------------------------------- */

/* The energy of one of `times` repeats that took `seconds` together. A GPU's counter changes ten times a second: where
 * there is one, the point is repeated until a second has passed. */
static spry_status energy_json(points *p, json_t **out, const spry_joules *before, double seconds, double times)
{
    spry_joules after;
    double values[SPRY_BENCH_SERIES_MAX];
    spry_status status = SPRY_OK;
    for (; !status && before->has_gpu && seconds < 1; times++) {
        p->n_steps = 0;
        status = once(p->b, p, values);
        seconds += values[1];
    }
    spry_energy_read(p->energy, &after);
    spry_joules used = spry_joules_between(before, &after);
    used.cpu /= times;
    used.gpu /= times;
    *out = spry_joules_whole(&used) > 0 /* counters change once per millisecond */
               ? spry_energy_json(&used, seconds * 1e3 / times, (size_t)point_tokens(p))
               : json_null();
    return status;
}

static int by_time_down(const void *a, const void *b)
{
    const spry_op_sum *x = a, *y = b;
    return (x->ns < y->ns) - (x->ns > y->ns);
}

/* The time of an op with matrices (or keys and values) of a type in one of `times` prefills or steps. */
static json_t *op_json(const points *p, const spry_op_sum *sum, double all_ns, double times)
{
    static const char *const others[SPRY_OP_PLACES] = {[SPRY_PLACE_CPU] = "cpu", [SPRY_PLACE_HOST] = "host"};
    spry_engine_info info;
    spry_engine_describe(p->b->engine, &info);
    const char *plus = strchr(info.device, '+'),
               *name = plus ? plus + 1 : info.device; /* "cpu+cuda:0, 1 of 2 layers" */
    char gpu[16];
    snprintf(gpu, sizeof gpu, "%.*s", (int)strcspn(name, ":,"), name);
    const char *device = others[sum->place] ? others[sum->place] : gpu;
    double ns = (double)sum->ns;
    char kernel[48];
    snprintf(kernel, sizeof kernel, "%s %s",
             strcmp(device, "cpu") ? device : spry_bench_text(p->b->report, "machine.kernels"),
             spry_dtype_name((spry_dtype)sum->type));
    return json_pack("{s:s, s:s, s:s, s:f, s:f, s:I, s:f, s:f}", "op", spry_op_name(sum->op), "device", device,
                     "kernel", kernel, "ms", ns / 1e6 / times, "share", spry_bench_ratio(ns, all_ns), "calls",
                     (json_int_t)llround((double)sum->calls / times), "gb_s", spry_bench_ratio(sum->bytes, ns),
                     "multiply_g_s", spry_bench_ratio(sum->products, ns));
}

static spry_status ops_json(points *p, json_t **out)
{
    spry_op_sum *sums = calloc(WATCHED * SUMS_MAX, sizeof *sums);
    double ns[WATCHED] = {0}, values[SPRY_BENCH_SERIES_MAX];
    size_t counts[WATCHED] = {0}, best = 0;
    spry_status status = sums ? SPRY_OK : spry_fail_memory(p->b->error, "timing ops", SUMS_MAX * sizeof *sums);
    for (size_t i = 0; !status && i < WATCHED; i++) {
        p->n_steps = 0;
        spry_steps_watch(p->steps, true);
        status = once(p->b, p, values);
        counts[i] = spry_steps_ops(p->steps, sums + i * SUMS_MAX, SUMS_MAX);
        for (size_t k = 0; k < counts[i]; k++)
            ns[i] += (double)sums[i * SUMS_MAX + k].ns;
        best = ns[i] < ns[best] ? i : best;
    }
    spry_steps_watch(p->steps, false);
    if (!status) {
        spry_op_sum *list = sums + best * SUMS_MAX;
        *out = json_array();
        qsort(list, counts[best], sizeof *list, by_time_down);
        for (size_t i = 0; i < counts[best]; i++)
            json_array_append_new(*out, op_json(p, &list[i], ns[best], p->now->decode ? p->b->flags->tokens : 1));
    }
    free(sums);
    return status;
}

/* ---- a point ----------------------------------------------------------------------------------------------------- */

static json_t *place_json(const point *at)
{
    return at->decode ? json_pack("{s:I, s:I}", "depth", (json_int_t)at->tokens, "batch", (json_int_t)at->batch)
                      : json_pack("{s:I}", "tokens", (json_int_t)at->tokens);
}

static uint64_t waits_of(const spry_bench *b)
{
    spry_jobs_figures figures;
    spry_engine_jobs_figures(b->engine, &figures);
    return figures.waits;
}

static json_t *speed_json(points *p, spry_bench_series *series)
{
    const point *at = p->now;
    const spry_bench *b = p->b;
    spry_bench_stat tps = spry_bench_stat_of(series->values[0], series->count);
    spry_work_amount work = at->decode
                                ? spry_engine_decode_work(b->engine, at->tokens + b->flags->tokens / 2, at->batch)
                                : spry_engine_prefill_work(b->engine, at->tokens);
    double seconds = (at->decode ? at->batch : at->tokens) / tps.median;
    json_t *out = place_json(at);
    json_t *speeds = json_pack("{s:f, s:f, s:f, s:f}", "tps", tps.median, "spread", spry_bench_spread(&tps),
                               "read_gb_s", work.bytes / seconds / 1e9, "multiply_g_s", work.products / seconds / 1e9);
    json_object_update(out, speeds);
    json_decref(speeds);
    if (at->decode) {
        json_t *steps = spry_bench_percentiles_json(p->step_ms, p->n_steps, "_ms");
        json_object_update(out, steps);
        json_decref(steps);
    } else {
        json_object_set_new(out, "ms", json_real(seconds * 1e3));
    }
    return out;
}

static void put_places(json_t *out)
{
    double shares[SPRY_BENCH_PLACES];
    spry_bench_places(shares, out);
    json_object_set_new(out, "places",
                        json_pack("{s:f, s:f, s:f, s:f}", "gpu", shares[SPRY_BENCH_ON_GPU], "cpu",
                                  shares[SPRY_BENCH_ON_CPU], "host", shares[SPRY_BENCH_ON_HOST], "copies",
                                  shares[SPRY_BENCH_ON_THE_WAY]));
}

static spry_status measure_point(points *p, point *at)
{
    spry_bench *b = p->b;
    spry_bench_series series;
    spry_joules before;
    double values[SPRY_BENCH_SERIES_MAX], seconds = 0;
    json_t *energy = NULL, *ops = NULL;
    if (at->decode)
        snprintf(b->doing, sizeof b->doing, "decode at depth %u, %u together:", at->tokens, at->batch);
    else
        snprintf(b->doing, sizeof b->doing, "prefill of %u tokens:", at->tokens);
    p->now = at;
    p->n_steps = 0;
    spry_status status = reach(p, at->decode ? at->tokens : 0, at->batch);
    if (!status)
        status = once(b, p, values);
    uint64_t waits = waits_of(b);
    p->n_steps = 0;
    spry_energy_read(p->energy, &before);
    if (!status)
        status = spry_bench_repeat(b, &series, false, once, p);
    if (status)
        return status;
    double waits_per_token = (double)(waits_of(b) - waits) / (point_tokens(p) * b->flags->repeat);
    for (size_t i = 0; i < series.count; i++)
        seconds += series.values[1][i];
    at->json = speed_json(p, &series);
    status = energy_json(p, &energy, &before, seconds, b->flags->repeat);
    double busy = spry_gpu_busy_percent();
    json_object_set_new(at->json, "energy", energy);
    if (!status)
        status = ops_json(p, &ops);
    json_object_set_new(at->json, "ops", ops);
    put_places(at->json);
    if (strcmp(spry_engine_device_kind(b->engine), "cpu") != 0) {
        json_object_set_new(at->json, "waits_per_token", json_real(waits_per_token));
        json_object_set_new(at->json, "gpu_busy_percent", isnan(busy) ? json_null() : json_real(busy));
    }
    return status;
}

/* ---- how long it takes ------------------------------------------------------------------------------------------- */

enum { TRIED_ROWS = 32, CALL_TOKENS = 64 };

/* Expects all parts to take as long by their rows and steps as one prefill and one decode now. */
static spry_status expect(points *p)
{
    spry_bench *b = p->b;
    const spry_bench_flags *f = b->flags;
    const uint32_t rows = b->chunk < TRIED_ROWS ? b->chunk : TRIED_ROWS;
    uint64_t start = spry_clock_ns();
    spry_status status = spry_steps_prefill(p->steps, b->ids, rows, true, b->error);
    const double row = spry_bench_ms_since(start) / rows;
    start = spry_clock_ns();
    if (!status && p->limit > rows)
        status = spry_steps_decode(p->steps, b->ids, 1, b->error);
    const double step = spry_bench_ms_since(start), runs = f->repeat + 1 + WATCHED;
    spry_steps_truncate(p->steps, 0);
    double ms = (wants(b, "request") ? f->repeat * REQUEST * row : 0) +
                (wants(b, "first-call") ? f->repeat * CALL_TOKENS * step : 0);
    for (size_t i = 0; i < p->count; i++) {
        const point *at = &p->list[i];
        if (!at->skipped[0])
            ms += at->decode ? at->tokens * row + runs * f->tokens * (step + (at->batch - 1) * row)
                             : runs * at->tokens * row;
    }
    for (size_t i = 0; i < p->n_policy; i++)
        ms += (POLICY_WARM + SPRY_POLICY_STEPS) * (step + (p->policy[i].batch - 1) * row);
    spry_bench_put(b, "expected_s", json_real(ms / 1e3));
    spry_progress_note(&b->line, "about %.0f s", ms / 1e3);
    return status;
}

/* ---- all points -------------------------------------------------------------------------------------------------- */

/* Prefills; one sequence from the smallest depth to the largest, so that it only grows; batches from the largest depth,
 * so that they only shrink. */
typedef enum stage { PREFILLS, ONE, BATCHES } stage;

static stage stage_of(const point *at)
{
    return !at->decode ? PREFILLS : at->batch == 1 ? ONE : BATCHES;
}

static int by_depth(const void *a, const void *b)
{
    const point *x = *(point *const *)a, *y = *(point *const *)b;
    return (x->tokens > y->tokens) - (x->tokens < y->tokens);
}

static spry_status measure_stage(points *p, stage which)
{
    point *order[SPRY_BENCH_POINTS_MAX];
    size_t count = 0;
    spry_status status = SPRY_OK;
    for (size_t i = 0; i < p->count; i++)
        if (stage_of(&p->list[i]) == which && !p->list[i].skipped[0])
            order[count++] = &p->list[i];
    if (which != PREFILLS)
        qsort(order, count, sizeof *order, by_depth);
    for (size_t i = 0; !status && i < count; i++)
        status = measure_point(p, order[which == BATCHES ? count - 1 - i : i]);
    return status;
}

static void put_points(points *p)
{
    json_t *lists[] = {json_array(), json_array(), json_array()}; /* prefills, decodes, skipped */
    static const char *const keys[] = {"prefill", "decode", "skipped"};
    for (size_t i = 0; i < p->count; i++) {
        point *at = &p->list[i];
        if (at->skipped[0]) {
            at->json = place_json(at);
            json_object_set_new(at->json, "why", json_string(at->skipped));
        }
        p->b->lacks_memory =
            json_array_append(lists[at->skipped[0] ? 2 : at->decode], at->json) != 0 || p->b->lacks_memory;
    }
    for (size_t i = 0; i < SPRY_COUNT(keys); i++)
        spry_bench_put(p->b, keys[i], lists[i]);
}

/* Adds to every point what it reaches of the machine's limits. */
static void put_shares(points *p)
{
    static const char *const keys[][2] = {{"read_gb_s", "read_share"}, {"multiply_g_s", "multiply_share"}};
    const json_t *machine = json_object_get(p->b->report, "machine");
    for (size_t i = 0; i < p->count; i++)
        for (size_t k = 0; !p->list[i].skipped[0] && k < SPRY_COUNT(keys); k++)
            json_object_set_new(p->list[i].json, keys[k][1],
                                json_real(spry_bench_ratio(spry_bench_number(p->list[i].json, keys[k][0]),
                                                           spry_bench_number(machine, keys[k][0]))));
}

/* ---- the batch sizes of the policies ----------------------------------------------------------------------------- */

static const struct {
    const char *name;
    spry_policy policy;
} policies[] = {
    {"interactive", SPRY_POLICY_INTERACTIVE}, {"offline", SPRY_POLICY_OFFLINE}, {"throughput", SPRY_POLICY_THROUGHPUT}};

/* As many steps as the scheduler's judgement is made of, after a few that do not count. */
static spry_status measure_size(points *p, point *at, spry_policy_step *steps)
{
    double ms = 0;
    snprintf(p->b->doing, sizeof p->b->doing, "steps of %u together:", at->batch);
    spry_status status = reach(p, at->tokens, at->batch);
    p->n_steps = 0;
    if (!status)
        status = generate(p, POLICY_WARM, at->batch);
    p->n_steps = 0;
    if (!status)
        status = generate(p, SPRY_POLICY_STEPS, at->batch);
    p->b->done++;
    if (status)
        return status;
    for (size_t i = 0; i < SPRY_POLICY_STEPS; i++) {
        ms += p->step_ms[i];
        steps[i] = (spry_policy_step){at->batch, p->step_ms[i]};
    }
    spry_bench_stat_of(p->step_ms, SPRY_POLICY_STEPS);
    at->json = json_pack("{s:I, s:f, s:f, s:f}", "batch", (json_int_t)at->batch, "tps",
                         spry_bench_ratio((double)at->batch * SPRY_POLICY_STEPS * 1000, ms), "p50_ms",
                         spry_bench_percentile(p->step_ms, SPRY_POLICY_STEPS, 50), "p95_ms",
                         spry_bench_percentile(p->step_ms, SPRY_POLICY_STEPS, 95));
    return SPRY_OK;
}

/* Compares each size with the next smaller power of two. */
static void compare_sizes(points *p)
{
    const point *before = NULL;
    for (size_t i = 0; i < p->n_policy; i++) {
        point *now = &p->policy[i];
        if (now->skipped[0])
            continue;
        static const char *const ratios[][2] = {{"gain", "tps"}, {"slower", "p95_ms"}};
        for (size_t k = 0; k < SPRY_COUNT(ratios); k++)
            json_object_set_new(now->json, ratios[k][0],
                                spry_bench_positive_json(
                                    spry_bench_ratio(spry_bench_number(now->json, ratios[k][1]),
                                                     spry_bench_number(before ? before->json : NULL, ratios[k][1]))));
        before = (now->batch & (now->batch - 1)) == 0 ? now : before;
    }
}

/* What each policy of the scheduler takes after these steps, by name: {"batch", "why"}. */
static json_t *choices_json(uint32_t most, const spry_policy_step *steps, size_t n_steps)
{
    json_t *out = json_object();
    for (size_t i = 0; i < SPRY_COUNT(policies); i++) {
        char why[200];
        uint32_t batch = spry_policy_choose(why, sizeof why, policies[i].policy, most, steps, n_steps);
        json_object_set_new(out, policies[i].name, json_pack("{s:I, s:s}", "batch", (json_int_t)batch, "why", why));
    }
    return out;
}

static spry_status measure_policy(points *p)
{
    spry_policy_step steps[SPRY_BENCH_LIST_MAX * SPRY_POLICY_STEPS];
    json_t *batches = json_array(), *skipped = json_array();
    size_t n_steps = 0;
    uint32_t most = 1;
    spry_status status = SPRY_OK;
    for (size_t i = 0; !status && i < p->n_policy; i++) {
        point *at = &p->policy[i];
        if (at->skipped[0]) {
            json_array_append_new(skipped, json_pack("{s:I, s:s}", "batch", (json_int_t)at->batch, "why", at->skipped));
            continue;
        }
        status = measure_size(p, at, steps + n_steps);
        json_array_append(batches, at->json);
        n_steps += SPRY_POLICY_STEPS;
        most = at->batch > most ? at->batch : most;
    }
    if (!status && p->n_policy) {
        json_t *choices = choices_json(most, steps, n_steps);
        const json_t *taken = json_object_get(choices, "throughput");
        compare_sizes(p);
        spry_bench_put(p->b, "policy",
                       json_pack("{s:O, s:O, s:o, s:I, s:O, s:O}", "taken", json_object_get(taken, "batch"), "why",
                                 json_object_get(taken, "why"), "choices", choices, "depth",
                                 (json_int_t)p->policy[0].tokens, "batches", batches, "skipped", skipped));
    }
    json_decref(batches);
    json_decref(skipped);
    return status;
}

void spry_bench_policy_print(const json_t *policy)
{
    static const spry_bench_column columns[] = {
        {"Policies", -9, NULL, SPRY_BENCH_TEXT, NULL},
        {"together", 8, "batch", SPRY_BENCH_COUNT, NULL},
        {"tokens/s", 10, "tps", SPRY_BENCH_TENTHS, NULL},
        {"p95", 9, "p95_ms", SPRY_BENCH_TIME, NULL},
        {"gain", 7, "gain", SPRY_BENCH_TIMES, ""},
        {"slower", 9, "slower", SPRY_BENCH_TIMES, ""},
        {"tokens/s as bars", 0, "tps", SPRY_BENCH_BAR, NULL},
    };
    char after[40];
    if (!policy)
        return;
    snprintf(after, sizeof after, ", at depth %.0f", spry_bench_number(policy, "depth"));
    spry_bench_table(columns, SPRY_COUNT(columns), json_object_get(policy, "batches"),
                     json_object_get(policy, "skipped"), after);
    for (size_t i = 0; i < SPRY_COUNT(policies); i++)
        spry_out_format("%s.\n",
                        spry_bench_text(json_object_get(json_object_get(policy, "choices"), policies[i].name), "why"));
}

/* ---- loading and memory ------------------------------------------------------------------------------------------ */

/* Opens and closes; the last one stays open. */
static spry_status load(spry_bench *b, void *context, double *values)
{
    spry_model_source source = {0};
    (void)context;
    spry_bench_close(b);
    uint64_t start = spry_clock_ns();
    spry_status status = spry_open_model(&b->engine, &source, b->model, &b->flags->model, &b->flags->engine, b->error);
    values[0] = spry_bench_ms_since(start);
    spry_model_source_deinit(&source);
    return status;
}

static spry_status measure_load(spry_bench *b)
{
    spry_bench_series series;
    double once_ms;
    snprintf(b->doing, sizeof b->doing, "opening the model:");
    spry_status status = wants(b, "start") ? spry_bench_repeat(b, &series, false, load, NULL) : load(b, NULL, &once_ms);
    if (status || !wants(b, "start"))
        return status ? status : spry_bench_describe(b);
    spry_bench_stat ms = spry_bench_stat_of(series.values[0], series.count);
    spry_bench_put(b, "load_ms", spry_bench_positive_json(ms.median));
    spry_bench_put(b, "load_spread", json_real(spry_bench_spread(&ms)));
    return spry_bench_describe(b);
}

static json_t *parts_json(const spry_memory_parts *m)
{
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I}", "weights", (json_int_t)m->weights, "kv", (json_int_t)m->kv,
                     "cache", (json_int_t)m->cache, "scratch", (json_int_t)m->scratch, "program",
                     (json_int_t)m->program, "whole", (json_int_t)m->whole);
}

/* The estimate is made before the engine is opened, the measurement while it is. */
static spry_status estimate_memory(points *p, spry_memory_parts *estimated, spry_error *error)
{
    const spry_model_source *s = p->b->source;
    const spry_engine_options *options = &p->b->flags->engine.options;
    spry_memory_use use;
    spry_memory_use_default(&use);
    use.tokens = p->pages * SPRY_PAGE_TOKENS;
    use.rows = p->rows < options->chunk ? p->rows : options->chunk;
    return spry_memory_estimate(estimated, s->data ? s->name : s->path, s->data, s->size, options, &use, error);
}

static void put_memory(spry_bench *b, spry_status status, const spry_memory_parts *estimated, spry_error *error)
{
    spry_memory_parts measured;
    if (!status)
        status = spry_memory_measure(&measured, b->engine, error);
    if (!status) {
        spry_bench_put(b, "memory",
                       json_pack("{s:o, s:o}", "estimated", parts_json(estimated), "measured", parts_json(&measured)));
        return;
    }
    error->message[150] = '\0';
    spry_bench_put(b, "why_no_memory", spry_bench_text_json(error->message));
}

/* ---- all of it --------------------------------------------------------------------------------------------------- */

static spry_status prepare(points *p)
{
    spry_bench *b = p->b;
    size_t steps = (size_t)b->flags->tokens * b->flags->repeat, least = POLICY_WARM + SPRY_POLICY_STEPS;
    steps = steps < least ? least : steps;
    p->step_ms = malloc(steps * sizeof *p->step_ms);
    if (!p->step_ms)
        return spry_fail_memory(b->error, "the times of steps", steps * sizeof *p->step_ms);
    spry_status status = spry_bench_make_text(b, b->context > SPRY_STEPS_MAX ? b->context : SPRY_STEPS_MAX);
    return status ? status : spry_steps_create(&p->steps, b->engine, p->batch, b->error);
}

static spry_status measure_points(points *p)
{
    spry_status status = prepare(p);
    if (!status)
        status = expect(p);
    if (!status)
        status = measure_stage(p, PREFILLS);
    if (!status)
        status = measure_stage(p, ONE);
    spry_bench_put(p->b, "peak_rss_bytes", json_integer((json_int_t)spry_memory_peak()));
    if (!status)
        status = measure_stage(p, BATCHES);
    if (!status)
        status = measure_policy(p);
    spry_bench_put(p->b, "peak_rss_batch_bytes", json_integer((json_int_t)spry_memory_peak()));
    return status;
}

static spry_status measure_all(points *p)
{
    spry_bench *b = p->b;
    spry_error memory_error;
    spry_memory_parts estimated;
    spry_joules none;
    spry_energy_facts facts;
    spry_status status = wants(b, "start") ? spry_bench_first_token(b) : SPRY_OK;
    b->flags->engine.options.context = p->context;
    b->flags->engine.options.sessions = p->sessions;
    if (!status)
        status = spry_energy_open(&p->energy, "", b->error);
    /* Read once: the memory of a GPU's library counts as the program's, for every model. */
    spry_energy_read(p->energy, &none);
    spry_status estimate = estimate_memory(p, &estimated, &memory_error);
    if (!status)
        status = measure_load(b);
    if (!status)
        status = measure_points(p);
    if (status)
        return status;
    put_points(p);
    put_memory(b, estimate, &estimated, &memory_error);
    spry_steps_destroy(p->steps);
    p->steps = NULL;
    static const struct {
        const char *part;
        spry_status (*measure)(spry_bench *);
    } requests[] = {
        {"request", spry_bench_ttft}, {"first-call", spry_bench_first_call}, {"request", spry_bench_answer}};
    for (size_t i = 0; !status && i < SPRY_COUNT(requests); i++)
        if (wants(b, requests[i].part))
            status = requests[i].measure(b);
    spry_energy_describe(p->energy, &facts);
    spry_bench_put(b, "energy", spry_energy_facts_json(&facts));
    spry_bench_close(b);
    spry_progress_end(&b->line);
    if (!status)
        status = spry_bench_machine_measure(b);
    put_shares(p);
    return status;
}

static spry_status measure(spry_bench *b)
{
    static const char *const keys[] = {"prefill",
                                       "decode",
                                       "skipped",
                                       "load_ms",
                                       "load_spread",
                                       "first_token_ms",
                                       "first_token_spread",
                                       "peak_rss_bytes",
                                       "peak_rss_batch_bytes",
                                       "ttft",
                                       "first_call",
                                       "memory",
                                       "energy"};
    points *p = calloc(1, sizeof *p);
    if (!p)
        return spry_fail_memory(b->error, "a list of points", sizeof *p);
    p->b = b;
    for (size_t i = 0; i < SPRY_COUNT(keys); i++)
        spry_bench_put(b, keys[i], json_null());
    spry_status status = spry_bench_check_baseline(b);
    if (!status)
        status = plan(p);
    if (!status)
        status = measure_all(p);
    for (size_t i = 0; i < p->count; i++)
        json_decref(p->list[i].json);
    for (size_t i = 0; i < p->n_policy; i++)
        json_decref(p->policy[i].json);
    spry_steps_destroy(p->steps);
    spry_energy_close(p->energy);
    free(p->step_ms);
    free(p);
    return status;
}

const spry_bench_kind spry_bench_points_kind = {NULL, SPRY_BENCH_FORMAT, measure, spry_bench_points_print};
