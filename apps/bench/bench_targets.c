/* Targets for machines:
 *
 *   {"format": "spry-targets-1",
 *    "machines": {"EPYC": {"prefill_tps": {"512": 400}, "decode_tps": {"0": 60, "512x8": 300}, "p95_ms": {"0": 20},
 *                          "ttft_cold_ms": 1500, "memory_bytes": 700000000, "residency": {"0": 0.8},
 *                          "draft_speedup": 1.5, "reuse_prefix_share": 0.1, "mix_ttft_p95_ms": 900}}}
 *
 * `keys` lists all of them, and with that the figures of all kinds except points and chunks. Every kind of measurement
 * checks its own targets and no others. A decode is named by its depth, or by depth and batch. "profile" is the
 * machine's profile, whose sections have the same objects as "targets". A target that was not measured is not met. */
#include <stdio.h>
#include <string.h>

#include "base/number.h"
#include "bench/bench.h"
#include "cli/settings_profile.h"

enum { TARGETS_MAX = 64 };

typedef enum points_of { NO_POINTS, PREFILLS, DECODES } points_of;

typedef struct target_key {
    const char *key;
    const char *figure; /* name of the figure; for a point the text after the point's name */
    spry_bench_unit unit;
    bool less_is_better;
    points_of points;   /* NO_POINTS: one number */
    const char *format; /* format of the reports that have the figure; NULL: reports of points */
    const char *path;   /* where such a report has the figure; NULL: bench_gate.c finds it */
} target_key;

#define DRAFT   SPRY_DRAFT_FORMAT
#define REUSE   SPRY_REUSE_FORMAT
#define MIX     SPRY_MIX_REPORT_FORMAT
#define AGENT   SPRY_AGENT_FORMAT
#define WITHOUT SPRY_WITHOUT_FORMAT
#define IMAGE   SPRY_IMAGE_FORMAT
#define KEY(key, figure, unit, less_is_better, points, format, path)                                                   \
    {                                                                                                                  \
        key, figure, SPRY_BENCH_##unit, less_is_better, points, format, path                                           \
    }

static const target_key keys[] = {
    KEY("prefill_tps", "", TPS, false, PREFILLS, NULL, NULL),
    KEY("decode_tps", "", TPS, false, DECODES, NULL, NULL),
    KEY("p95_ms", ", p95 of steps", MS, true, DECODES, NULL, NULL),
    KEY("residency", ", time in kernels", SHARE, false, DECODES, NULL, NULL),
    KEY("prefill_residency", ", time in kernels", SHARE, false, PREFILLS, NULL, NULL),
    KEY("on_device", ", layers on the device", SHARE, false, DECODES, NULL, NULL),
    KEY("prefill_on_device", ", layers on the device", SHARE, false, PREFILLS, NULL, NULL),
    KEY("ttft_cold_ms", "first token, cold", MS, true, 0, NULL, NULL),
    KEY("ttft_warm_ms", "first token, warm", MS, true, 0, NULL, NULL),
    KEY("first_call_ms", "first call", MS, true, 0, NULL, NULL),
    KEY("first_call_tokens", "first call, tokens", TOKENS, true, 0, NULL, NULL),
    KEY("memory_bytes", "memory", BYTES, true, 0, NULL, NULL),
    KEY("joules_per_100_tokens", "100 tokens of decode", JOULES, true, 0, NULL, NULL),
    KEY("draft_acceptance", "drafts accepted", SHARE, false, 0, DRAFT, "acceptance"),
    KEY("draft_refused_p50", "drafts refused, p50", SHARE, true, 0, DRAFT, "refused_p50"),
    KEY("draft_refused_p95", "drafts refused, p95", SHARE, true, 0, DRAFT, "refused_p95"),
    KEY("draft_prefill_ms", "drafter's prefill", MS, true, 0, DRAFT, "prefill_ms"),
    KEY("draft_ttft", "first token with drafts", TIMES, true, 0, DRAFT, "ttft"),
    KEY("draft_speedup", "decode with drafts", TIMES, false, 0, DRAFT, "speedup"),
    KEY("reuse_prefix_ms", "cached prefix", MS, true, 0, REUSE, "prefix.reused"),
    KEY("reuse_prefix_share", "cached prefix, share", SHARE, true, 0, REUSE, "prefix.ratio"),
    KEY("reuse_fragments_ms", "4 fragments, second order", MS, true, 0, REUSE, "fragments.reused"),
    KEY("reuse_fragments_share", "4 fragments, second order, share", SHARE, true, 0, REUSE, "fragments.ratio"),
    KEY("reuse_fragments_again_ms", "4 fragments, third order", MS, true, 0, REUSE, "fragments_again.reused"),
    KEY("reuse_fragments_again_share", "4 fragments, third order, share", SHARE, true, 0, REUSE,
        "fragments_again.ratio"),
    KEY("reuse_restart_ms", "cached prefix, restarted", MS, true, 0, REUSE, "restart.reused"),
    KEY("reuse_restart_share", "cached prefix, restarted, share", SHARE, true, 0, REUSE, "restart.ratio"),
    KEY("reuse_moved_decode_tps", "decode over 8 moved spans", TPS, false, 0, REUSE, "moved_decode.reused"),
    KEY("reuse_moved_decode_share", "decode over 8 moved spans, share", SHARE, false, 0, REUSE, "moved_decode.ratio"),
    KEY("reuse_lookup_us", "lookup", US, true, 0, REUSE, "lookup.us"),
    KEY("mix_ttft_p50_ms", "first token, p50", MS, true, 0, MIX, "ttft_ms.p50"),
    KEY("mix_ttft_p95_ms", "first token, p95", MS, true, 0, MIX, "ttft_ms.p95"),
    KEY("mix_ttft_p99_ms", "first token, p99", MS, true, 0, MIX, "ttft_ms.p99"),
    KEY("mix_between_p50_ms", "between tokens, p50", MS, true, 0, MIX, "between_ms.p50"),
    KEY("mix_between_p95_ms", "between tokens, p95", MS, true, 0, MIX, "between_ms.p95"),
    KEY("mix_between_p99_ms", "between tokens, p99", MS, true, 0, MIX, "between_ms.p99"),
    KEY("mix_tps", "all answers", TPS, false, 0, MIX, "tps"),
    KEY("mix_hit_share", "cached of prompts", SHARE, false, 0, MIX, "hit_share"),
    KEY("without_kv", "512 tokens without KV memory", TIMES, false, 0, WITHOUT, "kv.ratio"),
    KEY("without_batching", "8 answers without batching", TIMES, false, 0, WITHOUT, "batching.ratio"),
    KEY("without_cache", "a known prompt without the cache", TIMES, false, 0, WITHOUT, "cache.ratio"),
    KEY("without_grammar", "tokens without a grammar", TIMES, false, 0, WITHOUT, "grammar.ratio"),
    KEY("mix_found_share", "known system prompts found", SHARE, false, 0, MIX, "found_share"),
    KEY("image_first_ms", "picture, first token", MS, true, 0, IMAGE, "first_ms"),
    KEY("image_tower_ms", "picture, tower", MS, true, 0, IMAGE, "tower_ms"),
    KEY("image_second_share", "picture, second question, share", SHARE, true, 0, IMAGE, "second_share"),
    KEY("agent_ttft_ms", "first tokens of a session, together", MS, true, 0, AGENT, "session.ttft_ms"),
    KEY("agent_total_ms", "a session", MS, true, 0, AGENT, "session.total_ms"),
    KEY("agent_hit_share", "cached in a session", SHARE, false, 0, AGENT, "session.hit_share"),
    KEY("agent_second_ttft_ms", "first token of another session", MS, true, 0, AGENT, "second.ttft_ms"),
    KEY("agent_second_hit_share", "cached in another session", SHARE, false, 0, AGENT, "second.hit_share"),
};

static const target_key *find_key(const char *name)
{
    for (size_t i = 0; i < SPRY_COUNT(keys); i++)
        if (strcmp(keys[i].key, name) == 0)
            return &keys[i];
    return NULL;
}

static bool is_measured(const target_key *key, const char *format)
{
    return strcmp(key->format ? key->format : SPRY_BENCH_FORMAT, format) == 0;
}

void spry_bench_put_figures(spry_bench *b, const json_t *results, const char *prefix)
{
    const char *format = spry_bench_text(b->report, "format");
    char what[64];
    if (!json_object_get(b->report, "figures")) /* also where none was measured */
        spry_bench_put(b, "figures", json_array());
    for (size_t i = 0; i < SPRY_COUNT(keys); i++) {
        const json_t *value =
            keys[i].path && is_measured(&keys[i], format) ? spry_bench_at(results, keys[i].path) : NULL;
        snprintf(what, sizeof what, "%s%s", prefix, keys[i].figure);
        if (json_is_number(value))
            spry_bench_put_figure(b, what, keys[i].unit, keys[i].less_is_better, json_number_value(value));
    }
}

/* ---- checking ---------------------------------------------------------------------------------------------------- */

/* "512", and for decodes also "512x8". */
static bool parse_point(uint32_t *tokens, uint32_t *batch, const char *name, points_of points)
{
    size_t first = strcspn(name, "x");
    uint64_t a, b = 1;
    if (!spry_number_u64(&a, (spry_view){name, first}) || a > SPRY_BENCH_TOKENS_MAX || (points == PREFILLS && !a))
        return false;
    if (name[first] &&
        (points == PREFILLS || !spry_number_u64(&b, spry_view_of(name + first + 1)) || !b || b > SPRY_STEPS_MAX))
        return false;
    *tokens = (uint32_t)a;
    *batch = (uint32_t)b;
    return true;
}

static spry_status check_number(const json_t *value, const char *machine, const char *key, spry_error *error)
{
    double number = json_number_value(value);
    if (json_is_number(value) && number > 0 && number <= SPRY_BENCH_LARGEST)
        return SPRY_OK;
    return spry_fail(error, SPRY_ERR_FORMAT, "machines.%.60s.%.60s is not a number above 0", machine, key);
}

static spry_status fail_unknown(const char *machine, const char *name, spry_error *error)
{
    char known[1200];
    size_t size = 0;
    for (size_t i = 0; i < SPRY_COUNT(keys) && size < sizeof known; i++)
        size += (size_t)snprintf(known + size, sizeof known - size, "%s%s", i ? ", " : "", keys[i].key);
    return spry_fail(error, SPRY_ERR_FORMAT, "machines.%.60s.%.60s is not known; known are %s", machine, name, known);
}

static spry_status check_target(json_t *value, const char *machine, const char *name, spry_error *error)
{
    const target_key *key = find_key(name);
    const char *point;
    json_t *number;
    uint32_t tokens, batch;
    spry_status status = SPRY_OK;
    if (!key)
        return fail_unknown(machine, name, error);
    /* Reusing a cached part may take longer than computing it, so only other shares are at most 1. */
    bool is_part = key->unit == SPRY_BENCH_SHARE && strncmp(key->key, "reuse_", 6) != 0;
    if (!key->points && is_part && json_number_value(value) > 1)
        return spry_fail(error, SPRY_ERR_FORMAT, "machines.%.60s.%s is a share, at most 1", machine, name);
    if (!key->points)
        return check_number(value, machine, name, error);
    if (!json_is_object(value))
        return spry_fail(error, SPRY_ERR_FORMAT, "machines.%.60s.%s is not an object of points, as {\"512\": 400}",
                         machine, name);
    json_object_foreach(value, point, number)
    {
        if (!status && !parse_point(&tokens, &batch, point, key->points))
            status = spry_fail(error, SPRY_ERR_FORMAT,
                               "machines.%.60s.%s.%.60s does not name a point: a number of "
                               "tokens, for decodes also with a batch as in \"512x8\"",
                               machine, name, point);
        if (!status)
            status = check_number(number, machine, name, error);
        if (!status && is_part && json_number_value(number) > 1)
            status = spry_fail(error, SPRY_ERR_FORMAT, "machines.%.60s.%s.%.60s is a share of time, at most 1", machine,
                               name, point);
    }
    return status;
}

/* Adds the points of the targets; false: more than can be measured. Joules are measured with one sequence at depth 0.
 */
static bool add_points(spry_bench_list *prefill, spry_bench_list *depth, spry_bench_list *batch, const json_t *targets)
{
    const char *name, *point;
    json_t *value, *number;
    uint32_t tokens = 0, together = 1;
    bool room = true;
    json_object_foreach((json_t *)targets, name, value)
    {
        const target_key *key = find_key(name);
        const bool decode = key->points == DECODES;
        json_object_foreach(value, point, number)
        {
            parse_point(&tokens, &together, point, key->points);
            room = spry_bench_list_add(decode ? depth : prefill, tokens) && room;
            room = (!decode || spry_bench_list_add(batch, together)) && room;
        }
        if (key->unit == SPRY_BENCH_JOULES)
            room = spry_bench_list_add(depth, 0) && spry_bench_list_add(batch, 1) && room;
    }
    return room;
}

/* The fastest target of a decode of as many sequences as `point` at a larger depth; NULL: none. */
static const char *faster_and_deeper(const json_t *points, const char *point)
{
    uint32_t tokens, batch, other_tokens, other_batch;
    double most = json_number_value(json_object_get(points, point));
    const char *name, *found = NULL;
    json_t *number;
    parse_point(&tokens, &batch, point, DECODES);
    json_object_foreach((json_t *)points, name, number)
    {
        parse_point(&other_tokens, &other_batch, name, DECODES);
        if (other_batch == batch && other_tokens > tokens && json_number_value(number) > most) {
            most = json_number_value(number);
            found = name;
        }
    }
    return found;
}

/* Targets that no machine can mean together: what is cached cannot take longer, and a longer context be faster. */
static spry_status check_harmony(const json_t *targets, const char *machine, spry_error *error)
{
    static const char *const ordered[][2] = {{"ttft_warm_ms", "ttft_cold_ms"},
                                             {"draft_refused_p50", "draft_refused_p95"},
                                             {"mix_ttft_p50_ms", "mix_ttft_p95_ms"},
                                             {"mix_between_p50_ms", "mix_between_p95_ms"}};
    const json_t *decodes = json_object_get(targets, "decode_tps");
    const char *point, *deeper;
    json_t *number;
    for (size_t i = 0; i < SPRY_COUNT(ordered); i++) {
        double less = spry_bench_number(targets, ordered[i][0]), more = spry_bench_number(targets, ordered[i][1]);
        if (more > 0 && less > more)
            return spry_fail(error, SPRY_ERR_FORMAT, "machines.%.60s contradicts itself: %s is %g, more than %s, %g",
                             machine, ordered[i][0], less, ordered[i][1], more);
    }
    json_object_foreach((json_t *)decodes, point, number)
    {
        deeper = faster_and_deeper(decodes, point);
        if (deeper)
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
    if (!count || count > TARGETS_MAX)
        return spry_fail(error, SPRY_ERR_FORMAT, "machines.%.60s states %zu targets, not 1 to %d", machine, count,
                         TARGETS_MAX);
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
    if (strcmp(spry_bench_text(file, "format"), SPRY_TARGETS_FORMAT) != 0)
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

/* ---- which of them ----------------------------------------------------------------------------------------------- */

/* The targets for a machine, and their key. Fails if a report of this format measures none of them. */
static spry_status choose(const json_t **out, const char **key, const json_t *file, const char *path,
                          const char *format, const json_t *about, spry_error *error)
{
    const char *machine, *name, *id = spry_bench_text(about, "id");
    const char *cpu = spry_bench_text(about, "cpu"), *gpu = spry_bench_text(about, "gpu");
    json_t *targets, *value;
    size_t best_rank = 0;
    bool any = false;
    json_object_foreach(json_object_get(file, "machines"), machine, targets)
    {
        bool is_named = machine[0] && (strstr(cpu, machine) || strstr(gpu, machine));
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
    if (!best_rank)
        return spry_fail(error, SPRY_ERR_INPUT,
                         "%s: has no targets for this machine; name it by its id %s, by a part of '%s', or by \"*\"",
                         path, id, cpu);
    json_object_foreach((json_t *)*out, name, value)
    {
        any = any || is_measured(find_key(name), format);
    }
    return any ? SPRY_OK
               : spry_fail(error, SPRY_ERR_INPUT, "%s has no targets for \"%.60s\" that this run measures", path, *key);
}

spry_status spry_bench_targets_lists(spry_bench_list *prefill, spry_bench_list *depth, spry_bench_list *batch,
                                     const json_t *file, const char *path, const char *format, const json_t *machine,
                                     spry_error *error)
{
    const json_t *targets = NULL;
    const char *key;
    spry_status status = choose(&targets, &key, file, path, format, machine, error);
    if (!status && !add_points(prefill, depth, batch, targets))
        status = spry_fail(error, SPRY_ERR_INPUT,
                           "%s: with the baseline's there are more than %d lengths of prefills, depths or batches to "
                           "measure; hold them against it in two runs",
                           path, SPRY_BENCH_LIST_MAX);
    return status;
}

/* ---- holding a report against them ------------------------------------------------------------------------------- */

typedef struct holding {
    spry_bench_figures figures;
    json_t *list;
    size_t count, n_missed, n_others; /* others: targets that this kind of run does not measure */
    bool failed;                      /* memory was short */
} holding;

static void hold(holding *h, const target_key *key, const char *what, double target)
{
    const spry_bench_figure *found = spry_bench_figures_find(&h->figures, what);
    double now = found ? found->value : 0;
    bool met = found && (key->less_is_better ? now <= target : now >= target);
    json_t *row = json_pack("{s:s, s:s, s:f, s:o, s:o, s:s}", "what", what, "unit", spry_bench_unit_name(key->unit),
                            "target", target, "now", found ? json_real(now) : json_null(), "of_target",
                            found ? json_real(now / target) : json_null(), "verdict",
                            met     ? "met"
                            : found ? "missed"
                                    : "not measured");
    h->failed = json_array_append_new(h->list, row) != 0 || h->failed;
    h->count++;
    h->n_missed += !met;
}

static void hold_key(holding *h, const target_key *key, json_t *value)
{
    const char *point;
    json_t *number;
    uint32_t tokens, batch;
    char what[64];
    if (!key->points)
        hold(h, key, key->figure, json_number_value(value));
    json_object_foreach(value, point, number)
    {
        parse_point(&tokens, &batch, point, key->points);
        if (key->points == DECODES)
            snprintf(what, sizeof what, "decode %u x %u%s", tokens, batch, key->figure);
        else
            snprintf(what, sizeof what, "prefill %u%s", tokens, key->figure);
        hold(h, key, what, json_number_value(number));
    }
}

spry_status spry_bench_targets_check(json_t **out, const json_t *file, const char *path, const json_t *report,
                                     spry_error *error)
{
    const char *format = spry_bench_text(report, "format"), *machine, *name;
    const json_t *targets = NULL;
    json_t *value;
    spry_status status = choose(&targets, &machine, file, path, format, json_object_get(report, "machine"), error);
    if (status)
        return status;
    holding h = {.list = json_array()};
    spry_bench_figures_init(&h.figures, report);
    json_object_foreach((json_t *)targets, name, value)
    {
        if (is_measured(find_key(name), format))
            hold_key(&h, find_key(name), value);
        else
            h.n_others++;
    }
    h.failed = h.failed || h.figures.failed;
    spry_bench_figures_deinit(&h.figures);
    *out = json_pack("{s:o, s:s, s:b, s:I, s:I, s:o}", "file", spry_bench_text_json(path), "machine", machine, "passed",
                     h.n_missed == 0, "missed", (json_int_t)h.n_missed, "others", (json_int_t)h.n_others, "targets",
                     h.list);
    if (*out && !h.failed)
        return SPRY_OK;
    json_decref(*out);
    return spry_fail(error, SPRY_ERR_MEMORY, "not enough memory to compare targets");
}

void spry_bench_targets_print(const json_t *verdict)
{
    static const spry_bench_column columns[] = {{"Against targets", -34, "what", SPRY_BENCH_TEXT, NULL},
                                                {"target", 15, "target", SPRY_BENCH_OF_ROW, NULL},
                                                {"now", 15, "now", SPRY_BENCH_OF_ROW, NULL},
                                                {"of target", 11, "of_target", SPRY_BENCH_PERCENT, ""},
                                                {"verdict", 0, "verdict", SPRY_BENCH_TEXT, NULL}};
    const json_t *list = json_object_get(verdict, "targets");
    spry_bench_table(columns, SPRY_COUNT(columns), list, NULL, "");
    spry_out_quote("%s, for \"%s\": %.0f of %zu targets not met\n", spry_bench_text(verdict, "file"),
                   spry_bench_text(verdict, "machine"), spry_bench_number(verdict, "missed"), json_array_size(list));
    if (spry_bench_number(verdict, "others") > 0)
        spry_out_format(
            "%.0f more are not measured by this run: --draft, --reuse, --mix and --agent measure targets of "
            "drafts, of reuse, of workloads and of agents\n",
            spry_bench_number(verdict, "others"));
}
