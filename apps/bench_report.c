/* The report for people, in 80 columns, and for programs, as one JSON object. */
#include <stdlib.h>

#include <jansson.h>

#include "bench.h"
#include "terminal.h"

static double spread(const spry_bench_stat *stat)
{
    return stat->median > 0 ? (stat->most - stat->least) / stat->median : 0;
}

static double share(double reached, double possible)
{
    return possible > 0 ? reached / possible : 0;
}

/* ---- the table -----------------------------------------------------------------------------------------------------
 */

static const char *bold(void)
{
    return spry_style_begin(stdout, SPRY_STYLE_BOLD);
}

static const char *plain(void)
{
    return spry_style_end(stdout);
}

static void print_head(const spry_bench_report *r)
{
    const spry_bench_machine *m = &r->machine;
    char parameters[SPRY_AMOUNT_MAX], bytes[SPRY_AMOUNT_MAX];
    spry_out_format("%s%s%s\n", bold(), r->model, plain());
    spry_out_format("%s, %s parameters, %s of weights, mostly %s\n", r->architecture,
                    spry_amount_count(parameters, r->parameters), spry_amount_bytes(bytes, r->weight_bytes),
                    spry_dtype_name(r->main_type));
    spry_out_format("%s, %u %s, %s kernels\n", m->cpu, m->threads, m->threads == 1 ? "thread" : "threads", m->kernels);
    spry_out_format("reads %.1f GB/s from memory, makes %.0f G products/s in cache\n", m->read_gb_s, m->multiply_g_s);
}

static void print_heading(const char *what, const char *first, const char *second)
{
    spry_out_format("\n%s%-8s %8s %9s %12s %9s %12s %14s%s\n", bold(), what, first, second, "tokens/s", "spread",
                    "read", "multiply", plain());
}

static void print_point(const spry_bench_report *r, const spry_bench_point *p)
{
    char batch[16] = "";
    if (p->decode)
        snprintf(batch, sizeof batch, "%u", p->batch);
    spry_out_format("%-8s %8u %9s ", "", p->tokens, batch);
    if (p->skipped[0]) {
        spry_out_format("   skipped: %s\n", p->skipped);
        return;
    }
    spry_out_format("%12.1f %7.1f %% %10.0f %% %12.0f %%\n", p->tps.median, 100 * spread(&p->tps),
                    100 * share(p->read_gb_s, r->machine.read_gb_s),
                    100 * share(p->multiply_g_s, r->machine.multiply_g_s));
}

static void print_points(const spry_bench_report *r, bool decode)
{
    bool any = false;
    for (size_t i = 0; i < r->n_points; i++) {
        if (r->points[i].decode != decode)
            continue;
        if (!any && decode)
            print_heading("Decode", "depth", "together");
        else if (!any)
            print_heading("Prefill", "tokens", "");
        any = true;
        print_point(r, &r->points[i]);
    }
}

static void print_time(const char *what, const spry_bench_stat *stat, const char *means)
{
    char median[SPRY_AMOUNT_MAX], least[SPRY_AMOUNT_MAX], most[SPRY_AMOUNT_MAX];
    if (stat->median > 0)
        spry_out_format("%-12s %10s   %s to %s: %s\n", what, spry_amount_time(median, stat->median),
                        spry_amount_time(least, stat->least), spry_amount_time(most, stat->most), means);
    else
        spry_out_format("%-12s %10s   spry run gives no answer with this model\n", what, "-");
}

void spry_bench_print_table(const spry_bench_report *r)
{
    char one[SPRY_AMOUNT_MAX], all[SPRY_AMOUNT_MAX];
    print_head(r);
    print_points(r, false);
    print_points(r, true);
    spry_out_format("\n");
    print_time("First token", &r->first_token_ms, "from the start of a new process");
    print_time("Load", &r->load_ms, "the model, until it is ready");
    spry_out_format("%-12s %10s   for one sequence; %s in all\n", "Memory", spry_amount_bytes(one, r->one_peak_bytes),
                    spry_amount_bytes(all, r->peak_bytes));
    if (r->n_points)
        spry_out_format("\nSpread is the range of the repeats. Read and multiply are shares of what the\n"
                        "machine can do; a model that fits the caches is read faster than memory.\n");
}

/* ---- JSON ----------------------------------------------------------------------------------------------------------
 */

static json_t *point_json(const spry_bench_report *r, const spry_bench_point *p)
{
    json_t *out = p->decode ? json_pack("{s:I, s:I}", "depth", (json_int_t)p->tokens, "batch", (json_int_t)p->batch)
                            : json_pack("{s:I}", "tokens", (json_int_t)p->tokens);
    json_t *numbers =
        json_pack("{s:f, s:f, s:f, s:f, s:f, s:f}", "tps", p->tps.median, "spread", spread(&p->tps), "read_gb_s",
                  p->read_gb_s, "read_share", share(p->read_gb_s, r->machine.read_gb_s), "multiply_g_s",
                  p->multiply_g_s, "multiply_share", share(p->multiply_g_s, r->machine.multiply_g_s));
    if (p->skipped[0])
        json_object_set_new(out, "why", json_string(p->skipped));
    else
        json_object_update(out, numbers);
    json_decref(numbers);
    return out;
}

/* The points that were run, or those that were not. */
static json_t *points_json(const spry_bench_report *r, bool decode, bool skipped)
{
    json_t *list = json_array();
    for (size_t i = 0; i < r->n_points; i++) {
        bool was_skipped = r->points[i].skipped[0] != '\0';
        if ((skipped || r->points[i].decode == decode) && was_skipped == skipped)
            json_array_append_new(list, point_json(r, &r->points[i]));
    }
    return list;
}

static json_t *time_json(const spry_bench_stat *stat)
{
    return stat->median > 0 ? json_real(stat->median) : json_null();
}

static json_t *machine_json(const spry_bench_report *r)
{
    const spry_bench_machine *m = &r->machine;
    return json_pack("{s:s, s:I, s:s, s:f, s:f, s:s}", "cpu", m->cpu, "threads", (json_int_t)m->threads, "kernels",
                     m->kernels, "read_gb_s", m->read_gb_s, "multiply_g_s", m->multiply_g_s, "multiply_type",
                     spry_dtype_name(r->main_type));
}

spry_status spry_bench_print_json(const spry_bench_report *r, spry_error *error)
{
    json_t *out = json_pack("{s:s, s:s, s:I, s:I}", "model", r->model, "architecture", r->architecture, "parameters",
                            (json_int_t)r->parameters, "weight_bytes", (json_int_t)r->weight_bytes);
    const struct {
        const char *key;
        json_t *value;
    } parts[] = {
        {"prefill", points_json(r, false, false)},
        {"decode", points_json(r, true, false)},
        {"skipped", points_json(r, false, true)},
        {"load_ms", time_json(&r->load_ms)},
        {"first_token_ms", time_json(&r->first_token_ms)},
        {"peak_rss_bytes", json_integer((json_int_t)r->one_peak_bytes)},
        {"peak_rss_batch_bytes", json_integer((json_int_t)r->peak_bytes)},
        {"machine", machine_json(r)},
    };
    bool whole = out;
    for (size_t i = 0; i < SPRY_COUNT(parts); i++)
        whole = json_object_set_new(out, parts[i].key, parts[i].value) == 0 && whole;
    char *text = whole ? json_dumps(out, JSON_REAL_PRECISION(6)) : NULL;
    json_decref(out);
    if (!text)
        return spry_fail_memory(error, "the report as JSON", r->n_points * sizeof *r->points);
    spry_out_format("%s\n", text);
    free(text);
    return SPRY_OK;
}
