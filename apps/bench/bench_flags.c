/* The table of flags, and what they exclude. */
#include "bench/bench_flags.h"

#include <string.h>

#include "bench/bench_draft.h"

enum { CHUNK_MOST = 65536 };

static const char default_prefill[] = "128,512,2048", default_depth[] = "0,512,2048", default_batch[] = "1,2,4,8";
static const char default_max_drop[] = "10%";

#define FIELD(name) offsetof(spry_bench_flags, name)

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
     .help = "Tokens each sequence generates; with --draft tokens of each answer, then 128"},
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
    {.name = "curve",
     .flag_only = true,
     .kind = SPRY_OPTION_FLAG,
     .offset = FIELD(curve),
     .help = "With --draft: also at higher temperatures, whose tokens are harder to guess: speed against acceptance"},
    {.name = "policy",
     .flag_only = true,
     .kind = SPRY_OPTION_FLAG,
     .offset = FIELD(policy),
     .help = "Measure the batch size that offline mode would choose; of the lists above only those that are given"},
    {.name = "chunk",
     .flag_only = true,
     .kind = SPRY_OPTION_STRING,
     .offset = FIELD(chunk),
     .metavar = "N|LIST",
     .help = "Prompt tokens computed in one step, default 128; a list, or 0 for whole prompts: measure instead the "
             "prefill of every --prefill length with each of these"},
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
    {.name = "widen",
     .flag_only = true,
     .kind = SPRY_OPTION_CHOICE,
     .offset = FIELD(widen),
     .choices = spry_shape_names,
     .help = "Measure MODEL with the sizes of this shape: zeros are added, and it computes what it computed before"},
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
     .help = "Only write the model with random weights, or the widened one, to FILE.gguf"},
};

spry_option_table spry_bench_flags_table(spry_bench_flags *flags)
{
    return (spry_option_table){bench_options, SPRY_COUNT(bench_options), flags};
}

void spry_bench_flags_default(spry_bench_flags *flags)
{
    *flags = (spry_bench_flags){
        .prefill = default_prefill, .depth = default_depth, .batch = default_batch, .max_drop = default_max_drop};
    flags->settings.tokens = 32;
    flags->settings.repeat = 3;
    spry_mix_flags_default(&flags->mix);
    spry_engine_flags_default(&flags->settings.engine);
}

/* ---- which were given ---------------------------------------------------------------------------------------------
 */

/* Parses the arguments again into empty settings to see which were given. */
static spry_bench_given find_given(spry_mix_flags *mix, const spry_bench_flags *flags, int argc, char **argv)
{
    spry_bench_flags said = {0};
    spry_usage_general general = {0};
    const spry_engine_options *engine = &said.settings.engine.options;
    spry_option_table tables[] = {{bench_options, SPRY_COUNT(bench_options), &said},
                                  spry_mix_flags_table(&said.mix),
                                  spry_engine_flags_table(&said.settings.engine),
                                  spry_model_flags_table(&said.settings.model),
                                  spry_usage_general_table(&general)};
    const char *model = NULL;
    spry_option_list positionals = {&model, 1, 0};
    spry_options_parse(tables, SPRY_COUNT(tables), &positionals, argc, argv, NULL);
    *mix = said.mix;
    return (spry_bench_given){.prefill = flags->prefill != default_prefill,
                              .depth = flags->depth != default_depth,
                              .batch = flags->batch != default_batch,
                              .tokens = said.settings.tokens,
                              .repeat = said.settings.repeat,
                              .threads = engine->threads,
                              .chunk = said.chunk,
                              .kv_type = engine->kv_type,
                              .quantize = engine->quantize};
}

/* ---- which go together --------------------------------------------------------------------------------------------
 */

static spry_status read_lists(spry_bench_flags *flags, spry_error *error)
{
    spry_bench_settings *s = &flags->settings;
    spry_status status = spry_bench_list_parse(&s->prefill, flags->prefill, 1, SPRY_BENCH_TOKENS_MAX, "prefill", error);
    if (!status)
        status = spry_bench_list_parse(&s->depth, flags->depth, 0, SPRY_BENCH_TOKENS_MAX, "decode-depth", error);
    if (!status)
        status = spry_bench_list_parse(&s->batch, flags->batch, 1, SPRY_STEPS_MAX, "batch", error);
    if (!status)
        status = spry_bench_percent_parse(&flags->judge.max_drop, flags->max_drop, "max-drop", error);
    if (status || !flags->chunk)
        return status;
    status = spry_bench_list_parse(&flags->chunks, flags->chunk, 0, CHUNK_MOST, "chunk", error);
    if (!status && !flags->chunks.count)
        status = spry_fail(error, SPRY_ERR_INPUT, "--chunk names no size");
    if (!status && flags->chunks.count == 1 && flags->chunks.values[0]) {
        s->engine.options.chunk = flags->chunks.values[0];
        flags->chunks.count = 0;
    }
    return status;
}

/* Of the things that are measured instead of the usual points, at most one; what they do not use is refused. */
static int check_kind(const spry_bench_flags *flags, const spry_usage *usage)
{
    const spry_bench_judge *j = &flags->judge;
    const char *const kinds[] = {flags->reuse ? "reuse" : NULL, flags->draft ? "draft" : NULL,
                                 flags->chunks.count ? "chunk" : NULL, flags->mix.mix ? "mix" : NULL};
    const char *kind = NULL;
    for (size_t i = 0; i < SPRY_COUNT(kinds); i++) {
        if (kind && kinds[i])
            return spry_usage_wrong(usage, "--%s and --%s measure different things: give one of them", kind, kinds[i]);
        kind = kind ? kind : kinds[i];
    }
    const struct {
        const char *name;
        bool given;
    } others[] = {{"--save", flags->save && (flags->reuse || flags->write)},
                  {"--targets", j->targets_path && !flags->draft},
                  {"--baseline", j->baseline_path},
                  {"--measured", j->measured_path},
                  {"--policy", flags->policy}};
    for (size_t i = 0; (kind || flags->write) && i < SPRY_COUNT(others); i++)
        if (others[i].given)
            return spry_usage_wrong(usage, "--%s cannot be used with %s", kind ? kind : "write", others[i].name);
    return SPRY_EXIT_OK;
}

/* Flags that only a workload, or only the usual points have. */
static int check_mix(const spry_bench_flags *flags, const spry_usage *usage, const spry_mix_flags *given)
{
    const struct {
        const char *name;
        bool given;
    } of_mix[] = {{"--url", given->url},           {"--url-model", given->url_model}, {"--requests", given->requests},
                  {"--together", given->together}, {"--mix-scale", given->scale > 0}, {"--seed", given->seed}},
      of_points[] = {{"--prefill", flags->judge.given.prefill}, {"--decode-depth", flags->judge.given.depth},
                     {"--batch", flags->judge.given.batch},     {"--tokens", flags->judge.given.tokens},
                     {"--repeat", flags->judge.given.repeat},   {"--write", flags->write}};
    for (size_t i = 0; !flags->mix.mix && i < SPRY_COUNT(of_mix); i++)
        if (of_mix[i].given)
            return spry_usage_wrong(usage, "%s needs --mix", of_mix[i].name);
    if (given->url_model && !given->url)
        return spry_usage_wrong(usage, "--url-model needs --url");
    for (size_t i = 1; flags->chunks.count && i < 4; i++)
        if (of_points[i].given)
            return spry_usage_wrong(usage, "%s is not measured with several sizes of --chunk", of_points[i].name);
    for (size_t i = 0; flags->mix.mix && i < SPRY_COUNT(of_points); i++)
        if (of_points[i].given)
            return spry_usage_wrong(usage, "%s is not part of a workload: the mix has the lengths", of_points[i].name);
    return SPRY_EXIT_OK;
}

/* Checks options that exclude or require each other. */
static int check_gate(const spry_bench_flags *flags, const spry_usage *usage, const char *model)
{
    const spry_bench_judge *j = &flags->judge;
    bool gate = j->baseline_path || j->targets_path;
    if (!j->baseline_path && (j->force || flags->max_drop != default_max_drop))
        return spry_usage_wrong(usage, "--%s needs --baseline", j->force ? "force" : "max-drop");
    if (j->measured_path && !gate)
        return spry_usage_wrong(usage, "--measured needs --baseline or --targets");
    const struct {
        const char *name;
        bool given;
    } unused[] = {{"MODEL", model},
                  {"--shape", flags->shape},
                  {"--widen", flags->widen},
                  {"--save", flags->save},
                  {"--policy", flags->policy},
                  {"--prefill", j->given.prefill},
                  {"--decode-depth", j->given.depth},
                  {"--batch", j->given.batch},
                  {"--tokens", j->given.tokens},
                  {"--repeat", j->given.repeat}};
    for (size_t i = 0; j->measured_path && i < SPRY_COUNT(unused); i++)
        if (unused[i].given)
            return spry_usage_wrong(usage, "--measured uses a saved report and measures no model: omit %s",
                                    unused[i].name);
    return SPRY_EXIT_OK;
}

int spry_bench_flags_check(spry_bench_flags *flags, const spry_usage *usage, const char *model, int argc, char **argv)
{
    spry_error error;
    spry_mix_flags mix_given;
    flags->judge.given = find_given(&mix_given, flags, argc, argv);
    if (flags->shape && model)
        return spry_usage_wrong(usage, "a MODEL and --shape were both given");
    if (flags->shape && flags->widen)
        return spry_usage_wrong(usage, "--shape has random weights, --widen those of a model: give one of them");
    if (!flags->shape && flags->type)
        return spry_usage_wrong(usage, "--type needs --shape");
    if (!flags->shape && !flags->widen && flags->write)
        return spry_usage_wrong(usage, "--write needs --shape or --widen");
    if (flags->draft && !flags->judge.given.tokens)
        flags->settings.tokens = SPRY_BENCH_DRAFT_TOKENS;
    if (flags->draft && flags->settings.tokens > SPRY_BENCH_DRAFT_TOKENS_MAX)
        return spry_usage_wrong(usage, "--tokens is at most %d with --draft", SPRY_BENCH_DRAFT_TOKENS_MAX);
    if (flags->curve && !flags->draft)
        return spry_usage_wrong(usage, "--curve needs --draft");
    if (flags->write && flags->json)
        return spry_usage_wrong(usage, "--write measures nothing that --json could print");
    if (read_lists(flags, &error))
        return spry_usage_wrong(usage, "%s", error.message);
    int code = check_kind(flags, usage);
    if (code == SPRY_EXIT_OK)
        code = check_mix(flags, usage, &mix_given);
    return code == SPRY_EXIT_OK ? check_gate(flags, usage, model) : code;
}
