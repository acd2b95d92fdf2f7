/* spry bench: measures the speed of a model on this machine, relative to the machine's limits. */
#include <stdio.h>

#include "bench/bench_chunk.h"
#include "bench/bench_draft.h"
#include "bench/bench_flags.h"
#include "bench/bench_reuse.h"
#include "bench/bench_shape.h"
#include "cli/commands.h"
#include "cli/interrupt.h"
#include "cli/terminal.h"
#include "platform/file.h"

enum { POLICY_MOST = 16 }; /* largest batch of the policy that is measured unasked */

static const spry_usage usage = {
    .command = "bench",
    .arguments = "[MODEL] [options]",
    .about =
        "Measures a model on this machine: prefill, decode at several depths and with several sequences together, "
        "loading, the first token of a new process and of a request, memory, energy, the share of the machine's read "
        "bandwidth and multiply speed that each reaches, and the time of each op. docs/SPEED.md explains the "
        "numbers. MODEL is as for spry run.\n"
        "--save stores the report; --baseline measures the same points again, and fails when a figure is worse by "
        "more than --max-drop or is missing; --targets fails when a target in a file is not met. The exit code is "
        "then 1, as for any other failure; with --json gate.passed and targets.passed distinguish them.\n"
        "--shape uses random weights of a known model's shape, so that no download is needed; with --write they are "
        "written to a file, which spry and llama.cpp can load, and nothing is measured.\n"
        "--widen gives a small model the sizes of a large one without changing what it computes, so that --draft can "
        "be "
        "measured with a real drafter and a model that is bound by memory.\n"
        "--mix measures a workload as its clients see it, and with --url the same workload on another server. What was "
        "measured is reported also when one of them fails; the exit code is then 1.",
    .examples = "spry bench\n"
                "spry bench model.gguf --prefill 512 --decode-depth 0,1024 --batch 1 --json\n"
                "spry bench --shape qwen3-0.6b --type q4_0\n"
                "spry bench --shape qwen3-0.6b --reuse\n"
                "spry bench --draft auto\n"
                "spry bench --widen qwen3-0.6b --draft Spry-Tales-29M --curve\n"
                "spry bench --chunk 0,128,256,512 --prefill 2048\n"
                "spry bench --mix chat --mix-scale 0.25 --url http://localhost:11434\n"
                "spry bench --save base.json\n"
                "spry bench --baseline base.json --max-drop 10%\n"
                "spry bench --baseline base.json --measured now.json\n"
                "spry bench --policy\n"
                "spry bench --shape llama3.2-1b --type q8_0 --write llama-random.gguf",
};

/* ---- random weights ------------------------------------------------------------------------------------------------
 */

/* `source`: of the model that is widened; resolved here where one is, and deinitialised by the caller. */
static spry_status shape_of(spry_bench_shape *shape, spry_model_source *source, const spry_bench_flags *flags,
                            const char *model, spry_error *error)
{
    *shape = (spry_bench_shape){.shape = flags->shape ? flags->shape : flags->widen,
                                .type = flags->type ? flags->type : "q4_0",
                                .threads = flags->settings.engine.options.threads,
                                .widened = flags->widen ? source : NULL};
    return flags->widen ? spry_model_source_find(source, model, flags->settings.model.models_folder, error) : SPRY_OK;
}

static int write_shape(const spry_bench_flags *flags, const char *model)
{
    spry_error error;
    spry_bench_shape shape;
    spry_model_source source = {0};
    spry_status status = shape_of(&shape, &source, flags, model, &error);
    if (!status)
        status = spry_bench_shape_write(&shape, flags->write, &error);
    if (!status && flags->widen)
        spry_out_quote("wrote %s: %s widened to %s\n", flags->write, source.name, shape.shape);
    else if (!status)
        spry_out_format("wrote %s: %s, %s, random weights\n", flags->write, shape.shape, shape.type);
    spry_model_source_deinit(&source);
    return status ? spry_complain_error(&error) : spry_out_finish(SPRY_EXIT_OK);
}

/* ---- measuring -----------------------------------------------------------------------------------------------------
 */

static spry_status measure(spry_bench_report *report, spry_bench_flags *flags, const char *model,
                           const spry_model_source *source, spry_error *error)
{
    spry_bench_machine *machine = &report->machine;
    const char *cpu = flags->settings.engine.options.cpu;
    spry_status status = spry_bench_run(report, &flags->settings, model, source, error);
    if (!status)
        status = spry_bench_machine_measure(machine, cpu, report->main_type, error);
    return status;
}

/* Saves a report, checks it against baseline and targets, and prints it as JSON where that is wanted; *passed is the
 * verdict. */
static spry_status publish(bool *passed, const spry_bench_flags *flags, json_t *json, spry_error *error)
{
    spry_status status = flags->save ? spry_bench_file_save(json, flags->save, error) : SPRY_OK;
    if (!status)
        status = spry_bench_judge_report(passed, &flags->judge, json, flags->json ? json : NULL, error);
    if (!status && flags->json)
        status = spry_bench_print_json(json, error);
    return status;
}

static spry_status bench_reuse(spry_bench_flags *flags, const char *name, const spry_model_source *source,
                               spry_error *error)
{
    spry_bench_reuse reuse = {.model = name};
    spry_status status = spry_bench_reuse_run(&reuse, &flags->settings, source, error);
    if (!status && flags->json)
        return spry_bench_reuse_print_json(&reuse, error);
    if (!status)
        spry_bench_reuse_print_table(&reuse);
    return status;
}

static spry_status bench_draft(bool *passed, spry_bench_flags *flags, const char *name, const spry_model_source *source,
                               spry_error *error)
{
    static spry_bench_drafts drafts; /* too large for some stacks */
    drafts.model = name;
    drafts.who = flags->draft;
    spry_status status = spry_bench_draft_run(&drafts, &flags->settings, source, flags->draft, flags->curve, error);
    json_t *json = status ? NULL : spry_bench_draft_json(&drafts);
    if (!status && !json)
        status = spry_fail(error, SPRY_ERR_MEMORY, "not enough memory for the report as JSON");
    if (!status && !flags->json)
        spry_bench_draft_print_table(&drafts);
    if (!status)
        status = publish(passed, flags, json, error);
    json_decref(json);
    return status;
}

static spry_status bench_chunks(spry_bench_flags *flags, const char *name, const spry_model_source *source,
                                spry_error *error)
{
    static spry_bench_chunks chunks; /* too large for some stacks */
    chunks.model = name;
    spry_status status = spry_bench_chunk_run(&chunks, &flags->settings, &flags->chunks, source, error);
    json_t *json = !status && (flags->json || flags->save) ? spry_bench_chunk_json(&chunks) : NULL;
    if (!status && flags->save)
        status = spry_bench_file_save(json, flags->save, error);
    if (!status && flags->json)
        status = spry_bench_print_json(json, error);
    else if (!status)
        spry_bench_chunk_print_table(&chunks);
    json_decref(json);
    return status;
}

static spry_status bench_speed(bool *passed, spry_bench_flags *flags, const char *name, const char *model,
                               const spry_model_source *source, spry_error *error)
{
    static spry_bench_report report; /* too large for some stacks */
    report.model = name;
    spry_status status = measure(&report, flags, model, source, error);
    json_t *json = status ? NULL : spry_bench_report_json(&report);
    if (!status && !json)
        status = spry_fail(error, SPRY_ERR_MEMORY, "not enough memory for the report as JSON");
    if (!status && !flags->json)
        spry_bench_print_table(&report);
    if (!status)
        status = publish(passed, flags, json, error);
    json_decref(json);
    spry_bench_report_deinit(&report);
    return status;
}

/* Uses a saved report instead of measuring. */
static spry_status bench_measured(bool *passed, const spry_bench_flags *flags, spry_error *error)
{
    json_t *json = flags->json ? json_object() : NULL;
    spry_status status = spry_bench_judge_report(passed, &flags->judge, flags->judge.measured, json, error);
    if (!status && json)
        status = spry_bench_print_json(json, error);
    json_decref(json);
    return status;
}

static int bench(spry_bench_flags *flags, const char *model)
{
    char name[160];
    spry_error error;
    spry_model_source source = {0}, small = {0};
    spry_temporary made = {.file = -1};
    spry_status status = SPRY_OK;
    bool passed = true;
    if (flags->shape || flags->widen) {
        spry_bench_shape shape;
        status = shape_of(&shape, &small, flags, model, &error);
        if (!status)
            status = spry_bench_shape_make(&made, &shape, &error);
        snprintf(name, sizeof name, "%.100s%s%s", small.name ? small.name : shape.shape, small.name ? " as " : "-",
                 small.name ? shape.shape : shape.type);
        model = made.path;
    }
    if (!status)
        status = spry_model_source_find(&source, model, flags->settings.model.models_folder, &error);
    const char *shown = made.path ? name : source.name;
    if (!status)
        status = flags->reuse          ? bench_reuse(flags, shown, &source, &error)
                 : flags->draft        ? bench_draft(&passed, flags, shown, &source, &error)
                 : flags->chunks.count ? bench_chunks(flags, shown, &source, &error)
                 : flags->mix.mix ? spry_bench_mix(&passed, &flags->mix, &flags->settings, shown, &source, flags->json,
                                                   flags->save, &error)
                                  : bench_speed(&passed, flags, shown, model, &source, &error);
    spry_model_source_deinit(&source);
    spry_model_source_deinit(&small);
    spry_temporary_deinit(&made);
    return status ? spry_complain_error(&error) : spry_out_finish(passed ? SPRY_EXIT_OK : SPRY_EXIT_FAILURE);
}

static void add_policy(spry_bench_list *list, uint32_t size)
{
    size_t at = 0;
    while (at < list->count && list->values[at] < size)
        at++;
    if (list->count == SPRY_BENCH_LIST_MAX || (at < list->count && list->values[at] == size))
        return;
    memmove(list->values + at + 1, list->values + at, (list->count - at) * sizeof *list->values);
    list->values[at] = size;
    list->count++;
}

/* Settings that were not given come from the files. */
static spry_status take_settings(spry_bench_flags *flags, spry_error *error)
{
    spry_bench_settings *s = &flags->settings;
    const spry_bench_given *given = &flags->judge.given;
    bool files = flags->judge.baseline || flags->judge.targets;
    spry_option_table tables[] = {spry_bench_flags_table(flags), spry_engine_flags_table(&s->engine)};
    spry_status status = spry_bench_judge_settings(s, &flags->judge, error);
    if (status)
        return status;
    for (size_t i = 0; !status && i < SPRY_COUNT(tables); i++)
        status = spry_options_check(&tables[i], error);
    if (status)
        return spry_fail_prefix(error, status, flags->judge.baseline_path ? flags->judge.baseline_path : "settings");
    for (uint32_t size = 1; flags->policy && size <= POLICY_MOST; size *= 2)
        add_policy(&s->policy, size);
    for (size_t i = 0; flags->policy && given->batch && i < s->batch.count; i++)
        add_policy(&s->policy, s->batch.values[i]);
    if (flags->policy && !files && !given->prefill)
        s->prefill.count = 0;
    if (flags->policy && !files && !given->batch)
        s->batch.count = 0;
    return SPRY_OK;
}

/* A report must not overwrite the model, nor the files it is compared with. */
static spry_status check_save(const spry_bench_flags *flags, const char *model, spry_error *error)
{
    const char *const files[] = {flags->judge.baseline_path, flags->judge.targets_path, flags->mix.mix, model};
    for (size_t i = 0; flags->save && i < SPRY_COUNT(files); i++)
        if (files[i] && spry_path_same(flags->save, files[i]))
            return spry_fail(error, SPRY_ERR_INPUT, "%s is an input file: name another file with --save", flags->save);
    return SPRY_OK;
}

/* Opens the files first, so that an invalid one is reported before minutes of measuring. */
static int bench_with_files(spry_bench_flags *flags, const char *model)
{
    spry_error error;
    spry_file_writer writer = {0};
    bool passed = true;
    int code = SPRY_EXIT_OK;
    spry_status status = spry_bench_judge_open(&flags->judge, &error);
    if (!status)
        status = check_save(flags, model, &error);
    if (!status && flags->save)
        status = spry_file_writer_open(&writer, flags->save, &error);
    spry_file_writer_abandon(&writer);
    if (!status && !flags->judge.measured)
        status = take_settings(flags, &error);
    if (!status && flags->judge.measured)
        status = bench_measured(&passed, flags, &error);
    if (status)
        code = spry_complain_error(&error);
    else if (flags->judge.measured)
        code = spry_out_finish(passed ? SPRY_EXIT_OK : SPRY_EXIT_FAILURE);
    else
        code = bench(flags, model);
    spry_bench_judge_deinit(&flags->judge);
    return code;
}

/* ---- the command ---------------------------------------------------------------------------------------------------
 */

int spry_cmd_bench(int argc, char **argv)
{
    spry_bench_flags flags;
    spry_bench_flags_default(&flags);
    spry_option_table tables[] = {spry_bench_flags_table(&flags), spry_mix_flags_table(&flags.mix),
                                  spry_engine_flags_table(&flags.settings.engine),
                                  spry_model_flags_table(&flags.settings.model)};
    const char *model = NULL;
    spry_option_list positionals = {&model, 1, 0};
    int code;
    if (!spry_usage_parse(&code, &usage, tables, SPRY_COUNT(tables), &positionals, argc, argv))
        return code;
    if (strcmp(flags.settings.engine.options.kv_type, "auto") == 0) /* reports are compared: they name a type */
        flags.settings.engine.options.kv_type = "f16";
    code = spry_bench_flags_check(&flags, &usage, model, argc, argv);
    if (code != SPRY_EXIT_OK)
        return code;
    flags.settings.engine.quiet = true;
    spry_interrupt_install(NULL, true);
    code = flags.write ? write_shape(&flags, model) : bench_with_files(&flags, model);
    spry_interrupt_remove();
    return code;
}
