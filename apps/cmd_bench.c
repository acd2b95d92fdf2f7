/* spry bench: how fast a model runs here, and how near that is to what the machine can do. */
#include <stdio.h>

#include "bench_draft.h"
#include "bench_reuse.h"
#include "bench_shape.h"
#include "commands.h"
#include "interrupt.h"
#include "model/recipe.h"
#include "model/shapes.h"
#include "terminal.h"
#include "usage.h"

enum { TOKENS_MAX = 1 << 20 };

static const spry_usage usage = {
    .command = "bench",
    .arguments = "[MODEL] [options]",
    .about =
        "Measures a model on this machine: prefill, decode at several depths and with several sequences together, "
        "loading, the first token of a new process, memory, and what share of the machine's own read bandwidth and "
        "multiply speed each came to. docs/SPEED.md explains the numbers. MODEL is as for spry run.\n"
        "--shape makes random weights of a known model's shape instead, so that nothing has to be downloaded; with "
        "--write they go to a file, which spry and llama.cpp can load, and nothing is measured.",
    .examples = "spry bench\n"
                "spry bench model.gguf --prefill 512 --decode-depth 0,1024 --batch 1 --json\n"
                "spry bench --shape qwen3-0.6b --type q4_0\n"
                "spry bench --shape qwen3-0.6b --reuse\n"
                "spry bench --draft auto\n"
                "spry bench --shape llama3.2-1b --type q8_0 --write llama-random.gguf",
};

typedef struct bench_flags {
    const char *prefill, *depth, *batch; /* lists, as text */
    const char *shape, *type, *write;
    const char *draft; /* NULL: not what is measured */
    bool json, reuse;
    spry_bench_settings settings;
} bench_flags;

#define FIELD(name) offsetof(bench_flags, name)

static const spry_option bench_options[] = {
    {.name = "prefill",
     .kind = SPRY_OPTION_STRING,
     .offset = FIELD(prefill),
     .metavar = "LIST",
     .help = "Lengths of prompts to read, separated by commas, or none",
     .group = "What to measure"},
    {.name = "decode-depth",
     .kind = SPRY_OPTION_STRING,
     .offset = FIELD(depth),
     .metavar = "LIST",
     .help = "How many tokens stand before those that are generated, or none",
     .group = "What to measure"},
    {.name = "batch",
     .kind = SPRY_OPTION_STRING,
     .offset = FIELD(batch),
     .metavar = "LIST",
     .help = "How many sequences decode together, at each depth, or none",
     .group = "What to measure"},
    {.name = "tokens",
     .letter = 'n',
     .kind = SPRY_OPTION_U32,
     .offset = FIELD(settings.tokens),
     .min = 1,
     .max = TOKENS_MAX,
     .help = "Tokens each sequence generates",
     .group = "What to measure"},
    {.name = "repeat",
     .letter = 'r',
     .kind = SPRY_OPTION_U32,
     .offset = FIELD(settings.repeat),
     .min = 1,
     .max = SPRY_BENCH_REPEAT_MAX,
     .help = "How often each is measured; the median is shown",
     .group = "What to measure"},
    {.name = "reuse",
     .kind = SPRY_OPTION_FLAG,
     .offset = FIELD(reuse),
     .help = "Measure instead what known text saves: a prefix, fragments in another order, a restart, finding, decode "
             "over moved pages",
     .group = "What to measure"},
    {.name = "draft",
     .kind = SPRY_OPTION_STRING,
     .offset = FIELD(draft),
     .metavar = "WHO",
     .help = "Measure instead what guessing ahead wins: auto, lookup or a MODEL, as for spry run",
     .group = "What to measure"},
    {.name = "json",
     .kind = SPRY_OPTION_FLAG,
     .offset = FIELD(json),
     .help = "Print one JSON object",
     .group = "Output"},
    {.name = "shape",
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
     .help = "Type of the random matrices; without it, q4_0",
     .group = "Random weights"},
    {.name = "write",
     .letter = 'o',
     .kind = SPRY_OPTION_STRING,
     .offset = FIELD(write),
     .metavar = "FILE",
     .help = "Only write the model with random weights to FILE.gguf",
     .group = "Random weights"},
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
    spry_processor_name(machine->cpu);
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

static spry_status bench_speed(bench_flags *flags, const char *name, const char *model, const spry_model_source *source,
                               spry_error *error)
{
    static spry_bench_report report; /* too large for some stacks */
    report.model = name;
    spry_status status = measure(&report, flags, model, source, error);
    if (!status && flags->json)
        return spry_bench_print_json(&report, error);
    if (!status)
        spry_bench_print_table(&report);
    return status;
}

static int bench(bench_flags *flags, const char *model)
{
    char name[96];
    spry_error error;
    spry_model_source source = {0};
    spry_temporary made = {.file = -1};
    spry_status status = SPRY_OK;
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
                                : bench_speed(flags, shown, model, &source, &error);
    spry_model_source_deinit(&source);
    spry_temporary_deinit(&made);
    return status ? spry_complain_error(&error) : spry_out_finish(SPRY_EXIT_OK);
}

/* ---- the command ---------------------------------------------------------------------------------------------------
 */

static spry_status read_lists(bench_flags *flags, spry_error *error)
{
    spry_bench_settings *s = &flags->settings;
    spry_status status = spry_bench_list_parse(&s->prefill, flags->prefill, 1, TOKENS_MAX, "prefill", error);
    if (!status)
        status = spry_bench_list_parse(&s->depth, flags->depth, 0, TOKENS_MAX, "decode-depth", error);
    if (!status)
        status = spry_bench_list_parse(&s->batch, flags->batch, 1, SPRY_BATCH_MAX, "batch", error);
    return status;
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
    return SPRY_EXIT_OK;
}

int spry_cmd_bench(int argc, char **argv)
{
    bench_flags flags = {.prefill = "128,512,2048", .depth = "0,512,2048", .batch = "1,2,4,8"};
    flags.settings.tokens = 32;
    flags.settings.repeat = 3;
    spry_engine_flags_default(&flags.settings.engine);
    spry_option_table tables[] = {{bench_options, SPRY_COUNT(bench_options), &flags},
                                  spry_engine_flags_table(&flags.settings.engine),
                                  spry_model_flags_table(&flags.settings.model)};
    const char *model = NULL;
    spry_option_list positionals = {&model, 1, 0};
    int code;
    if (!spry_usage_parse(&code, &usage, tables, SPRY_COUNT(tables), &positionals, argc, argv))
        return code;
    code = check(&flags, model);
    if (code != SPRY_EXIT_OK)
        return code;
    flags.settings.engine.quiet = true;
    spry_interrupt_install(NULL, true);
    code = flags.write ? write_shape(&flags) : bench(&flags, model);
    spry_interrupt_remove();
    return code;
}
