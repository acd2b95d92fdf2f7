/* Targets for machines:
 *
 *   {"format": "spry-targets-1",
 *    "machines": {"EPYC": {"prefill_tps": {"512": 400}, "decode_tps": {"0": 60, "512x8": 300}, "p95_ms": {"0": 20},
 *                          "ttft_cold_ms": 1500, "ttft_warm_ms": 80, "first_call_ms": 2000, "first_call_tokens": 60,
 *                          "memory_bytes": 700000000, "joules_per_100_tokens": 90, "residency": {"0": 0.8},
 *                          "prefill_residency": {"512": 0.8}, "draft_acceptance": 0.6, "draft_refused_p50": 0.3,
 *                          "draft_refused_p95": 0.6, "draft_prefill_ms": 5, "draft_speedup": 1.5}}}
 *
 * Those of drafts are checked by --draft, and no others. A decode is named by its depth, or by depth and batch.
 * "profile" stands for the machine's profile, whose sections have the same objects as "targets". A target that was not
 * measured is not met. */
#include <stdio.h>

#include "base/number.h"
#include "bench/bench_draft.h"
#include "bench/bench_gate.h"
#include "cli/settings_profile.h"
#include "cli/terminal.h"

typedef struct target_key {
    const char *key;
    const char *figure; /* of a point: the text after its name; otherwise the whole name */
    const char *points; /* "prefill", "decode"; NULL: one number */
    spry_bench_unit unit;
    bool less_is_better;
    bool of_drafts; /* measured by --draft, and only there */
} target_key;

static const target_key keys[] = {
    {"prefill_tps", "", "prefill", SPRY_BENCH_TPS, false, false},
    {"decode_tps", "", "decode", SPRY_BENCH_TPS, false, false},
    {"p95_ms", ", p95 of steps", "decode", SPRY_BENCH_MS, true, false},
    {"residency", ", time in kernels", "decode", SPRY_BENCH_SHARE, false, false},
    {"prefill_residency", ", time in kernels", "prefill", SPRY_BENCH_SHARE, false, false},
    {"ttft_cold_ms", "first token, cold", NULL, SPRY_BENCH_MS, true, false},
    {"ttft_warm_ms", "first token, warm", NULL, SPRY_BENCH_MS, true, false},
    {"first_call_ms", "first call", NULL, SPRY_BENCH_MS, true, false},
    {"first_call_tokens", "first call, tokens", NULL, SPRY_BENCH_TOKENS, true, false},
    {"memory_bytes", "memory", NULL, SPRY_BENCH_BYTES, true, false},
    {"joules_per_100_tokens", "100 tokens of decode", NULL, SPRY_BENCH_JOULES, true, false},
    {"draft_acceptance", "drafts accepted", NULL, SPRY_BENCH_SHARE, false, true},
    {"draft_refused_p50", "drafts refused, p50", NULL, SPRY_BENCH_SHARE, true, true},
    {"draft_refused_p95", "drafts refused, p95", NULL, SPRY_BENCH_SHARE, true, true},
    {"draft_prefill_ms", "drafter's prefill", NULL, SPRY_BENCH_MS, true, true},
    {"draft_speedup", "decode with drafts", NULL, SPRY_BENCH_TIMES, false, true},
};

static const target_key *find_key(const char *name)
{
    for (size_t i = 0; i < SPRY_COUNT(keys); i++)
        if (strcmp(keys[i].key, name) == 0)
            return &keys[i];
    return NULL;
}

static bool is_decode(const target_key *key)
{
    return key->points && strcmp(key->points, "decode") == 0;
}

/* ---- checking ------------------------------------------------------------------------------------------------------
 */

/* "512", and for decodes also "512x8". */
static bool parse_point(uint32_t *tokens, uint32_t *batch, const char *name, bool decode)
{
    size_t first = strcspn(name, "x");
    uint64_t a, b = 1;
    if (!spry_number_u64(&a, (spry_view){name, first}) || a > SPRY_BENCH_TOKENS_MAX || (!decode && !a))
        return false;
    if (name[first] && (!decode || !spry_number_u64(&b, spry_view_of(name + first + 1)) || !b || b > SPRY_STEPS_MAX))
        return false;
    *tokens = (uint32_t)a;
    *batch = (uint32_t)b;
    return true;
}

static spry_status check_number(const json_t *value, const char *machine, const char *key, spry_error *error)
{
    double number = json_number_value(value);
    if (json_is_number(value) && number > 0 && number <= 1e15)
        return SPRY_OK;
    return spry_fail(error, SPRY_ERR_FORMAT, "machines.%.60s.%.60s is not a number above 0", machine, key);
}

static spry_status fail_unknown(const char *machine, const char *name, spry_error *error)
{
    char known[400];
    size_t size = 0;
    for (size_t i = 0; i < SPRY_COUNT(keys) && size < sizeof known; i++)
        size += (size_t)snprintf(known + size, sizeof known - size, "%s%s", i ? ", " : "", keys[i].key);
    return spry_fail(error, SPRY_ERR_FORMAT, "machines.%.60s.%.60s is not known; known are %s", machine, name, known);
}

static spry_status check_target(const json_t *value, const char *machine, const char *name, spry_error *error)
{
    const target_key *key = find_key(name);
    const char *point;
    json_t *number;
    uint32_t tokens, batch;
    if (!key)
        return fail_unknown(machine, name, error);
    if (!key->points && key->unit == SPRY_BENCH_SHARE && json_number_value(value) > 1)
        return spry_fail(error, SPRY_ERR_FORMAT, "machines.%.60s.%s is a share, at most 1", machine, name);
    if (!key->points)
        return check_number(value, machine, name, error);
    if (!json_is_object(value))
        return spry_fail(error, SPRY_ERR_FORMAT, "machines.%.60s.%s is not an object of points, as {\"512\": 400}",
                         machine, name);
    spry_status status = SPRY_OK;
    json_object_foreach((json_t *)value, point, number)
    {
        if (!status && !parse_point(&tokens, &batch, point, is_decode(key)))
            status = spry_fail(error, SPRY_ERR_FORMAT,
                               "machines.%.60s.%s.%.60s does not name a point: a number of "
                               "tokens, for decodes also with a batch as in \"512x8\"",
                               machine, name, point);
        if (!status)
            status = check_number(number, machine, name, error);
        if (!status && key->unit == SPRY_BENCH_SHARE && json_number_value(number) > 1)
            status = spry_fail(error, SPRY_ERR_FORMAT, "machines.%.60s.%s.%.60s is a share of time, at most 1", machine,
                               name, point);
    }
    return status;
}

/* Adds the points of the targets; false: more than can be measured. Joules are those of one sequence at depth 0. */
static bool add_points(spry_bench_list *prefill, spry_bench_list *depth, spry_bench_list *batch, const json_t *targets)
{
    const char *name, *point;
    json_t *value, *number;
    uint32_t tokens = 0, together = 1;
    bool room = true;
    json_object_foreach((json_t *)targets, name, value)
    {
        const target_key *key = find_key(name);
        json_object_foreach(value, point, number)
        {
            parse_point(&tokens, &together, point, is_decode(key));
            room = spry_bench_list_add(is_decode(key) ? depth : prefill, tokens) && room;
            room = (!is_decode(key) || spry_bench_list_add(batch, together)) && room;
        }
        if (key->unit == SPRY_BENCH_JOULES)
            room = spry_bench_list_add(depth, 0) && spry_bench_list_add(batch, 1) && room;
    }
    return room;
}

/* The target of a decode at `depth` with the batch of `point`; 0: none. */
static double deeper_target(const char **deeper, const json_t *points, const char *point)
{
    uint32_t tokens, batch, other_tokens, other_batch;
    const char *name;
    json_t *number;
    double most = 0;
    parse_point(&tokens, &batch, point, true);
    json_object_foreach((json_t *)points, name, number)
    {
        parse_point(&other_tokens, &other_batch, name, true);
        if (other_batch == batch && other_tokens > tokens && json_number_value(number) > most) {
            most = json_number_value(number);
            *deeper = name;
        }
    }
    return most;
}

/* Targets that no machine can mean together: what is cached cannot take longer, and a longer context be faster. */
static spry_status check_harmony(const json_t *targets, const char *machine, spry_error *error)
{
    const double cold = json_number_value(json_object_get(targets, "ttft_cold_ms"));
    const double warm = json_number_value(json_object_get(targets, "ttft_warm_ms"));
    const json_t *decodes = json_object_get(targets, "decode_tps");
    const char *point, *deeper = "";
    json_t *number;
    if (cold > 0 && warm > cold)
        return spry_fail(error, SPRY_ERR_FORMAT,
                         "machines.%.60s contradicts itself: ttft_warm_ms is %g, more than ttft_cold_ms, %g", machine,
                         warm, cold);
    const double p50 = json_number_value(json_object_get(targets, "draft_refused_p50"));
    const double p95 = json_number_value(json_object_get(targets, "draft_refused_p95"));
    if (p95 > 0 && p50 > p95)
        return spry_fail(error, SPRY_ERR_FORMAT,
                         "machines.%.60s contradicts itself: draft_refused_p50 is %g, more than draft_refused_p95, %g",
                         machine, p50, p95);
    json_object_foreach((json_t *)decodes, point, number)
    {
        if (deeper_target(&deeper, decodes, point) > json_number_value(number))
            return spry_fail(error, SPRY_ERR_FORMAT,
                             "machines.%.60s contradicts itself: decode_tps.%.20s is faster than decode_tps.%.20s with "
                             "fewer tokens",
                             machine, deeper, point);
    }
    return SPRY_OK;
}

static spry_status check_machine(const json_t *targets, const char *machine, spry_error *error)
{
    const char *name;
    json_t *value;
    size_t count = 0;
    spry_bench_list prefill = {.count = 0}, depth = {.count = 0}, batch = {.count = 0};
    if (!json_is_object(targets))
        return spry_fail(error, SPRY_ERR_FORMAT, "machines.%.60s is not an object", machine);
    json_object_foreach((json_t *)targets, name, value)
    {
        spry_status status = check_target(value, machine, name, error);
        if (status)
            return status;
        count += json_is_object(value) ? json_object_size(value) : 1;
    }
    if (!count || count > SPRY_BENCH_TARGETS_MAX)
        return spry_fail(error, SPRY_ERR_FORMAT, "machines.%.60s states %zu targets, not 1 to %d", machine, count,
                         SPRY_BENCH_TARGETS_MAX);
    if (!add_points(&prefill, &depth, &batch, targets))
        return spry_fail(error, SPRY_ERR_FORMAT,
                         "machines.%.60s names more than %d lengths of prefills or depths of decodes", machine,
                         SPRY_BENCH_LIST_MAX);
    return check_harmony(targets, machine, error);
}

static spry_status check_targets(const json_t *file, spry_error *error)
{
    const char *key, *machine;
    json_t *value, *targets, *machines = json_object_get(file, "machines");
    const char *format = json_string_value(json_object_get(file, "format"));
    if (!format || strcmp(format, SPRY_TARGETS_FORMAT) != 0)
        return spry_fail(error, SPRY_ERR_FORMAT, "\"format\" is not \"%s\"", SPRY_TARGETS_FORMAT);
    json_object_foreach((json_t *)file, key, value)
    {
        if (strcmp(key, "format") != 0 && strcmp(key, "machines") != 0)
            return spry_fail(error, SPRY_ERR_FORMAT, "%.60s is not known; known are format and machines", key);
    }
    if (!json_is_object(machines) || !json_object_size(machines))
        return spry_fail(error, SPRY_ERR_FORMAT, "\"machines\" is not an object with a machine in it");
    json_object_foreach(machines, machine, targets)
    {
        spry_status status = check_machine(targets, machine, error);
        if (status)
            return status;
    }
    return SPRY_OK;
}

spry_status spry_bench_targets_read(json_t **out, const char *path, spry_error *error)
{
    const spry_settings_profile *profile = spry_settings_profile_get();
    json_t *targets = json_object_get(profile->section, "targets");
    if (strcmp(path, SPRY_TARGETS_OF_PROFILE) != 0)
        return spry_bench_file_open(out, path, check_targets, error);
    if (!targets)
        return spry_fail(error, SPRY_ERR_INPUT, "there is no profile with targets for this machine");
    *out = json_pack("{s:s, s:{s:O}}", "format", SPRY_TARGETS_FORMAT, "machines", "*", targets);
    if (!*out)
        return spry_fail_memory(error, "the targets of the profile", 0);
    return check_targets(*out, error) ? spry_fail_prefix(error, SPRY_ERR_FORMAT, profile->path) : SPRY_OK;
}

/* ---- which of them, and what to measure ----------------------------------------------------------------------------
 */

/* The targets for a machine, and their key. */
static spry_status choose(const json_t **out, const char **key, const json_t *file, const char *path, const char *id,
                          const char *cpu, const char *gpu, spry_error *error)
{
    const char *machine;
    json_t *targets;
    size_t best_rank = 0;
    json_object_foreach(json_object_get(file, "machines"), machine, targets)
    {
        bool is_named = machine[0] && (strstr(cpu, machine) || (gpu && strstr(gpu, machine)));
        size_t rank = strcmp(machine, id) == 0    ? SIZE_MAX
                      : strcmp(machine, "*") == 0 ? 1
                      : is_named                  ? 1 + strlen(machine)
                                                  : 0;
        if (rank <= best_rank)
            continue;
        best_rank = rank;
        *out = targets;
        *key = machine;
    }
    if (best_rank)
        return SPRY_OK;
    return spry_fail(error, SPRY_ERR_INPUT,
                     "%s: has no targets for this machine; name it by its id %s, by a part of '%s', or by \"*\"", path,
                     id, cpu);
}

spry_status spry_bench_targets_lists(spry_bench_list *prefill, spry_bench_list *depth, spry_bench_list *batch,
                                     const json_t *file, const char *path, const spry_bench_machine *here,
                                     spry_error *error)
{
    const json_t *targets = NULL;
    const char *machine;
    spry_status status = choose(&targets, &machine, file, path, here->id, here->cpu, here->gpu, error);
    if (!status && !add_points(prefill, depth, batch, targets))
        status = spry_fail(error, SPRY_ERR_INPUT,
                           "%s: with the baseline's there are more than %d lengths of prefills, depths or batches to "
                           "measure; hold them against it in two runs",
                           path, SPRY_BENCH_LIST_MAX);
    return status;
}

/* ---- holding against them ------------------------------------------------------------------------------------------
 */

/* Of the decode of one sequence at the smallest depth. */
static double joules(const json_t *report)
{
    const json_t *points = json_object_get(report, "decode"), *best = NULL;
    for (size_t i = 0; i < json_array_size(points); i++) {
        const json_t *point = json_array_get(points, i);
        double depth = json_number_value(json_object_get(point, "depth"));
        if (json_number_value(json_object_get(point, "batch")) == 1 &&
            (!best || depth < json_number_value(json_object_get(best, "depth"))))
            best = point;
    }
    return json_number_value(json_object_get(json_object_get(best, "energy"), "joules_per_100_tokens"));
}

static void hold(spry_bench_targets *out, const spry_bench_figures *figures, const json_t *report,
                 const spry_bench_figure *wanted)
{
    const spry_bench_figure *found = spry_bench_figures_find(figures, wanted->what);
    spry_bench_target *t = &out->list[out->count++];
    *t = (spry_bench_target){.wanted = *wanted, .measured = found ? found->value : 0};
    if (wanted->unit == SPRY_BENCH_JOULES)
        t->measured = joules(report);
    t->known = found || t->measured > 0;
    t->met = t->known && (wanted->less_is_better ? t->measured <= wanted->value : t->measured >= wanted->value);
    out->n_missed += !t->met;
}

static void hold_key(spry_bench_targets *out, const spry_bench_figures *figures, const json_t *report,
                     const target_key *key, const json_t *value)
{
    spry_bench_figure wanted = {.unit = key->unit, .less_is_better = key->less_is_better};
    const char *point;
    json_t *number;
    uint32_t tokens, batch;
    bool decode = is_decode(key);
    if (!key->points) {
        wanted.value = json_number_value(value);
        snprintf(wanted.what, sizeof wanted.what, "%s", key->figure);
        hold(out, figures, report, &wanted);
        return;
    }
    json_object_foreach((json_t *)value, point, number)
    {
        parse_point(&tokens, &batch, point, decode);
        wanted.value = json_number_value(number);
        if (decode)
            snprintf(wanted.what, sizeof wanted.what, "decode %u x %u%s", tokens, batch, key->figure);
        else
            snprintf(wanted.what, sizeof wanted.what, "prefill %u%s", tokens, key->figure);
        hold(out, figures, report, &wanted);
    }
}

spry_status spry_bench_targets_check(spry_bench_targets *out, const json_t *file, const char *path,
                                     const json_t *report, spry_error *error)
{
    spry_bench_figures figures;
    const json_t *targets = NULL, *about = json_object_get(report, "machine");
    const char *format = json_string_value(json_object_get(report, "format"));
    bool of_drafts = format && strcmp(format, SPRY_BENCH_DRAFT_FORMAT) == 0;
    out->count = out->n_missed = out->n_others = 0;
    spry_status status = choose(&targets, &out->machine, file, path, json_string_value(json_object_get(about, "id")),
                                json_string_value(json_object_get(about, "cpu")),
                                json_string_value(json_object_get(about, "gpu")), error);
    if (status)
        return status;
    spry_bench_figures_init(&figures, report);
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)targets, name, value)
    {
        if (find_key(name)->of_drafts == of_drafts)
            hold_key(out, &figures, report, find_key(name), value);
        else
            out->n_others++;
    }
    bool failed = figures.failed;
    spry_bench_figures_deinit(&figures);
    if (!out->count && !failed)
        return spry_fail(error, SPRY_ERR_INPUT, "%s has no targets for \"%.60s\" that are measured %s --draft", path,
                         out->machine, of_drafts ? "by" : "without");
    return failed ? spry_fail(error, SPRY_ERR_MEMORY, "not enough memory to compare targets") : SPRY_OK;
}

/* ---- telling -------------------------------------------------------------------------------------------------------
 */

static const char *verdict(const spry_bench_target *t)
{
    return t->met ? "met" : t->known ? "missed" : "not measured";
}

void spry_bench_targets_print(const spry_bench_targets *targets, const char *path)
{
    spry_out_format("\n%s%-34s %15s %15s %11s  %s%s\n", spry_style_begin(stdout, SPRY_STYLE_BOLD), "Against targets",
                    "target", "now", "of target", "verdict", spry_style_end(stdout));
    for (size_t i = 0; i < targets->count; i++) {
        const spry_bench_target *t = &targets->list[i];
        char target[SPRY_BENCH_VALUE], now[SPRY_BENCH_VALUE] = "-", part[16] = "";
        spry_bench_value(target, t->wanted.unit, t->wanted.value);
        if (t->known) {
            spry_bench_value(now, t->wanted.unit, t->measured);
            snprintf(part, sizeof part, "%.0f %%", 100 * t->measured / t->wanted.value);
        }
        spry_out_format("%s%-34s %15s %15s %11s  %s%s\n", t->met ? "" : spry_style_begin(stdout, SPRY_STYLE_ERROR),
                        t->wanted.what, target, now, part, verdict(t), t->met ? "" : spry_style_end(stdout));
    }
    spry_out_quote("%s, for \"%s\": %zu of %zu targets not met\n", path, targets->machine, targets->n_missed,
                   targets->count);
    if (targets->n_others)
        spry_out_format("%zu more are not measured by this run: --draft measures those of drafts, and no others\n",
                        targets->n_others);
}

json_t *spry_bench_targets_json(const spry_bench_targets *targets, const char *path)
{
    json_t *list = json_array();
    bool whole = list;
    for (size_t i = 0; i < targets->count; i++) {
        const spry_bench_target *t = &targets->list[i];
        json_t *one = json_pack("{s:s, s:f, s:o, s:s}", "what", t->wanted.what, "target", t->wanted.value, "now",
                                t->known ? json_real(t->measured) : json_null(), "verdict", verdict(t));
        whole = json_array_append_new(list, one) == 0 && whole;
    }
    json_t *out = json_pack("{s:o, s:s, s:b, s:o}", "file", spry_bench_text_json(path), "machine", targets->machine,
                            "passed", targets->n_missed == 0, "targets", list);
    if (whole)
        return out;
    json_decref(out);
    return NULL;
}
