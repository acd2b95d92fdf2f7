/* Reports as lists of figures, which are joined by name and judged. */
#include "bench/bench_gate.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/bench.h"

/* An op with a smaller share of a point's time is reported but not judged: a few microseconds are within noise. */
static const double op_share_min = 0.05;

/* Figures in files have six digits: exactly the limit must pass. */
static const double rounding = 1e-5;

/* ---- figures ----------------------------------------------------------------------------------------------------- */

static void add(spry_bench_figures *figures, spry_bench_figure figure)
{
    if (figures->count == figures->capacity) {
        size_t capacity = figures->capacity ? 2 * figures->capacity : 64;
        spry_bench_figure *list = realloc(figures->list, capacity * sizeof *list);
        if (!list) {
            figures->failed = true;
            return;
        }
        figures->list = list;
        figures->capacity = capacity;
    }
    figures->list[figures->count++] = figure;
}

/* Adds a figure that was measured: its value is above 0. */
static void add_measured(spry_bench_figures *figures, spry_bench_figure figure)
{
    figure.op_share = figure.op_share > 0 ? figure.op_share : 1;
    if (figure.value > 0)
        add(figures, figure);
}

/* The op classes with kernels for the machine: the rest is bookkeeping. */
static const spry_op kernels[] = {SPRY_OP_QKV,     SPRY_OP_ATTEND, SPRY_OP_OUT,
                                  SPRY_OP_GATE_UP, SPRY_OP_DOWN,   SPRY_OP_LOGITS};

/* An op class of a point, over all matrix types. */
typedef struct op_class {
    double ms, share, work; /* work: gigabytes, or billions of products, times 1000 */
} op_class;

static op_class sum_class(const json_t *ops, const char *name, const char *speed)
{
    op_class sum = {0};
    for (size_t i = 0; i < json_array_size(ops); i++) {
        const json_t *op = json_array_get(ops, i);
        if (strcmp(spry_bench_text(op, "op"), name) != 0)
            continue;
        sum.ms += spry_bench_number(op, "ms");
        sum.share += spry_bench_number(op, "share");
        sum.work += spry_bench_number(op, "ms") * spry_bench_number(op, speed);
    }
    return sum;
}

bool spry_bench_places(double shares[SPRY_BENCH_PLACES], const json_t *point)
{
    const json_t *ops = json_object_get(point, "ops");
    bool gpu = false;
    memset(shares, 0, SPRY_BENCH_PLACES * sizeof *shares);
    for (size_t i = 0; i < json_array_size(ops); i++) {
        const json_t *op = json_array_get(ops, i);
        const char *device = spry_bench_text(op, "device");
        const bool copies = strcmp(spry_bench_text(op, "op"), spry_op_name(SPRY_OP_EXCHANGE)) == 0;
        spry_bench_place place = copies                    ? SPRY_BENCH_ON_THE_WAY
                                 : !strcmp(device, "cpu")  ? SPRY_BENCH_ON_CPU
                                 : !strcmp(device, "host") ? SPRY_BENCH_ON_HOST
                                                           : SPRY_BENCH_ON_GPU;
        shares[place] += spry_bench_number(op, "share");
        gpu = gpu || place == SPRY_BENCH_ON_GPU;
    }
    return gpu;
}

/* With a GPU: the part of the time of attention and feed-forward that is the GPU's. */
static void add_on_device(spry_bench_figures *figures, const json_t *point, const char *name, spry_bench_of of)
{
    const json_t *ops = json_object_get(point, "ops");
    double places[SPRY_BENCH_PLACES], all = 0, gpu = 0;
    if (!spry_bench_places(places, point))
        return;
    for (size_t i = 0; i < json_array_size(ops); i++)
        for (size_t k = 0; k < SPRY_COUNT(kernels); k++) {
            const json_t *op = json_array_get(ops, i);
            if (kernels[k] == SPRY_OP_LOGITS || strcmp(spry_bench_text(op, "op"), spry_op_name(kernels[k])) != 0)
                continue;
            all += spry_bench_number(op, "share");
            gpu += strcmp(spry_bench_text(op, "device"), "cpu") == 0 ? 0 : spry_bench_number(op, "share");
        }
    spry_bench_figure figure = {.unit = SPRY_BENCH_SHARE, .of = of, .value = spry_bench_ratio(gpu, all)};
    snprintf(figure.what, sizeof figure.what, "%.40s, layers on the device", name);
    add_measured(figures, figure);
}

static void add_ops(spry_bench_figures *figures, const json_t *point, const char *name, bool decode)
{
    const json_t *ops = json_object_get(point, "ops");
    const spry_bench_of of = decode ? SPRY_BENCH_OF_DECODE : SPRY_BENCH_OF_PREFILL;
    spry_bench_figure resident = {.unit = SPRY_BENCH_SHARE, .of = of};
    op_class sums[SPRY_COUNT(kernels)];
    for (size_t i = 0; i < SPRY_COUNT(kernels); i++) {
        sums[i] = sum_class(ops, spry_op_name(kernels[i]), decode ? "gb_s" : "multiply_g_s");
        resident.value += sums[i].share;
    }
    snprintf(resident.what, sizeof resident.what, "%.40s, time in kernels", name);
    add_measured(figures, resident);
    add_on_device(figures, point, name, of);
    for (size_t i = 0; i < SPRY_COUNT(kernels); i++) {
        spry_bench_figure figure = {.unit = decode ? SPRY_BENCH_GB_S : SPRY_BENCH_G_S,
                                    .of = of,
                                    .op_share = sums[i].share > 0 ? sums[i].share : 1e-9,
                                    .value = spry_bench_ratio(sums[i].work, sums[i].ms)};
        snprintf(figure.what, sizeof figure.what, "%.40s, %.16s", name, spry_op_name(kernels[i]));
        add_measured(figures, figure);
    }
}

static void add_points(spry_bench_figures *figures, const json_t *points, bool decode)
{
    for (size_t i = 0; i < json_array_size(points); i++) {
        const json_t *point = json_array_get(points, i);
        spry_bench_figure speed = {.unit = SPRY_BENCH_TPS,
                                   .of = decode ? SPRY_BENCH_OF_DECODE : SPRY_BENCH_OF_PREFILL,
                                   .of_point = true,
                                   .value = spry_bench_number(point, "tps")};
        if (decode)
            snprintf(speed.what, sizeof speed.what, "decode %.0f x %.0f", spry_bench_number(point, "depth"),
                     spry_bench_number(point, "batch"));
        else
            snprintf(speed.what, sizeof speed.what, "prefill %.0f", spry_bench_number(point, "tokens"));
        if (spry_bench_figures_find(figures, speed.what))
            continue; /* measured twice */
        add_measured(figures, speed);
        spry_bench_figure steps = {.unit = SPRY_BENCH_MS,
                                   .less_is_better = true,
                                   .of = SPRY_BENCH_OF_DECODE,
                                   .value = decode ? spry_bench_number(point, "p95_ms") : 0};
        snprintf(steps.what, sizeof steps.what, "%.40s, p95 of steps", speed.what);
        add_measured(figures, steps);
        add_ops(figures, point, speed.what, decode);
    }
}

/* Joules of the decode of one sequence at the smallest depth. They are held against targets, but never compared. */
static double joules_of(const json_t *points)
{
    const json_t *best = NULL;
    for (size_t i = 0; i < json_array_size(points); i++) {
        const json_t *point = json_array_get(points, i);
        if (spry_bench_number(point, "batch") == 1 &&
            (!best || spry_bench_number(point, "depth") < spry_bench_number(best, "depth")))
            best = point;
    }
    return spry_bench_number(best, "energy.joules_per_100_tokens");
}

static void add_report_of_points(spry_bench_figures *figures, const json_t *report)
{
    const double prompt = spry_bench_number(report, "ttft.prompt_tokens");
    const struct {
        spry_bench_figure figure;
        const char *path;
    } whole[] = {
        {{"first token, cold", SPRY_BENCH_MS, true, .prompt = prompt}, "ttft.cold_ms"},
        {{"first token, warm", SPRY_BENCH_MS, true, .prompt = prompt}, "ttft.warm_ms"},
        {{"first call", SPRY_BENCH_MS, true, .value = 0}, "first_call.ms"},
        {{"first call, tokens", SPRY_BENCH_TOKENS, true, .value = 0}, "first_call.tokens"},
        {{"memory", SPRY_BENCH_BYTES, true, .of_points = true}, "memory.measured.whole"},
        {{"memory, one sequence", SPRY_BENCH_BYTES, true, .of_points = true}, "peak_rss_bytes"},
        {{"memory, peak", SPRY_BENCH_BYTES, true, .of_points = true}, "peak_rss_batch_bytes"},
    };
    for (size_t i = 0; i < SPRY_COUNT(whole); i++) {
        spry_bench_figure figure = whole[i].figure;
        figure.value = spry_bench_number(report, whole[i].path);
        add_measured(figures, figure);
    }
    add_points(figures, json_object_get(report, "prefill"), false);
    add_points(figures, json_object_get(report, "decode"), true);
    add_measured(figures, (spry_bench_figure){"100 tokens of decode", SPRY_BENCH_JOULES, true,
                                              .value = joules_of(json_object_get(report, "decode"))});
}

void spry_bench_figures_init(spry_bench_figures *figures, const json_t *report)
{
    const json_t *list = json_object_get(report, "figures");
    *figures = (spry_bench_figures){0};
    if (!list)
        add_report_of_points(figures, report);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *one = json_array_get(list, i);
        spry_bench_figure figure = {.unit = spry_bench_unit_of(spry_bench_text(one, "unit")),
                                    .less_is_better = strcmp(spry_bench_text(one, "better"), "less") == 0,
                                    .op_share = 1,
                                    .value = spry_bench_number(one, "value")};
        snprintf(figure.what, sizeof figure.what, "%s", spry_bench_text(one, "what"));
        add(figures, figure);
    }
}

void spry_bench_figures_deinit(spry_bench_figures *figures)
{
    free(figures->list);
    *figures = (spry_bench_figures){0};
}

const spry_bench_figure *spry_bench_figures_find(const spry_bench_figures *figures, const char *what)
{
    for (size_t i = 0; i < figures->count; i++)
        if (strcmp(figures->list[i].what, what) == 0)
            return &figures->list[i];
    return NULL;
}

/* ---- now against then -------------------------------------------------------------------------------------------- */

typedef struct comparison {
    const spry_bench_gate_rules *rules;
    spry_bench_figures before, now;
    bool same_points;
    size_t n_compared, n_dropped, n_missing;
    json_t *list;
    bool failed; /* memory was short */
} comparison;

static bool has_points(const spry_bench_figures *a, const spry_bench_figures *b)
{
    for (size_t i = 0; i < b->count; i++)
        if (b->list[i].of_point && !spry_bench_figures_find(a, b->list[i].what))
            return false;
    return true;
}

static bool may_lack(const spry_bench_gate_rules *rules, spry_bench_of of)
{
    return rules->force || (of == SPRY_BENCH_OF_PREFILL && rules->may_lack_prefills) ||
           (of == SPRY_BENCH_OF_DECODE && rules->may_lack_decodes);
}

/* The change relative to the value before. From a value of 0, a share changes by its new value, any other figure by
 * 100 %. */
static double change_of(const spry_bench_figure *before, const spry_bench_figure *now)
{
    if (before->value > 0)
        return now->value / before->value - 1;
    return before->unit == SPRY_BENCH_SHARE ? now->value : now->value > 0 ? 1 : 0;
}

/* Judges a figure; `before` or `now` is NULL if only the other report has it. */
static void compare(comparison *c, const spry_bench_figure *before, const spry_bench_figure *now)
{
    const spry_bench_figure *any = before ? before : now;
    const bool counts = before && before->op_share >= op_share_min;
    const bool same_prompt = before && now && now->prompt == before->prompt;
    const double change = before && now ? change_of(before, now) : 0;
    const char *verdict = "only now";
    if (before) {
        bool missing = !same_prompt && counts && !may_lack(c->rules, before->of);
        bool comparable = same_prompt && (!before->of_points || c->same_points);
        double worse = before->less_is_better ? change : -change;
        bool dropped = comparable && counts && worse > c->rules->max_drop + rounding;
        verdict = dropped ? "dropped" : comparable ? "ok" : now ? "other points" : missing ? "missing" : "only before";
        c->n_missing += missing;
        c->n_compared += comparable;
        c->n_dropped += dropped;
    }
    json_t *row = json_pack("{s:s, s:s, s:o, s:o, s:o, s:s}", "what", any->what, "unit",
                            spry_bench_unit_name(any->unit), "before", before ? json_real(before->value) : json_null(),
                            "now", now ? json_real(now->value) : json_null(), "change",
                            before && now ? json_real(change) : json_null(), "verdict", verdict);
    c->failed = json_array_append_new(c->list, row) != 0 || c->failed;
}

/* The smaller ratio of the two machine speeds, now to before; 0: not known. */
static double machine_speed(const json_t *before, const json_t *now)
{
    static const char *const paths[] = {"machine.read_gb_s", "machine.multiply_g_s"};
    double least = 0;
    for (size_t i = 0; i < SPRY_COUNT(paths); i++) {
        double share = spry_bench_ratio(spry_bench_number(now, paths[i]), spry_bench_number(before, paths[i]));
        least = share > 0 && (least <= 0 || share < least) ? share : least;
    }
    return least;
}

static void compare_all(comparison *c, const json_t *before, const json_t *now)
{
    c->same_points = has_points(&c->before, &c->now) && has_points(&c->now, &c->before) &&
                     !json_object_get(before, "policy") == !json_object_get(now, "policy");
    for (size_t i = 0; i < c->before.count; i++)
        if (c->before.list[i].unit != SPRY_BENCH_JOULES)
            compare(c, &c->before.list[i], spry_bench_figures_find(&c->now, c->before.list[i].what));
    for (size_t i = 0; i < c->now.count; i++)
        if (c->now.list[i].unit != SPRY_BENCH_JOULES && !spry_bench_figures_find(&c->before, c->now.list[i].what))
            compare(c, NULL, &c->now.list[i]);
}

spry_status spry_bench_gate(json_t **out, const json_t *before, const json_t *now, const spry_bench_gate_rules *rules,
                            const char *file, const char *differences, spry_error *error)
{
    comparison c = {.rules = rules, .list = json_array()};
    spry_bench_figures_init(&c.before, before);
    spry_bench_figures_init(&c.now, now);
    compare_all(&c, before, now);
    double machine = machine_speed(before, now);
    *out =
        json_pack("{s:o, s:f, s:I, s:I, s:I, s:b, s:b, s:f, s:o, s:O}", "baseline", spry_bench_text_json(file),
                  "max_drop", rules->max_drop, "compared", (json_int_t)c.n_compared, "dropped", (json_int_t)c.n_dropped,
                  "missing", (json_int_t)c.n_missing, "passed", !c.n_dropped && !c.n_missing, "machine_slower",
                  machine > 0 && machine < 1 - rules->max_drop - rounding, "machine_speed", machine, "differences",
                  differences[0] ? spry_bench_text_json(differences) : json_null(), "figures", c.list);
    c.failed = c.failed || c.before.failed || c.now.failed || !*out;
    spry_bench_figures_deinit(&c.before);
    spry_bench_figures_deinit(&c.now);
    json_decref(c.list);
    if (c.failed)
        return spry_fail_memory(error, "comparing reports", 0);
    if (!c.n_compared)
        return spry_fail(error, SPRY_ERR_INPUT, "the two reports have no figure in common: nothing was compared");
    return SPRY_OK;
}

void spry_bench_gate_print(const json_t *gate)
{
    static const spry_bench_column columns[] = {{"Against the baseline", -34, "what", SPRY_BENCH_TEXT, NULL},
                                                {"before", 15, "before", SPRY_BENCH_OF_ROW, NULL},
                                                {"now", 15, "now", SPRY_BENCH_OF_ROW, NULL},
                                                {"change", 11, "change", SPRY_BENCH_CHANGE, ""},
                                                {"verdict", 0, "verdict", SPRY_BENCH_TEXT, NULL}};
    const json_t *figures = json_object_get(gate, "figures");
    bool of_ops = false;
    for (size_t i = 0; i < json_array_size(figures); i++)
        of_ops = of_ops || strstr(spry_bench_text(json_array_get(figures, i), "what"), ", time in kernels");
    spry_bench_table(columns, SPRY_COUNT(columns), figures, NULL, "");
    spry_out_format("\n");
    if (of_ops)
        spry_out_format(
            "Time in kernels is the share of a point's time in products and attention; below it is the speed of\n"
            "each of them: GB/s read in decodes, G products/s in prefills. Of these only those count that took\n"
            "at least 5 %% of the time before.\n");
    if (json_is_true(json_object_get(gate, "machine_slower")))
        spry_out_format("The machine itself had %.0f %% of its earlier speed: check for other programs.\n",
                        100 * spry_bench_number(gate, "machine_speed"));
    spry_out_quote("%s: %.0f of %.0f figures are worse by more than %g %% than in %s",
                   json_is_true(json_object_get(gate, "passed")) ? "Passed" : "Failed",
                   spry_bench_number(gate, "dropped"), spry_bench_number(gate, "compared"),
                   100 * spry_bench_number(gate, "max_drop"), spry_bench_text(gate, "baseline"));
    if (spry_bench_number(gate, "missing") > 0)
        spry_out_format("; %.0f others of the baseline are missing", spry_bench_number(gate, "missing"));
    spry_out_format("\n");
    if (json_is_string(json_object_get(gate, "differences")))
        spry_out_quote("Compared because of --force: %s\n", spry_bench_text(gate, "differences"));
}

/* ---- the files of the command line ------------------------------------------------------------------------------- */

spry_status spry_bench_judge_open(spry_bench_judge *j, const char *format, spry_error *error)
{
    spry_status status = SPRY_OK;
    if (j->baseline_path)
        status = spry_bench_file_read(&j->baseline, j->baseline_path, error);
    if (!status && j->targets_path)
        status = spry_bench_targets_read(&j->targets, j->targets_path, error);
    if (!status && j->measured_path)
        status = spry_bench_file_read(&j->measured, j->measured_path, error);
    if (status || !j->baseline)
        return status;
    const char *there = spry_bench_text(j->baseline, "format");
    const char *here = j->measured ? spry_bench_text(j->measured, "format") : format;
    if (strcmp(there, here) == 0)
        return SPRY_OK;
    return spry_fail(error, SPRY_ERR_FORMAT, "%s: its format is '%s', not '%s', the format of what is measured",
                     j->baseline_path, there, here);
}

void spry_bench_judge_deinit(spry_bench_judge *j)
{
    json_decref(j->baseline);
    json_decref(j->targets);
    json_decref(j->measured);
    j->baseline = j->targets = j->measured = NULL;
}

/* Adds a verdict to `json`, or prints it if that is NULL; releases it. */
static spry_status deliver(bool *passed, json_t *verdict, json_t *json, const char *key, void (*print)(const json_t *),
                           spry_error *error)
{
    *passed = *passed && json_is_true(json_object_get(verdict, "passed"));
    if (!json)
        print(verdict);
    bool failed = json && json_object_set(json, key, verdict) != 0;
    json_decref(verdict);
    return failed ? spry_fail(error, SPRY_ERR_MEMORY, "not enough memory for the verdict as JSON") : SPRY_OK;
}

spry_status spry_bench_judge_report(bool *passed, const spry_bench_judge *j, const json_t *report, json_t *json,
                                    spry_error *error)
{
    const spry_bench_gate_rules rules = {.max_drop = j->max_drop,
                                         .may_lack_prefills = j->given.prefill,
                                         .may_lack_decodes = j->given.depth || j->given.batch,
                                         .force = j->force};
    char differences[SPRY_BENCH_DIFFERENCES];
    json_t *verdict = NULL;
    spry_status status = SPRY_OK;
    *passed = true;
    if (j->baseline && spry_bench_differs(differences, j->baseline, report) && !j->force)
        status = spry_bench_check_same(j->baseline, j->baseline_path, report, error);
    if (!status && j->baseline)
        status = spry_bench_gate(&verdict, j->baseline, report, &rules, j->baseline_path, differences, error);
    if (!status && j->baseline)
        status = deliver(passed, verdict, json, "gate", spry_bench_gate_print, error);
    else
        json_decref(verdict);
    if (status || !j->targets)
        return status;
    status = spry_bench_targets_check(&verdict, j->targets, j->targets_path, report, error);
    return status ? status : deliver(passed, verdict, json, "targets", spry_bench_targets_print, error);
}
