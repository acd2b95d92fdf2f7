/* Joining two lists of figures by name, and judging what changed. */
#include "bench_gate.h"

#include <math.h>
#include <stdlib.h>

#include "terminal.h"

/* An op that took less of a point's time before is told, not judged: its share is smaller than the limits people set,
 * and a few microseconds are a machine's own noise. */
static const double op_share_min = 0.05;

/* Figures come from files in six digits: exactly the limit must be within it. */
static const double rounding = 1e-6;

/* ---- comparing -----------------------------------------------------------------------------------------------------
 */

static bool same_points(const spry_bench_figures *a, const spry_bench_figures *b)
{
    for (size_t i = 0; i < a->count; i++)
        if (a->list[i].of_point && !spry_bench_figures_find(b, a->list[i].what))
            return false;
    return true;
}

static void judge(spry_bench_gate *gate, spry_bench_compared *c, bool alike)
{
    if (!c->before || !c->now) {
        c->verdict = c->before ? SPRY_BENCH_ONLY_BEFORE : SPRY_BENCH_ONLY_NOW;
        return;
    }
    c->change = c->now->value / c->before->value - 1;
    if (c->before->of_all && !alike) {
        c->verdict = SPRY_BENCH_OTHER_POINTS;
        return;
    }
    double worse = c->before->less_is_better ? c->change : -c->change;
    bool dropped = worse > gate->max_drop + rounding && c->before->op_share >= op_share_min;
    c->verdict = dropped ? SPRY_BENCH_DROPPED : SPRY_BENCH_KEPT;
    gate->n_compared++;
    gate->n_dropped += dropped;
}

/* The smaller of both speeds that were measured of the machine, as a share of what it was. */
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
    return gate->machine > 0 && gate->machine < 1 - gate->max_drop - rounding;
}

spry_status spry_bench_gate_init(spry_bench_gate *gate, const json_t *before, const json_t *now, double max_drop,
                                 spry_error *error)
{
    *gate = (spry_bench_gate){.max_drop = max_drop, .machine = machine_speed(before, now)};
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

static void print_row(const spry_bench_compared *c)
{
    const spry_bench_figure *any = c->before ? c->before : c->now;
    char before[SPRY_BENCH_VALUE] = "-", now[SPRY_BENCH_VALUE] = "-", change[16] = "";
    bool bad = c->verdict == SPRY_BENCH_DROPPED;
    if (c->before)
        spry_bench_value(before, any->unit, c->before->value);
    if (c->now)
        spry_bench_value(now, any->unit, c->now->value);
    if (c->before && c->now)
        snprintf(change, sizeof change, "%+.1f %%", 100 * c->change);
    spry_out_format("%s%-34s %15s %15s %11s  %s%s\n", bad ? spry_style_begin(stdout, SPRY_STYLE_ERROR) : "", any->what,
                    before, now, change, verdicts[c->verdict], bad ? spry_style_end(stdout) : "");
}

void spry_bench_gate_print(const spry_bench_gate *gate, const char *file)
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
        spry_out_format("The machine itself came to %.0f %% of what it did before: look what else runs on it.\n",
                        100 * gate->machine);
    spry_out_format("%zu of %zu figures dropped by more than %g %% of what they were in %s\n", gate->n_dropped,
                    gate->n_compared, 100 * gate->max_drop, file);
}

static json_t *side_json(const spry_bench_figure *figure)
{
    return figure ? json_real(figure->value) : json_null();
}

json_t *spry_bench_gate_json(const spry_bench_gate *gate, const char *file)
{
    json_t *list = json_array();
    for (size_t i = 0; i < gate->count; i++) {
        const spry_bench_compared *c = &gate->list[i];
        const spry_bench_figure *any = c->before ? c->before : c->now;
        json_array_append_new(list, json_pack("{s:s, s:o, s:o, s:o, s:s}", "what", any->what, "before",
                                              side_json(c->before), "now", side_json(c->now), "change",
                                              c->before && c->now ? json_real(c->change) : json_null(), "verdict",
                                              verdicts[c->verdict]));
    }
    return json_pack("{s:o, s:f, s:I, s:I, s:b, s:b, s:o}", "baseline", spry_bench_text_json(file), "max_drop",
                     gate->max_drop, "compared", (json_int_t)gate->n_compared, "dropped", (json_int_t)gate->n_dropped,
                     "passed", gate->n_dropped == 0, "machine_slower", machine_slower(gate), "figures", list);
}
