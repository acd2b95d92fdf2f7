/* spry bench: measures the speed of a model on this machine, relative to the machine's limits. */
#include <stdio.h>

#include "bench/bench_draft.h"
#include "bench/bench_judge.h"
#include "bench/bench_reuse.h"
#include "bench/bench_shape.h"
#include "cli/commands.h"
#include "cli/interrupt.h"
#include "cli/terminal.h"
#include "cli/usage.h"
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
        "written to a file, which spry and llama.cpp can load, and nothing is measured.",
    .examples = "spry bench\n"
                "spry bench model.gguf --prefill 512 --decode-depth 0,1024 --batch 1 --json\n"
                "spry bench --shape qwen3-0.6b --type q4_0\n"
                "spry bench --shape qwen3-0.6b --reuse\n"
                "spry bench --draft auto\n"
                "spry bench --save base.json\n"
                "spry bench --baseline base.json --max-drop 10%\n"
                "spry bench --baseline base.json --measured now.json\n"
                "spry bench --policy\n"
                "spry bench --shape llama3.2-1b --type q8_0 --write llama-random.gguf",
};

typedef struct bench_flags {
    const char *prefill, *depth, *batch; /* lists, as text */
    const char *shape, *type, *write;
    const char *draft; /* NULL: not what is measured */
    const char *save, *max_drop;
    bool json, reuse, policy;
    spry_bench_judge judge;
    spry_bench_settings settings;
} bench_flags;

static const char default_prefill[] = "128,512,2048", default_depth[] = "0,512,2048", default_batch[] = "1,2,4,8";
static const char default_max_drop[] = "10%";

#define FIELD(name) offsetof(bench_flags, name)

static const spry_option bench_options[] = {
    {.name = "prefill",
     .kind = SPRY_OPTION_STRING,
     .offset = FIELD(prefill),
     .metavar = "LIST",
     .help = "Prompt lengths to prefill, separated by commas, or none",
     .group = "What to measure"},
    {.name = "decode-depth",
     .kind = SPRY_OPTION_STRING,
     .offset = FIELD(depth),
     .metavar = "LIST",
     .help = "Depths: context lengths at which decoding starts, or none"},
    {.name = "batch",
     .kind = SPRY_OPTION_STRING,
     .offset = FIELD(batch),
     .metavar = "LIST",
     .help = "Batch sizes: sequences decoded together at each depth, or none"},
    {.name = "tokens",
     .letter = 'n',
     .kind = SPRY_OPTION_U32,
     .offset = FIELD(settings.tokens),
     .min = 1,
     .max = SPRY_BENCH_TOKENS_MAX,
     .help = "Tokens each sequence generates"},
    {.name = "repeat",
     .letter = 'r',
     .kind = SPRY_OPTION_U32,
     .offset = FIELD(settings.repeat),
     .min = 1,
     .max = SPRY_BENCH_REPEAT_MAX,
     .help = "Number of repeats; the median is shown"},
    {.name = "reuse",
     .flag_only = true,
     .kind = SPRY_OPTION_FLAG,
     .offset = FIELD(reuse),
     .help = "Measure instead the savings of cached text: a prefix, fragments in another order, a restart, lookup, "
             "decode over moved pages"},
    {.name = "draft",
     .flag_only = true,
     .kind = SPRY_OPTION_STRING,
     .offset = FIELD(draft),
     .metavar = "WHO",
     .help = "Measure instead the gain of drafting: auto, lookup or a MODEL, as for spry run"},
    {.name = "policy",
     .flag_only = true,
     .kind = SPRY_OPTION_FLAG,
     .offset = FIELD(policy),
     .help = "Measure the batch size that offline mode would choose; of the lists above only those that are given"},
    {.name = "json",
     .kind = SPRY_OPTION_FLAG,
     .offset = FIELD(json),
     .help = "Print one JSON object",
     .group = "Output"},
    {.name = "save",
     .kind = SPRY_OPTION_STRING,
     .offset = FIELD(save),
     .metavar = "FILE",
     .help = "Save the report as JSON, for --baseline and spry report"},
    {.name = "baseline",
     .kind = SPRY_OPTION_STRING,
     .offset = FIELD(judge.baseline_path),
     .metavar = "FILE",
     .help = "A saved report: measure the same and compare every figure",
     .group = "Gate"},
    {.name = "max-drop",
     .kind = SPRY_OPTION_STRING,
     .offset = FIELD(max_drop),
     .metavar = "PERCENT",
     .help = "Maximum decline of a figure relative to the baseline"},
    {.name = "targets",
     .kind = SPRY_OPTION_STRING,
     .offset = FIELD(judge.targets_path),
     .metavar = "FILE",
     .help = "Targets for machines, as JSON (docs/INSIGHT.md), or profile: those of the machine's profile"},
    {.name = "measured",
     .kind = SPRY_OPTION_STRING,
     .offset = FIELD(judge.measured_path),
     .metavar = "FILE",
     .help = "Measure nothing: use this saved report"},
    {.name = "force",
     .kind = SPRY_OPTION_FLAG,
     .offset = FIELD(judge.force),
     .help = "Compare reports of different machines, models or settings"},
    {.name = "shape",
     .flag_only = true,
     .kind = SPRY_OPTION_CHOICE,
     .offset = FIELD(shape),
     .choices = spry_shape_names,
     .help = "Measure random weights of this shape",
     .group = "Random weights"},
    {.name = "type",
     .kind = SPRY_OPTION_CHOICE,
     .offset = FIELD(type),
     .choices = spry_recipe_names,
     .metavar = "TYPE",
     .help = "Type of the random matrices; default: q4_0"},
    {.name = "write",
     .flag_only = true,
     .letter = 'o',
     .kind = SPRY_OPTION_STRING,
     .offset = FIELD(write),
     .metavar = "FILE",
     .help = "Only write the model with random weights to FILE.gguf"},
};

/* ---- random weights ------------------------------------------------------------------------------------------------
 */

static spry_bench_shape shape_of(const bench_flags *flags)
{
    return (spry_bench_shape){flags->shape, flags->type ? flags->type : "q4_0", flags->settings.engine.options.threads};
}

static int write_shape(const bench_flags *flags)
{
    spry_error error;
    spry_bench_shape shape = shape_of(flags);
    if (spry_bench_shape_write(&shape, flags->write, &error))
        return spry_complain_error(&error);
    spry_out_format("wrote %s: %s, %s, random weights\n", flags->write, shape.shape, shape.type);
    return spry_out_finish(SPRY_EXIT_OK);
}

/* ---- measuring -----------------------------------------------------------------------------------------------------
 */

static spry_status measure(spry_bench_report *report, bench_flags *flags, const char *model,
                           const spry_model_source *source, spry_error *error)
{
    spry_bench_machine *machine = &report->machine;
    const char *cpu = flags->settings.engine.options.cpu;
    spry_status status = spry_bench_run(report, &flags->settings, model, source, error);
    if (!status)
        status = spry_bench_machine_measure(machine, cpu, report->main_type, error);
    return status;
}

static spry_status bench_reuse(bench_flags *flags, const char *name, const spry_model_source *source, spry_error *error)
{
    spry_bench_reuse reuse = {.model = name};
    spry_status status = spry_bench_reuse_run(&reuse, &flags->settings, source, error);
    if (!status && flags->json)
        return spry_bench_reuse_print_json(&reuse, error);
    if (!status)
        spry_bench_reuse_print_table(&reuse);
    return status;
}

static spry_status bench_draft(bench_flags *flags, const char *name, const spry_model_source *source, spry_error *error)
{
    spry_bench_drafts drafts = {.model = name, .who = flags->draft};
    spry_status status = spry_bench_draft_run(&drafts, &flags->settings, source, flags->draft, error);
    if (!status && flags->json)
        return spry_bench_draft_print_json(&drafts, error);
    if (!status)
        spry_bench_draft_print_table(&drafts);
    return status;
}

/* Prints or saves a report and checks it against baseline and targets; *passed is the verdict. */
static spry_status publish(bool *passed, const bench_flags *flags, const spry_bench_report *report, spry_error *error)
{
    json_t *json = spry_bench_report_json(report);
    spry_status status = json ? SPRY_OK : spry_fail(error, SPRY_ERR_MEMORY, "not enough memory for the report as JSON");
    if (!status && !flags->json)
        spry_bench_print_table(report);
    if (!status && flags->save)
        status = spry_bench_file_save(json, flags->save, error);
    if (!status)
        status = spry_bench_judge_report(passed, &flags->judge, json, flags->json ? json : NULL, error);
    if (!status && flags->json)
        status = spry_bench_print_json(json, error);
    json_decref(json);
    return status;
}

static spry_status bench_speed(bool *passed, bench_flags *flags, const char *name, const char *model,
                               const spry_model_source *source, spry_error *error)
{
    static spry_bench_report report; /* too large for some stacks */
    report.model = name;
    spry_status status = measure(&report, flags, model, source, error);
    if (!status)
        status = publish(passed, flags, &report, error);
    spry_bench_report_deinit(&report);
    return status;
}

/* Uses a saved report instead of measuring. */
static spry_status bench_measured(bool *passed, const bench_flags *flags, spry_error *error)
{
    json_t *json = flags->json ? json_object() : NULL;
    spry_status status = spry_bench_judge_report(passed, &flags->judge, flags->judge.measured, json, error);
    if (!status && json)
        status = spry_bench_print_json(json, error);
    json_decref(json);
    return status;
}

static int bench(bench_flags *flags, const char *model)
{
    char name[96];
    spry_error error;
    spry_model_source source = {0};
    spry_temporary made = {.file = -1};
    spry_status status = SPRY_OK;
    bool passed = true;
    if (flags->shape) {
        spry_bench_shape shape = shape_of(flags);
        status = spry_bench_shape_make(&made, &shape, &error);
        snprintf(name, sizeof name, "%s-%s", shape.shape, shape.type);
        model = made.path;
    }
    if (!status)
        status = spry_model_source_find(&source, model, flags->settings.model.models_folder, &error);
    const char *shown = flags->shape ? name : source.name;
    if (!status)
        status = flags->reuse   ? bench_reuse(flags, shown, &source, &error)
                 : flags->draft ? bench_draft(flags, shown, &source, &error)
                                : bench_speed(&passed, flags, shown, model, &source, &error);
    spry_model_source_deinit(&source);
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
static spry_status take_settings(bench_flags *flags, spry_error *error)
{
    spry_bench_settings *s = &flags->settings;
    const spry_bench_given *given = &flags->judge.given;
    bool files = flags->judge.baseline || flags->judge.targets;
    spry_option_table tables[] = {{bench_options, SPRY_COUNT(bench_options), flags},
                                  spry_engine_flags_table(&s->engine)};
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
static spry_status check_save(const bench_flags *flags, const char *model, spry_error *error)
{
    const char *const files[] = {flags->judge.baseline_path, flags->judge.targets_path, model};
    for (size_t i = 0; flags->save && i < SPRY_COUNT(files); i++)
        if (files[i] && spry_path_same(flags->save, files[i]))
            return spry_fail(error, SPRY_ERR_INPUT, "%s is an input file: name another file with --save", flags->save);
    return SPRY_OK;
}

/* Opens the files first, so that an invalid one is reported before minutes of measuring. */
static int bench_with_files(bench_flags *flags, const char *model)
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

static spry_status read_lists(bench_flags *flags, spry_error *error)
{
    spry_bench_settings *s = &flags->settings;
    spry_status status = spry_bench_list_parse(&s->prefill, flags->prefill, 1, SPRY_BENCH_TOKENS_MAX, "prefill", error);
    if (!status)
        status = spry_bench_list_parse(&s->depth, flags->depth, 0, SPRY_BENCH_TOKENS_MAX, "decode-depth", error);
    if (!status)
        status = spry_bench_list_parse(&s->batch, flags->batch, 1, SPRY_STEPS_MAX, "batch", error);
    if (!status)
        status = spry_bench_percent_parse(&flags->judge.max_drop, flags->max_drop, "max-drop", error);
    return status;
}

/* Checks options that exclude or require each other. */
static int check_gate(const bench_flags *flags, const char *model)
{
    const spry_bench_judge *j = &flags->judge;
    bool gate = j->baseline_path || j->targets_path;
    if ((gate || flags->save || flags->policy || j->measured_path) && (flags->reuse || flags->draft || flags->write))
        return spry_usage_wrong(&usage,
                                "--%s cannot be used with --save, --baseline, --targets, --measured and "
                                "--policy",
                                flags->reuse   ? "reuse"
                                : flags->draft ? "draft"
                                               : "write");
    if (!j->baseline_path && (j->force || flags->max_drop != default_max_drop))
        return spry_usage_wrong(&usage, "--%s needs --baseline", j->force ? "force" : "max-drop");
    if (j->measured_path && !gate)
        return spry_usage_wrong(&usage, "--measured needs --baseline or --targets");
    const struct {
        const char *name;
        bool given;
    } unused[] = {{"MODEL", model},
                  {"--shape", flags->shape},
                  {"--save", flags->save},
                  {"--policy", flags->policy},
                  {"--prefill", j->given.prefill},
                  {"--decode-depth", j->given.depth},
                  {"--batch", j->given.batch},
                  {"--tokens", j->given.tokens},
                  {"--repeat", j->given.repeat}};
    for (size_t i = 0; j->measured_path && i < SPRY_COUNT(unused); i++)
        if (unused[i].given)
            return spry_usage_wrong(&usage, "--measured uses a saved report and measures no model: omit %s",
                                    unused[i].name);
    return SPRY_EXIT_OK;
}

static int check(bench_flags *flags, const char *model)
{
    spry_error error;
    if (flags->shape && model)
        return spry_usage_wrong(&usage, "a MODEL and --shape were both given");
    if (!flags->shape && (flags->type || flags->write))
        return spry_usage_wrong(&usage, "--%s needs --shape", flags->type ? "type" : "write");
    if (flags->reuse && flags->draft)
        return spry_usage_wrong(&usage, "--reuse and --draft measure different things: give one of them");
    if (flags->write && flags->json)
        return spry_usage_wrong(&usage, "--write measures nothing that --json could print");
    if (read_lists(flags, &error))
        return spry_usage_wrong(&usage, "%s", error.message);
    return check_gate(flags, model);
}

static bench_flags default_flags(void)
{
    bench_flags flags = {
        .prefill = default_prefill, .depth = default_depth, .batch = default_batch, .max_drop = default_max_drop};
    flags.settings.tokens = 32;
    flags.settings.repeat = 3;
    spry_engine_flags_default(&flags.settings.engine);
    return flags;
}

/* Parses the arguments again into empty settings to see which were given. */
static spry_bench_given find_given(const bench_flags *flags, int argc, char **argv)
{
    bench_flags said = {0};
    spry_usage_general general = {0};
    const spry_engine_options *engine = &said.settings.engine.options;
    spry_option_table tables[] = {{bench_options, SPRY_COUNT(bench_options), &said},
                                  spry_engine_flags_table(&said.settings.engine),
                                  spry_model_flags_table(&said.settings.model),
                                  spry_usage_general_table(&general)};
    const char *model = NULL;
    spry_option_list positionals = {&model, 1, 0};
    spry_options_parse(tables, SPRY_COUNT(tables), &positionals, argc, argv, NULL);
    return (spry_bench_given){.prefill = flags->prefill != default_prefill,
                              .depth = flags->depth != default_depth,
                              .batch = flags->batch != default_batch,
                              .tokens = said.settings.tokens,
                              .repeat = said.settings.repeat,
                              .threads = engine->threads,
                              .chunk = engine->chunk,
                              .kv_type = engine->kv_type,
                              .quantize = engine->quantize};
}

int spry_cmd_bench(int argc, char **argv)
{
    bench_flags flags = default_flags();
    spry_option_table tables[] = {{bench_options, SPRY_COUNT(bench_options), &flags},
                                  spry_engine_flags_table(&flags.settings.engine),
                                  spry_model_flags_table(&flags.settings.model)};
    const char *model = NULL;
    spry_option_list positionals = {&model, 1, 0};
    int code;
    if (!spry_usage_parse(&code, &usage, tables, SPRY_COUNT(tables), &positionals, argc, argv))
        return code;
    if (strcmp(flags.settings.engine.options.kv_type, "auto") == 0) /* reports are compared: they name a type */
        flags.settings.engine.options.kv_type = "f16";
    flags.judge.given = find_given(&flags, argc, argv);
    code = check(&flags, model);
    if (code != SPRY_EXIT_OK)
        return code;
    flags.settings.engine.quiet = true;
    spry_interrupt_install(NULL, true);
    code = flags.write ? write_shape(&flags) : bench_with_files(&flags, model);
    spry_interrupt_remove();
    return code;
}
