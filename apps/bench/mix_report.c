/* A workload's results for people and programs: what clients saw, by target, and how much of the prompts was cached, by
 * system prompt. */
#include <stdio.h>
#include <stdlib.h>

#include "bench/mix.h"
#include "cli/terminal.h"

enum { FIGURES = 3, GROUPS = SPRY_MIX_SYSTEMS_MAX + 1 };

static const double percents[FIGURES] = {50, 95, 99};

/* Cached tokens of the prompts with one system prompt. */
typedef struct group {
    size_t requests, prompt_tokens, hit_tokens;
    bool known; /* the target told of every one of them */
} group;

typedef struct summary {
    double ttft[FIGURES], gap[FIGURES]; /* ms; 0: there is none */
    size_t prompt_tokens, answer_tokens, n_gaps;
    double tps; /* of all answers together */
    group groups[GROUPS], all;
} summary;

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void take_percentiles(double out[FIGURES], double *values, size_t count)
{
    if (!count)
        return;
    qsort(values, count, sizeof *values, by_size);
    for (size_t i = 0; i < FIGURES; i++)
        out[i] = spry_bench_percentile(values, count, percents[i]);
}

static void add_group(group *g, const spry_mix_answer *a)
{
    g->known = (g->known || !g->requests) && a->hits_known;
    g->requests++;
    g->prompt_tokens += a->prompt_tokens;
    g->hit_tokens += a->hit_tokens;
}

/* False: memory is short. */
static bool sum_up(summary *s, const spry_mix_run *run, const spry_mix_plan *plan)
{
    size_t n_first = 0, n_gaps = 0;
    *s = (summary){.tps = 0};
    for (size_t i = 0; i < run->count; i++)
        s->n_gaps += run->done[i] ? run->answers[i].n_gaps : 0;
    double *first = malloc((run->count + 1) * sizeof *first), *gaps = malloc((s->n_gaps + 1) * sizeof *gaps);
    for (size_t i = 0; first && gaps && i < run->count; i++) {
        const spry_mix_answer *a = &run->answers[i];
        size_t system = plan->list[i].system;
        if (!run->done[i])
            continue;
        first[n_first++] = a->ttft_ms;
        for (size_t k = 0; k < a->n_gaps; k++)
            gaps[n_gaps++] = a->gaps_ms[k];
        s->prompt_tokens += a->prompt_tokens;
        s->answer_tokens += a->answer_tokens;
        add_group(&s->groups[system < GROUPS ? system : GROUPS - 1], a);
        add_group(&s->all, a);
    }
    if (first && gaps) {
        take_percentiles(s->ttft, first, n_first);
        take_percentiles(s->gap, gaps, n_gaps);
    }
    s->tps = run->wall_ms > 0 ? (double)s->answer_tokens * 1000 / run->wall_ms : 0;
    bool whole = first && gaps;
    free(first);
    free(gaps);
    return whole;
}

static const char *group_name(const spry_mix_plan *plan, size_t index)
{
    return index < plan->mix->n_systems ? plan->mix->systems[index].name : "(none)";
}

/* ---- text -------------------------------------------------------------------------------------------------------- */

static const char *share_text(char out[16], const group *g)
{
    if (!g->requests)
        return "-";
    if (!g->known)
        return "not told";
    snprintf(out, 16, "%.1f %%", 100 * spry_bench_ratio((double)g->hit_tokens, (double)g->prompt_tokens));
    return out;
}

static void print_run(const spry_mix_run *run, const summary *s)
{
    spry_out_quote("%s", run->where);
    if (run->api[0])
        spry_out_quote(" (%s, %s)", run->api, run->model);
    spry_out_format("\n  %8zu", run->n_done);
    for (size_t i = 0; i < FIGURES; i++)
        spry_out_format(" %9.1f", s->ttft[i]);
    for (size_t i = 0; i < FIGURES; i++)
        spry_out_format(" %8.2f", s->gap[i]);
    char share[16];
    spry_out_format(" %9.1f %9s\n", s->tps, share_text(share, &s->all));
    if (run->why[0])
        spry_out_quote("  ended after %zu of %zu requests: %s\n", run->n_done, run->count, run->why);
}

static void print_groups(const spry_mix_report *r, const summary *sums)
{
    const char *bold = spry_style_begin(stdout, SPRY_STYLE_BOLD), *plain = spry_style_end(stdout);
    spry_out_format("\n%s%-32s %9s %14s", bold, "Cached, by system prompt", "requests", "here");
    spry_out_format(r->n_runs > 1 ? " %14s%s\n" : "%s%s\n", r->n_runs > 1 ? "server" : "", plain);
    for (size_t g = 0; g < GROUPS; g++) {
        char name[33], share[16];
        if (!sums[0].groups[g].requests && (r->n_runs < 2 || !sums[1].groups[g].requests))
            continue;
        snprintf(name, sizeof name, "%s", group_name(r->plan, g));
        spry_out_quote("%-32s %9zu", name, sums[0].groups[g].requests);
        for (size_t i = 0; i < r->n_runs; i++)
            spry_out_format(" %14s", share_text(share, &sums[i].groups[g]));
        spry_out_format("\n");
    }
}

void spry_mix_print_table(const spry_mix_report *r)
{
    const char *bold = spry_style_begin(stdout, SPRY_STYLE_BOLD), *plain = spry_style_end(stdout);
    summary sums[2] = {{.tps = 0}};
    bool whole = true;
    for (size_t i = 0; i < r->n_runs; i++)
        whole = sum_up(&sums[i], &r->runs[i], r->plan) && whole;
    spry_out_format("%s", bold);
    spry_out_quote("%s", r->model);
    spry_out_format("%s", plain);
    spry_out_quote(", mix %s: %zu requests, %u together, seed %llu\n\n", r->plan->mix->name, r->plan->count,
                   r->together, (unsigned long long)r->plan->seed);
    spry_out_format("%s  %8s %29s %26s %9s %9s\n  %8s %9s %9s %9s %8s %8s %8s%s\n", bold, "requests", "first token, ms",
                    "between tokens, ms", "tokens/s", "cached", "", "p50", "p95", "p99", "p50", "p95", "p99", plain);
    for (size_t i = 0; i < r->n_runs; i++)
        print_run(&r->runs[i], &sums[i]);
    print_groups(r, sums);
    if (!whole)
        spry_out_format("memory was short: percentiles are missing\n");
}

/* ---- JSON -------------------------------------------------------------------------------------------------------- */

static json_t *percentiles_json(const double values[FIGURES])
{
    return values[0] > 0 ? json_pack("{s:f, s:f, s:f}", "p50", values[0], "p95", values[1], "p99", values[2])
                         : json_null();
}

static json_t *share_json(const group *g)
{
    return g->known && g->prompt_tokens ? json_real((double)g->hit_tokens / (double)g->prompt_tokens) : json_null();
}

static json_t *groups_json(const spry_mix_plan *plan, const summary *s)
{
    json_t *list = json_array();
    for (size_t g = 0; g < GROUPS; g++)
        if (s->groups[g].requests)
            json_array_append_new(
                list, json_pack("{s:o?, s:I, s:I, s:o}", "system",
                                g < plan->mix->n_systems ? spry_bench_text_json(group_name(plan, g)) : NULL, "requests",
                                (json_int_t)s->groups[g].requests, "prompt_tokens",
                                (json_int_t)s->groups[g].prompt_tokens, "hit_share", share_json(&s->groups[g])));
    return list;
}

static json_t *requests_json(const spry_mix_plan *plan, const spry_mix_run *run)
{
    json_t *list = json_array();
    for (size_t i = 0; i < run->count; i++) {
        const spry_mix_answer *a = &run->answers[i];
        const spry_mix_request *r = &plan->list[i];
        if (!run->done[i])
            continue;
        json_t *one =
            json_pack("{s:I, s:o?, s:I, s:I, s:I, s:o, s:f, s:f}", "request", (json_int_t)i + 1, "system",
                      r->system < plan->mix->n_systems ? spry_bench_text_json(group_name(plan, r->system)) : NULL,
                      "prompt_tokens", (json_int_t)a->prompt_tokens, "answer_tokens", (json_int_t)a->answer_tokens,
                      "wanted_tokens", (json_int_t)r->answer_tokens, "hit_tokens",
                      a->hits_known ? json_integer((json_int_t)a->hit_tokens) : json_null(), "ttft_ms", a->ttft_ms,
                      "total_ms", a->total_ms);
        json_array_append_new(list, one);
    }
    return list;
}

static json_t *run_json(const spry_mix_plan *plan, const spry_mix_run *run)
{
    summary s;
    if (!sum_up(&s, run, plan))
        return NULL;
    return json_pack("{s:o, s:s?, s:o?, s:I, s:o?, s:o, s:o, s:I, s:I, s:f, s:f, s:o, s:o, s:o}", "where",
                     spry_bench_text_json(run->where), "api", run->api[0] ? run->api : NULL, "model",
                     run->model[0] ? spry_bench_text_json(run->model) : NULL, "completed", (json_int_t)run->n_done,
                     "error", run->why[0] ? spry_bench_text_json(run->why) : NULL, "ttft_ms", percentiles_json(s.ttft),
                     "between_ms", percentiles_json(s.gap), "prompt_tokens", (json_int_t)s.prompt_tokens,
                     "answer_tokens", (json_int_t)s.answer_tokens, "wall_ms", run->wall_ms, "tps", s.tps, "hit_share",
                     share_json(&s.all), "systems", groups_json(plan, &s), "requests", requests_json(plan, run));
}

json_t *spry_mix_report_json(const spry_mix_report *r)
{
    json_t *runs = json_array();
    bool whole = runs;
    for (size_t i = 0; i < r->n_runs; i++)
        whole = json_array_append_new(runs, run_json(r->plan, &r->runs[i])) == 0 && whole;
    json_t *out =
        json_pack("{s:s, s:s, s:o, s:o, s:I, s:I, s:f, s:I, s:o}", "format", SPRY_MIX_REPORT_FORMAT, "spry",
                  spry_version(), "model", spry_bench_text_json(r->model), "mix",
                  spry_bench_text_json(r->plan->mix->name), "requests", (json_int_t)r->plan->count, "together",
                  (json_int_t)r->together, "scale", r->plan->scale, "seed", (json_int_t)r->plan->seed, "runs", runs);
    if (whole)
        return out;
    json_decref(out);
    return NULL;
}
