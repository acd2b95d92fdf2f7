/* The report as one JSON object, which `spry bench` saves and compares and `spry report` draws. Times are in
 * milliseconds, sizes in bytes, shares from 0 to 1. Values that were not measured are null, with the reason in another
 * key. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/bench.h"
#include "bench/bench_gate.h"
#include "cli/energy_figures.h"
#include "cli/terminal.h"
#include "run/answer.h"

json_t *spry_bench_text_json(const char *text)
{
    spry_buffer clean;
    spry_buffer_init(&clean, 1 << 16);
    spry_terminal_defuse(&clean, spry_view_of(text), "");
    json_t *out = json_string(spry_buffer_view(&clean).data);
    spry_buffer_deinit(&clean);
    return out;
}

/* ---- points --------------------------------------------------------------------------------------------------------
 */

static json_t *op_json(const spry_bench_report *r, const spry_bench_op *op)
{
    char kernel[48];
    snprintf(kernel, sizeof kernel, "%s %s", strcmp(r->device, "cpu") ? r->device : r->machine.kernels,
             spry_dtype_name(op->type));
    return json_pack("{s:s, s:s, s:s, s:f, s:f, s:I, s:f, s:f}", "op", spry_op_name(op->op), "device", r->device,
                     "kernel", kernel, "ms", op->ms, "share", op->share, "calls", (json_int_t)llround(op->calls),
                     "gb_s", spry_bench_ratio(op->bytes, op->ms * 1e6), "multiply_g_s",
                     spry_bench_ratio(op->products, op->ms * 1e6));
}

/* Merges two objects; NULL when one of them is NULL or memory is short. */
static json_t *merged(json_t *first, json_t *second)
{
    bool whole = second && json_object_update(first, second) == 0;
    json_decref(second);
    if (whole)
        return first;
    json_decref(first);
    return NULL;
}

/* The list, or NULL if `whole` is false. */
static json_t *list_or_nothing(json_t *list, bool whole)
{
    if (whole)
        return list;
    json_decref(list);
    return NULL;
}

static json_t *ops_json(const spry_bench_report *r, const spry_bench_point *p)
{
    json_t *list = json_array();
    bool whole = list;
    for (size_t i = 0; i < p->n_ops; i++)
        whole = json_array_append_new(list, op_json(r, &p->ops[i])) == 0 && whole;
    return list_or_nothing(list, whole);
}

/* Of a device that is not the host. */
static json_t *device_use_json(const spry_bench_point *p)
{
    return json_pack("{s:f, s:o}", "waits_per_token", p->waits, "gpu_busy_percent",
                     isnan(p->gpu_busy) ? json_null() : json_real(p->gpu_busy));
}

static json_t *point_json(const spry_bench_report *r, const spry_bench_point *p)
{
    json_t *where = p->decode ? json_pack("{s:I, s:I}", "depth", (json_int_t)p->tokens, "batch", (json_int_t)p->batch)
                              : json_pack("{s:I}", "tokens", (json_int_t)p->tokens);
    if (p->skipped[0])
        return merged(where, json_pack("{s:s}", "why", p->skipped));
    json_t *speeds = json_pack("{s:f, s:f, s:f, s:f, s:f, s:f}", "tps", p->tps.median, "spread",
                               spry_bench_spread(&p->tps), "read_gb_s", p->read_gb_s, "read_share",
                               spry_bench_ratio(p->read_gb_s, r->machine.read_gb_s), "multiply_g_s", p->multiply_g_s,
                               "multiply_share", spry_bench_ratio(p->multiply_g_s, r->machine.multiply_g_s));
    json_t *times = p->decode ? json_pack("{s:f, s:f, s:f}", "p50_ms", p->steps.p50_ms, "p95_ms", p->steps.p95_ms,
                                          "p99_ms", p->steps.p99_ms)
                              : json_pack("{s:f}", "ms", spry_bench_ratio(p->tokens * 1e3, p->tps.median));
    json_t *uses = json_pack("{s:o, s:o}", "energy", spry_energy_json(&p->energy.used, p->energy.ms, p->energy.tokens),
                             "ops", ops_json(r, p));
    json_t *all = merged(merged(merged(where, speeds), times), uses);
    return strcmp(r->device, "cpu") ? merged(all, device_use_json(p)) : all;
}

/* The points that were run, or those that were not. */
static json_t *points_json(const spry_bench_report *r, bool decode, bool skipped)
{
    json_t *list = json_array();
    bool whole = list;
    for (size_t i = 0; i < r->n_points; i++) {
        bool was_skipped = r->points[i].skipped[0] != '\0';
        if ((skipped || r->points[i].decode == decode) && was_skipped == skipped)
            whole = json_array_append_new(list, point_json(r, &r->points[i])) == 0 && whole;
    }
    return list_or_nothing(list, whole);
}

/* ---- the rest ------------------------------------------------------------------------------------------------------
 */

static json_t *time_json(const spry_bench_stat *stat)
{
    return stat->median > 0 ? json_real(stat->median) : json_null();
}

static json_t *machine_json(const spry_bench_report *r)
{
    const spry_bench_machine *m = &r->machine;
    const char *type = m->gpu[0] ? "F16" : spry_dtype_name(r->main_type);
    json_t *out =
        json_pack("{s:s, s:I, s:s, s:f, s:f, s:s, s:I, s:s}", "cpu", m->cpu, "threads", (json_int_t)m->threads,
                  "kernels", m->kernels, "read_gb_s", m->read_gb_s, "multiply_g_s", m->multiply_g_s, "multiply_type",
                  type, "memory_bytes", (json_int_t)m->memory_bytes, "id", m->id);
    return m->gpu[0] ? merged(out, json_pack("{s:s}", "gpu", m->gpu)) : out;
}

static json_t *answer_json(const spry_bench_answer *a)
{
    return json_pack("{s:I, s:f, s:f, s:f}", "tokens", (json_int_t)a->tokens, "tps",
                     spry_bench_ratio((double)(a->tokens - 1) * 1e3, a->ms), "waits_per_token", a->waits, "ahead_share",
                     a->ahead);
}

static json_t *settings_json(const spry_bench_report *r)
{
    const spry_bench_identity *i = &r->identity;
    return json_pack("{s:I, s:s, s:I, s:I, s:I, s:s?}", "chunk", (json_int_t)i->chunk, "kv_type", i->kv_type, "tokens",
                     (json_int_t)i->tokens, "repeat", (json_int_t)r->repeat, "context", (json_int_t)r->context,
                     "quantize", i->quantize[0] ? i->quantize : NULL);
}

static json_t *ttft_json(const spry_bench_ttft *t)
{
    if (t->why_not[0])
        return json_null();
    return json_pack("{s:I, s:f, s:f, s:o, s:o, s:I, s:I}", "prompt_tokens", (json_int_t)t->cold.prompt_tokens,
                     "cold_ms", t->cold.ms, "warm_ms", t->warm.ms, "parts_ms", spry_parts_json(t->cold.parts_ms),
                     "warm_parts_ms", spry_parts_json(t->warm.parts_ms), "hit_tokens", (json_int_t)t->warm.hit_tokens,
                     "miss_tokens", (json_int_t)(t->warm.prompt_tokens - t->warm.hit_tokens));
}

static json_t *call_json(const spry_bench_call *c)
{
    return c->why_not[0] ? json_null() : json_pack("{s:f, s:I}", "ms", c->ms, "tokens", (json_int_t)c->tokens);
}

static json_t *memory_parts_json(const spry_memory_parts *p)
{
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I}", "weights", (json_int_t)p->weights, "kv", (json_int_t)p->kv,
                     "cache", (json_int_t)p->cache, "scratch", (json_int_t)p->scratch, "program",
                     (json_int_t)p->program, "whole", (json_int_t)p->whole);
}

static json_t *memory_json(const spry_bench_memory *m)
{
    if (m->why_not[0])
        return json_null();
    return json_pack("{s:o, s:o}", "estimated", memory_parts_json(&m->estimated), "measured",
                     memory_parts_json(&m->measured));
}

json_t *spry_bench_report_json(const spry_bench_report *r)
{
    json_t *out = json_pack("{s:s, s:s, s:s, s:o, s:s, s:I, s:I, s:s}", "format", SPRY_BENCH_FORMAT, "spry",
                            spry_version(), "when", r->when, "model", spry_bench_text_json(r->model), "architecture",
                            r->architecture, "parameters", (json_int_t)r->parameters, "weight_bytes",
                            (json_int_t)r->weight_bytes, "model_id", r->identity.model);
    const struct {
        const char *key;
        json_t *value;
        bool left_out;
    } parts[] = {
        {"machine", machine_json(r), false},
        {"settings", settings_json(r), false},
        {"prefill", points_json(r, false, false), false},
        {"decode", points_json(r, true, false), false},
        {"skipped", points_json(r, false, true), false},
        {"load_ms", time_json(&r->load_ms), false},
        {"first_token_ms", time_json(&r->first_token_ms), false},
        {"peak_rss_bytes", json_integer((json_int_t)r->one_peak_bytes), false},
        {"peak_rss_batch_bytes", json_integer((json_int_t)r->peak_bytes), false},
        {"ttft", ttft_json(&r->ttft), false},
        {"why_no_ttft", json_string(r->ttft.why_not), !r->ttft.why_not[0]},
        {"first_call", call_json(&r->call), false},
        {"why_no_first_call", json_string(r->call.why_not), !r->call.why_not[0]},
        {"answer", answer_json(&r->answer), !r->answer.tokens},
        {"memory", memory_json(&r->memory), false},
        {"why_no_memory", json_string(r->memory.why_not), !r->memory.why_not[0]},
        {"energy", spry_energy_facts_json(&r->energy), false},
        {"policy", spry_bench_policy_json(&r->policy), !r->policy.count},
    };
    bool whole = out;
    for (size_t i = 0; i < SPRY_COUNT(parts); i++)
        if (parts[i].left_out)
            json_decref(parts[i].value);
        else
            whole = json_object_set_new(out, parts[i].key, parts[i].value) == 0 && whole;
    if (whole)
        return out;
    json_decref(out);
    return NULL;
}

spry_status spry_bench_print_json(const json_t *json, spry_error *error)
{
    char *text = json ? json_dumps(json, JSON_REAL_PRECISION(6)) : NULL;
    if (!text)
        return spry_fail(error, SPRY_ERR_MEMORY, "not enough memory for the report as JSON");
    spry_out_format("%s\n", text);
    free(text);
    return SPRY_OK;
}
