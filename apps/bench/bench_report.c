/* The report as text in 100 columns. */
#include <math.h>
#include <stdarg.h>
#include <string.h>

#include "bench/bench.h"
#include "cli/energy_figures.h"
#include "cli/terminal.h"

enum { TOP_OPS = 7, COLUMNS = 100, INDENT = 26 };

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
    spry_out_format("%s", bold());
    spry_out_quote("%s", r->model);
    spry_out_format("%s\n", plain());
    spry_out_format("%s, %s parameters, %s of weights, mostly %s\n", r->architecture,
                    spry_amount_count(parameters, r->parameters), spry_amount_bytes(bytes, r->weight_bytes),
                    spry_dtype_name(r->main_type));
    if (m->gpu[0])
        spry_out_quote("%s, beside %s\n", m->gpu, m->cpu);
    else
        spry_out_quote("%s, %u %s, %s kernels\n", m->cpu, m->threads, m->threads == 1 ? "thread" : "threads",
                       m->kernels);
    spry_out_format("reads %.1f GB/s from memory, makes %.0f G products/s %s\n", m->read_gb_s, m->multiply_g_s,
                    m->gpu[0] ? "of F16, at most" : "in cache");
}

/* ---- points --------------------------------------------------------------------------------------------------------
 */

static void print_heading(const char *what, const char *first, const char *second, const char *third)
{
    spry_out_format("\n%s%-8s %8s %9s %12s %9s %11s %11s %11s%s\n", bold(), what, first, second, "tokens/s", "spread",
                    third, "read", "multiply", plain());
}

static void print_point(const spry_bench_report *r, const spry_bench_point *p)
{
    char batch[16] = "", time[SPRY_AMOUNT_MAX];
    double ms = p->decode ? p->steps.p95_ms : spry_bench_ratio(p->tokens * 1e3, p->tps.median);
    if (p->decode)
        snprintf(batch, sizeof batch, "%u", p->batch);
    spry_out_format("%-8s %8u %9s ", "", p->tokens, batch);
    if (p->skipped[0]) {
        spry_out_format("   skipped: %s\n", p->skipped);
        return;
    }
    if (ms < 100)
        snprintf(time, sizeof time, "%.3g ms", ms);
    else
        spry_amount_time(time, ms);
    spry_out_format("%12.1f %7.1f %% %11s %9.0f %% %9.0f %%\n", p->tps.median, 100 * spry_bench_spread(&p->tps), time,
                    100 * spry_bench_ratio(p->read_gb_s, r->machine.read_gb_s),
                    100 * spry_bench_ratio(p->multiply_g_s, r->machine.multiply_g_s));
}

static void print_points(const spry_bench_report *r, bool decode)
{
    bool any = false;
    for (size_t i = 0; i < r->n_points; i++) {
        if (r->points[i].decode != decode)
            continue;
        if (!any && decode)
            print_heading("Decode", "depth", "together", "step p95");
        else if (!any)
            print_heading("Prefill", "tokens", "", "time");
        any = true;
        print_point(r, &r->points[i]);
    }
}

/* ---- where the time goes -------------------------------------------------------------------------------------------
 */

/* The largest prefill, or the decode of one sequence at the smallest depth (of several if there is none of one). */
static const spry_bench_point *typical(const spry_bench_report *r, bool decode)
{
    const spry_bench_point *best = NULL;
    for (size_t i = 0; i < r->n_points; i++) {
        const spry_bench_point *p = &r->points[i];
        if (p->decode != decode || p->skipped[0])
            continue;
        bool better = !best || (decode ? p->batch < best->batch || (p->batch == best->batch && p->tokens < best->tokens)
                                       : p->tokens > best->tokens);
        best = better ? p : best;
    }
    return best;
}

static void print_ops(const spry_bench_point *p, const char *what)
{
    double rest = 1;
    if (!p || !p->n_ops)
        return;
    char text[48];
    int column = snprintf(text, sizeof text, "%-8s %6u  ", what, p->tokens);
    spry_out_format("%s", text);
    for (size_t i = 0; i < p->n_ops && i < TOP_OPS; i++) {
        int length = snprintf(text, sizeof text, "%s%s %.0f %%", i ? ", " : "", spry_op_name(p->ops[i].op),
                              100 * p->ops[i].share);
        if (column + length > COLUMNS - (int)sizeof ", the rest 99 %")
            break;
        column += length;
        rest -= p->ops[i].share;
        spry_out_format("%s", text);
    }
    spry_out_format(", the rest %.0f %%\n", 100 * (rest > 0 ? rest : 0));
}

/* The share of time in the kernels of op classes, on the device of the engine. */
static void print_residency(const spry_bench_point *p, const char *what)
{
    static const struct {
        const char *name;
        uint32_t ops;
    } classes[] = {{"attention", 1u << SPRY_OP_QKV | 1u << SPRY_OP_ATTEND | 1u << SPRY_OP_OUT},
                   {"feed-forward", 1u << SPRY_OP_GATE_UP | 1u << SPRY_OP_DOWN},
                   {"output", 1u << SPRY_OP_LOGITS}};
    double shares[SPRY_COUNT(classes)] = {0}, all = 0;
    if (!p || !p->n_ops)
        return;
    for (size_t i = 0; i < p->n_ops; i++)
        for (size_t k = 0; k < SPRY_COUNT(classes); k++)
            if (classes[k].ops >> p->ops[i].op & 1) {
                shares[k] += p->ops[i].share;
                all += p->ops[i].share;
            }
    spry_out_format("%-8s %6u  %.0f %% in kernels: ", what, p->tokens, 100 * all);
    for (size_t k = 0; k < SPRY_COUNT(classes); k++)
        spry_out_format("%s%s %.0f %%", k ? ", " : "", classes[k].name, 100 * shares[k]);
    spry_out_format("\n");
}

/* How a device that is not the host is used. */
static void print_device_use(const spry_bench_point *p, const char *what)
{
    if (!p)
        return;
    spry_out_format("%-8s %6u  the host waits %.3g times a token", what, p->tokens, p->waits);
    if (!isnan(p->gpu_busy))
        spry_out_format(", the GPU is busy %.0f %% of the time (NVML)", p->gpu_busy);
    spry_out_format("\n");
}

static void print_device(const spry_bench_report *r)
{
    const spry_bench_answer *a = &r->answer;
    if (!strcmp(r->device, "cpu") || !r->n_points)
        return;
    spry_out_format("\n%sDevice %s%s\n", bold(), r->device, plain());
    print_device_use(typical(r, false), "prefill");
    print_device_use(typical(r, true), "decode");
    if (a->tokens)
        spry_out_format(
            "%-8s %6zu  %.1f tok/s with draws, the host waits %.3g times a token, %.0f %% of the steps begin "
            "ahead\n",
            "answer", a->tokens, spry_bench_ratio((double)(a->tokens - 1) * 1e3, a->ms), a->waits, 100 * a->ahead);
}

/* ---- single figures ------------------------------------------------------------------------------------------------
 */

/* A name, a value and a sentence, which continues in the third column of the next lines. */
static void print_figure(const char *what, const char *value, const char *format, ...) SPRY_PRINTF(3, 4);

static void print_figure(const char *what, const char *value, const char *format, ...)
{
    char text[512];
    size_t room = COLUMNS - INDENT;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    spry_out_format("%-12s %10s   ", what, value);
    const char *at = text;
    while (strlen(at) > room) {
        size_t cut = room;
        while (cut && at[cut] != ' ')
            cut--;
        cut = cut ? cut : room;
        spry_out_format("%.*s\n%*s", (int)cut, at, INDENT, "");
        at += cut + (at[cut] == ' ');
    }
    spry_out_format("%s\n", at);
}

static void print_time(const char *what, const spry_bench_stat *stat, const char *means)
{
    char median[SPRY_AMOUNT_MAX], least[SPRY_AMOUNT_MAX], most[SPRY_AMOUNT_MAX];
    if (stat->median > 0)
        print_figure(what, spry_amount_time(median, stat->median), "%s to %s: %s", spry_amount_time(least, stat->least),
                     spry_amount_time(most, stat->most), means);
    else
        print_figure(what, "-", "spry run cannot answer with this model");
}

static void print_request(const spry_bench_ttft *t)
{
    char cold[SPRY_AMOUNT_MAX], warm[SPRY_AMOUNT_MAX];
    if (t->why_not[0])
        print_figure("Request", "-", "not measured: %s", t->why_not);
    else
        print_figure("Request", spry_amount_time(cold, t->cold.ms),
                     "to the first token after %zu; %s with %zu of them cached", t->cold.prompt_tokens,
                     spry_amount_time(warm, t->warm.ms), t->warm.hit_tokens);
}

static void print_call(const spry_bench_call *c)
{
    char time[SPRY_AMOUNT_MAX];
    if (c->why_not[0])
        print_figure("First call", "-", "not measured: %s", c->why_not);
    else
        print_figure("First call", spry_amount_time(time, c->ms),
                     "until a call of a tool is complete, after %zu tokens", c->tokens);
}

static void print_memory(const spry_bench_report *r)
{
    char one[SPRY_AMOUNT_MAX], all[SPRY_AMOUNT_MAX];
    const spry_memory_parts *e = &r->memory.estimated, *m = &r->memory.measured;
    print_figure("Memory", spry_amount_bytes(one, r->one_peak_bytes), "for one sequence; %s in all, at most",
                 spry_amount_bytes(all, r->peak_bytes));
    if (r->memory.why_not[0]) {
        print_figure("", "-", "by part, not measured: %s", r->memory.why_not);
        return;
    }
    const struct {
        const char *name;
        size_t estimated, measured;
    } parts[] = {{"weights", e->weights, m->weights}, {"kv", e->kv, m->kv},
                 {"cache", e->cache, m->cache},       {"scratch", e->scratch, m->scratch},
                 {"program", e->program, m->program}, {"whole", e->whole, m->whole}};
    spry_out_format("%-12s %10s  ", "", "MB");
    for (size_t i = 0; i < SPRY_COUNT(parts); i++)
        spry_out_format(" %9s", parts[i].name);
    spry_out_format("\n%-12s %10s  ", "", "estimated");
    for (size_t i = 0; i < SPRY_COUNT(parts); i++)
        spry_out_format(" %9.1f", (double)parts[i].estimated / 1e6);
    spry_out_format("\n%-12s %10s  ", "", "measured");
    for (size_t i = 0; i < SPRY_COUNT(parts); i++)
        spry_out_format(" %9.1f", (double)parts[i].measured / 1e6);
    spry_out_format("\n");
}

static void print_energy(const spry_bench_report *r)
{
    const spry_energy_facts *facts = &r->energy;
    const spry_bench_point *p = spry_bench_energy_point(r);
    char joules[SPRY_AMOUNT_MAX];
    if (!p && (facts->has_cpu || facts->has_gpu)) {
        print_figure("Energy", "-", "not measured: too short for the counters");
        return;
    }
    if (!p) {
        print_figure("Energy", "-", "not measured: %s; %s", facts->cpu, facts->gpu);
        return;
    }
    double whole = spry_joules_whole(&p->energy.used);
    snprintf(joules, sizeof joules, "%.3g J", whole / (double)p->energy.tokens * 100);
    const spry_joules *used = &p->energy.used;
    print_figure("Energy", joules, "for 100 tokens of %s at %u, %.0f W%s: %s%s%s", p->decode ? "decode" : "prefill",
                 p->tokens, whole / p->energy.ms * 1e3, used->has_cpu ? "" : " of the GPU alone",
                 used->has_cpu ? facts->cpu : "", used->has_cpu && used->has_gpu ? " and " : "",
                 used->has_gpu ? facts->gpu : "");
}

void spry_bench_print_table(const spry_bench_report *r)
{
    print_head(r);
    print_points(r, false);
    print_points(r, true);
    if (typical(r, false) || typical(r, true))
        spry_out_format("\n%sTime of ops%s\n", bold(), plain());
    print_ops(typical(r, false), "prefill");
    print_ops(typical(r, true), "decode");
    if (typical(r, false) || typical(r, true))
        spry_out_format("\n%sResidency%s\n", bold(), plain());
    print_residency(typical(r, false), "prefill");
    print_residency(typical(r, true), "decode");
    print_device(r);
    if (r->policy.count)
        spry_bench_policy_print(&r->policy);
    spry_out_format("\n");
    print_time("First token", &r->first_token_ms, "from the start of a new process");
    print_request(&r->ttft);
    print_call(&r->call);
    print_time("Load", &r->load_ms, "the model, until it is ready");
    print_memory(r);
    print_energy(r);
    if (r->n_points)
        spry_out_format(
            "\n"
            "Spread is the range of the repeats; 95 %% of the steps are at most p95. Read and multiply are shares\n"
            "of the machine's limits; a model that fits the caches is read faster than memory.\n");
}
