/* From files to a verdict. */
#include "bench/bench_judge.h"

#include <math.h>

#include "base/number.h"
#include "cli/terminal.h"

spry_status spry_bench_percent_parse(double *share, const char *text, const char *name, spry_error *error)
{
    spry_view number = spry_view_of(text);
    if (spry_view_ends(number, SPRY_VIEW("%")))
        number.size--;
    if (!spry_number_double(share, number) || *share < 0 || *share > 100)
        return spry_fail(error, SPRY_ERR_INPUT, "--%s: '%.40s' is not a percentage from 0 to 100, such as 10%%", name,
                         text);
    *share = fabs(*share) / 100; /* of -0 */
    return SPRY_OK;
}

spry_status spry_bench_judge_open(spry_bench_judge *j, spry_error *error)
{
    spry_status status = SPRY_OK;
    if (j->baseline_path)
        status = spry_bench_file_read(&j->baseline, j->baseline_path, error);
    if (!status && j->targets_path)
        status = spry_bench_targets_read(&j->targets, j->targets_path, error);
    if (!status && j->measured_path)
        status = spry_bench_file_read(&j->measured, j->measured_path, error);
    if (!status && j->baseline)
        spry_bench_file_identity(&j->like, j->baseline);
    return status;
}

void spry_bench_judge_deinit(spry_bench_judge *j)
{
    json_decref(j->baseline);
    json_decref(j->targets);
    json_decref(j->measured);
    j->baseline = j->targets = j->measured = NULL;
}

/* ---- what to measure -----------------------------------------------------------------------------------------------
 */

static void take_number(uint32_t *out, bool given, const json_t *object, const char *key)
{
    if (!given)
        *out = (uint32_t)json_number_value(json_object_get(object, key));
}

static void take_text(const char **out, bool given, const json_t *object, const char *key)
{
    if (!given)
        *out = json_string_value(json_object_get(object, key));
}

/* Applies the settings of the baseline. */
static void take_baseline(spry_bench_settings *s, const spry_bench_judge *j)
{
    const json_t *settings = json_object_get(j->baseline, "settings");
    const spry_bench_given *given = &j->given;
    spry_engine_options *engine = &s->engine.options;
    take_number(&s->tokens, given->tokens, settings, "tokens");
    take_number(&s->repeat, given->repeat, settings, "repeat");
    take_number(&engine->chunk, given->chunk, settings, "chunk");
    take_number(&engine->threads, given->threads, json_object_get(j->baseline, "machine"), "threads");
    take_text(&engine->kv_type, given->kv_type, settings, "kv_type");
    take_text(&engine->quantize, given->quantize, settings, "quantize");
    s->like = j->force ? NULL : &j->like;
    s->like_what = j->baseline_path;
}

spry_status spry_bench_judge_settings(spry_bench_settings *s, const spry_bench_judge *j, spry_error *error)
{
    spry_bench_list *prefill = j->given.prefill ? NULL : &s->prefill, *depth = j->given.depth ? NULL : &s->depth;
    spry_bench_list *batch = j->given.batch ? NULL : &s->batch, *const lists[] = {prefill, depth, batch};
    for (size_t i = 0; (j->baseline || j->targets) && i < SPRY_COUNT(lists); i++)
        if (lists[i])
            lists[i]->count = 0;
    if (j->baseline) {
        spry_bench_file_lists(prefill, depth, batch, j->baseline);
        take_baseline(s, j);
    }
    if (!j->targets)
        return SPRY_OK;
    spry_bench_machine here;
    spry_status status = spry_bench_machine_name(&here, &s->engine.options, error);
    if (!status)
        status = spry_bench_targets_lists(prefill, depth, batch, j->targets, j->targets_path, &here, error);
    return status;
}

/* ---- holding against it --------------------------------------------------------------------------------------------
 */

/* Adds a verdict; NULL: memory was short. */
static spry_status add_verdict(json_t *json, const char *key, json_t *verdict, spry_error *error)
{
    return json_object_set_new(json, key, verdict) == 0
               ? SPRY_OK
               : spry_fail(error, SPRY_ERR_MEMORY, "not enough memory for the verdict as JSON");
}

static spry_status judge_baseline(bool *passed, const spry_bench_judge *j, const json_t *report, json_t *json,
                                  spry_error *error)
{
    const spry_bench_gate_rules rules = {.max_drop = j->max_drop,
                                         .may_lack_prefills = j->given.prefill,
                                         .may_lack_decodes = j->given.depth || j->given.batch,
                                         .force = j->force};
    spry_bench_gate gate = {0};
    spry_bench_identity here;
    char differences[SPRY_BENCH_DIFFERENCES];
    spry_bench_file_identity(&here, report);
    spry_bench_identity_differs(differences, &j->like, &here);
    spry_status status = j->force ? SPRY_OK : spry_bench_identity_check(&j->like, j->baseline_path, &here, error);
    if (!status)
        status = spry_bench_gate_init(&gate, j->baseline, report, &rules, error);
    if (!status && json)
        status = add_verdict(json, "gate", spry_bench_gate_json(&gate, j->baseline_path, differences), error);
    else if (!status)
        spry_bench_gate_print(&gate, j->baseline_path, differences);
    *passed = *passed && spry_bench_gate_passed(&gate);
    spry_bench_gate_deinit(&gate);
    return status;
}

static spry_status judge_targets(bool *passed, const spry_bench_judge *j, const json_t *report, json_t *json,
                                 spry_error *error)
{
    static spry_bench_targets targets; /* too large for some stacks */
    spry_status status = spry_bench_targets_check(&targets, j->targets, j->targets_path, report, error);
    if (!status && json)
        status = add_verdict(json, "targets", spry_bench_targets_json(&targets, j->targets_path), error);
    else if (!status)
        spry_bench_targets_print(&targets, j->targets_path);
    *passed = *passed && targets.n_missed == 0;
    return status;
}

spry_status spry_bench_judge_report(bool *passed, const spry_bench_judge *j, const json_t *report, json_t *json,
                                    spry_error *error)
{
    *passed = true;
    spry_status status = SPRY_OK;
    if (j->baseline)
        status = judge_baseline(passed, j, report, json, error);
    if (!status && j->targets)
        status = judge_targets(passed, j, report, json, error);
    return status;
}
