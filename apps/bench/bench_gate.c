/* Joins two lists of figures by name and judges the changes. */
#include "bench/bench_gate.h"

#include <math.h>
#include <stdlib.h>

#include "cli/terminal.h"

/* An op with a smaller share of a point's time is reported but not judged: a few microseconds are within noise. */
static const double op_share_min = 0.05;

/* Figures in files have six digits: exactly the limit must pass. */
static const double rounding = 1e-5;

/* ---- comparing -----------------------------------------------------------------------------------------------------
 */

static bool same_points(const spry_bench_figures *a, const spry_bench_figures *b)
{
    for (size_t i = 0; i < a->count; i++)
        if (a->list[i].of_point && !spry_bench_figures_find(b, a->list[i].what))
            return false;
    return true;
}

static bool may_lack(const spry_bench_gate_rules *rules, spry_bench_of of)
{
    return rules->force || (of == SPRY_BENCH_OF_PREFILL && rules->may_lack_prefills) ||
           (of == SPRY_BENCH_OF_DECODE && rules->may_lack_decodes);
}

static void judge(spry_bench_gate *gate, spry_bench_compared *c, bool alike)
{
    const spry_bench_figure *before = c->before, *now = c->now;
    if (!before) {
        c->verdict = SPRY_BENCH_ONLY_NOW;
        return;
    }
    const bool counts = before->op_share >= op_share_min, same_prompt = now && now->prompt == before->prompt;
    c->change = now ? now->value / before->value - 1 : 0;
    c->missing = !same_prompt && counts && !may_lack(&gate->rules, before->of);
    gate->n_missing += c->missing;
    if (!same_prompt || (before->of_points && !alike)) {
        c->verdict = now ? SPRY_BENCH_OTHER_POINTS : SPRY_BENCH_ONLY_BEFORE;
        return;
    }
    double worse = before->less_is_better ? c->change : -c->change;
    bool dropped = worse > gate->rules.max_drop + rounding && counts;
    c->verdict = dropped ? SPRY_BENCH_DROPPED : SPRY_BENCH_KEPT;
    gate->n_compared++;
    gate->n_dropped += dropped;
}

/* The smaller ratio of the two machine speeds, now to before. */
static double machine_speed(const json_t *before, const json_t *now)
{
    static const char *const keys[] = {"read_gb_s", "multiply_g_s"};
    double least = 0;
    for (size_t i = 0; i < SPRY_COUNT(keys); i++) {
        double was = json_number_value(json_object_get(json_object_get(before, "machine"), keys[i]));
        double is = json_number_value(json_object_get(json_object_get(now, "machine"), keys[i]));
        double share = was > 0 && is > 0 ? is / was : 0;
        least = share > 0 && (least <= 0 || share < least) ? share : least;
    }
    return least;
}

static bool machine_slower(const spry_bench_gate *gate)
{
    return gate->machine > 0 && gate->machine < 1 - gate->rules.max_drop - rounding;
}

spry_status spry_bench_gate_init(spry_bench_gate *gate, const json_t *before, const json_t *now,
                                 const spry_bench_gate_rules *rules, spry_error *error)
{
    *gate = (spry_bench_gate){.rules = *rules, .machine = machine_speed(before, now)};
    spry_bench_figures_init(&gate->before, before);
    spry_bench_figures_init(&gate->now, now);
    size_t most = gate->before.count + gate->now.count;
    gate->list = calloc(most + 1, sizeof *gate->list);
    if (gate->before.failed || gate->now.failed || !gate->list)
        return spry_fail_memory(error, "comparing reports", most * sizeof *gate->list);
    bool alike = same_points(&gate->before, &gate->now) && same_points(&gate->now, &gate->before) &&
                 !json_object_get(before, "policy") == !json_object_get(now, "policy");
    for (size_t i = 0; i < gate->before.count; i++) {
        spry_bench_compared *c = &gate->list[gate->count++];
        c->before = &gate->before.list[i];
        c->now = spry_bench_figures_find(&gate->now, c->before->what);
        judge(gate, c, alike);
    }
    for (size_t i = 0; i < gate->now.count; i++)
        if (!spry_bench_figures_find(&gate->before, gate->now.list[i].what)) {
            spry_bench_compared *c = &gate->list[gate->count++];
            c->now = &gate->now.list[i];
            judge(gate, c, alike);
        }
    if (!gate->n_compared)
        return spry_fail(error, SPRY_ERR_INPUT, "the two reports have no figure in common: nothing was compared");
    return SPRY_OK;
}

bool spry_bench_gate_passed(const spry_bench_gate *gate)
{
    return !gate->n_dropped && !gate->n_missing;
}

void spry_bench_gate_deinit(spry_bench_gate *gate)
{
    spry_bench_figures_deinit(&gate->before);
    spry_bench_figures_deinit(&gate->now);
    free(gate->list);
    *gate = (spry_bench_gate){0};
}

/* ---- telling -------------------------------------------------------------------------------------------------------
 */

static const char *const verdicts[] = {
    [SPRY_BENCH_KEPT] = "ok",
    [SPRY_BENCH_DROPPED] = "dropped",
    [SPRY_BENCH_ONLY_BEFORE] = "only before",
    [SPRY_BENCH_ONLY_NOW] = "only now",
    [SPRY_BENCH_OTHER_POINTS] = "other points",
};

static const char *verdict_of(const spry_bench_compared *c)
{
    return c->missing && !c->now ? "missing" : verdicts[c->verdict];
}

static void print_row(const spry_bench_compared *c)
{
    const spry_bench_figure *any = c->before ? c->before : c->now;
    char before[SPRY_BENCH_VALUE] = "-", now[SPRY_BENCH_VALUE] = "-", change[16] = "";
    bool bad = c->missing || c->verdict == SPRY_BENCH_DROPPED;
    if (c->before)
        spry_bench_value(before, any->unit, c->before->value);
    if (c->now)
        spry_bench_value(now, any->unit, c->now->value);
    if (c->before && c->now)
        snprintf(change, sizeof change, "%+.1f %%", 100 * c->change);
    spry_out_format("%s%-34s %15s %15s %11s  %s%s\n", bad ? spry_style_begin(stdout, SPRY_STYLE_ERROR) : "", any->what,
                    before, now, change, verdict_of(c), bad ? spry_style_end(stdout) : "");
}

void spry_bench_gate_print(const spry_bench_gate *gate, const char *file, const char *differences)
{
    spry_out_format("\n%s%-34s %15s %15s %11s  %s%s\n", spry_style_begin(stdout, SPRY_STYLE_BOLD),
                    "Against the baseline", "before", "now", "change", "verdict", spry_style_end(stdout));
    for (size_t i = 0; i < gate->count; i++)
        print_row(&gate->list[i]);
    spry_out_format(
        "\nTime in kernels is the share of a point's time in products and attention; below it is the speed of\n"
        "each of them: GB/s read in decodes, G products/s in prefills. Of these only those count that took\n"
        "at least 5 %% of the time before.\n");
    if (machine_slower(gate))
        spry_out_format("The machine itself had %.0f %% of its earlier speed: check for other programs.\n",
                        100 * gate->machine);
    spry_out_quote("%s: %zu of %zu figures are worse by more than %g %% than in %s",
                   spry_bench_gate_passed(gate) ? "Passed" : "Failed", gate->n_dropped, gate->n_compared,
                   100 * gate->rules.max_drop, file);
    if (gate->n_missing)
        spry_out_format("; %zu others of the baseline are missing", gate->n_missing);
    spry_out_format("\n");
    if (differences[0])
        spry_out_quote("Compared because of --force: %s\n", differences);
}

static json_t *side_json(const spry_bench_figure *figure)
{
    return figure ? json_real(figure->value) : json_null();
}

static json_t *compared_json(const spry_bench_compared *c)
{
    const spry_bench_figure *any = c->before ? c->before : c->now;
    return json_pack("{s:s, s:o, s:o, s:o, s:s}", "what", any->what, "before", side_json(c->before), "now",
                     side_json(c->now), "change", c->before && c->now ? json_real(c->change) : json_null(), "verdict",
                     verdict_of(c));
}

json_t *spry_bench_gate_json(const spry_bench_gate *gate, const char *file, const char *differences)
{
    json_t *list = json_array();
    bool whole = list;
    for (size_t i = 0; i < gate->count; i++)
        whole = json_array_append_new(list, compared_json(&gate->list[i])) == 0 && whole;
    json_t *out = json_pack("{s:o, s:f, s:I, s:I, s:I, s:b, s:b, s:o, s:o}", "baseline", spry_bench_text_json(file),
                            "max_drop", gate->rules.max_drop, "compared", (json_int_t)gate->n_compared, "dropped",
                            (json_int_t)gate->n_dropped, "missing", (json_int_t)gate->n_missing, "passed",
                            spry_bench_gate_passed(gate), "machine_slower", machine_slower(gate), "differences",
                            differences[0] ? spry_bench_text_json(differences) : json_null(), "figures", list);
    if (whole)
        return out;
    json_decref(out);
    return NULL;
}
