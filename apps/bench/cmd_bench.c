/* spry bench: measures the speed of a model on this machine, relative to the machine's limits. The flags, which of them
 * exclude or need each other, and the way from them to a report and a verdict. */
#include <stdio.h>
#include <string.h>

#include "bench/bench.h"
#include "cli/commands.h"
#include "cli/interrupt.h"
#include "cli/usage.h"
#include "platform/file.h"

enum { POLICY_MOST = 16 }; /* largest batch of the policy that is measured without --batch */
enum { DRAFT_TOKENS = 128 };

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
        "then 1, as for any other failure; with --json gate.passed and targets.passed distinguish them. All three "
        "work with --reuse, --draft, --mix, --agent and --chunk LIST, too.\n"
        "--shape uses random weights of a known model's shape, so that no download is needed; with --write they are "
        "written to a file, which spry and llama.cpp can load, and nothing is measured.\n"
        "--widen gives a small model the sizes of a large one without changing what it computes, so that --draft can "
        "be measured with a real drafter and a model that is bound by memory.\n"
        "--mix measures a workload as its clients see it, --agent a session of a coding agent, and with --url the same "
        "on another server. What was "
        "measured is reported also when one of them fails; the exit code is then 1.",
    .examples = "spry bench\n"
                "spry bench model.gguf --prefill 512 --decode-depth 0,1024 --batch 1 --json\n"
                "spry bench --shape qwen3-0.6b --type q4_0\n"
                "spry bench --shape qwen3-0.6b --reuse\n"
                "spry bench --draft auto\n"
                "spry bench --widen qwen3-0.6b --draft Spry-Tales-29M --curve\n"
                "spry bench --chunk 0,128,256,512 --prefill 2048\n"
                "spry bench --mix chat --mix-scale 0.25 --url http://localhost:11434\n"
                "spry bench --shape qwen3-0.6b --agent --url http://localhost:8080\n"
                "spry bench --save base.json\n"
                "spry bench --baseline base.json --max-drop 10%\n"
                "spry bench --baseline base.json --measured now.json\n"
                "spry bench --policy\n"
                "spry bench --only decode\n"
                "spry bench --without kv\n"
                "spry bench ./Qwen3-VL-2B-Instruct --image 1024x1024\n"
                "spry bench --accept\n"
                "spry bench --shape llama3.2-1b --type q8_0 --write llama-random.gguf",
};

/* ---- the flags --------------------------------------------------------------------------------------------------- */

static const char default_prefill[] = "128,512,2048", default_depth[] = "0,512,2048", default_batch[] = "1,2,4,8";
static const char default_max_drop[] = "10%";

#define OPTION(...) SPRY_OPTION(spry_bench_flags, __VA_ARGS__)
/* An option that says what to do, not how. */
#define ACTION(...) OPTION(__VA_ARGS__, .flag_only = true)

static const spry_option bench_options[] = {
    OPTION("prefill", STRING, prefill_text, .common = true, .metavar = "LIST", .group = "What to measure",
           .help = "Prompt lengths to prefill, separated by commas, or none"),
    OPTION("decode-depth", STRING, depth_text, .common = true, .metavar = "LIST",
           .help = "Depths: context lengths at which decoding starts, or none"),
    OPTION("batch", STRING, batch_text, .common = true, .metavar = "LIST",
           .help = "Batch sizes: sequences decoded together at each depth, or none"),
    OPTION("tokens", U32, tokens, .common = true, .letter = 'n', .min = 1, .max = SPRY_BENCH_TOKENS_MAX,
           .help = "Tokens each sequence generates; with --draft tokens of each answer, then 128"),
    OPTION("repeat", U32, repeat, .letter = 'r', .min = 1, .max = SPRY_BENCH_REPEAT_MAX,
           .help = "Number of repeats; the median is shown"),
    ACTION("reuse", FLAG, reuse,
           .help = "Measure instead the savings of cached text: a prefix, fragments in another order, a restart, "
                   "lookup, decode over moved pages"),
    ACTION("draft", STRING, draft, .metavar = "WHO",
           .help = "Measure instead the gain of drafting: auto, lookup, head or a MODEL, as for spry run"),
    OPTION("draft-mode", CHOICE, draft_mode, .choices = spry_draft_modes, .metavar = "MODE",
           .help = "With --draft: fast, or precise: draft only tokens that the drafter is sure of"),
    OPTION("draft-most", U32, draft_most, .max = SPRY_DRAFT_MOST,
           .help = "With --draft: maximum number of drafted tokens per step; 0: chosen automatically"),
    ACTION("curve", FLAG, curve,
           .help =
               "With --draft: also at higher temperatures, whose tokens are harder to guess: speed against acceptance"),
    ACTION("only", CHOICE, only, .choices = spry_bench_only, .common = true,
           .help = "Measure only this: opening the model and the first token of a new process, prefill, decode, a "
                   "request of a thousand tokens, or a call of a tool"),
    ACTION("without", CHOICE, without, .choices = spry_bench_parts,
           .help = "Measure instead what the engine would cost without its KV memory, batching, prompt cache or "
                   "fused attention, and what a grammar costs"),
    ACTION("image", STRING, image, .metavar = "WxH",
           .help = "Measure instead the first token of a question on a picture of this many pixels, and of a second "
                   "question on it"),
    ACTION("accept", FLAG, accept,
           .help = "Run all acceptance criteria on this machine, some minutes, and print each with its figure and "
                   "whether it passed; the exit code is 1 when one failed"),
    ACTION("policy", FLAG, with_policy,
           .help = "Measure the batch sizes that the policies of a server choose; of the lists above only those that "
                   "are given"),
    ACTION("chunk", STRING, chunk_text, .metavar = "N|LIST",
           .help = "Prompt tokens computed in one step, default 128; a list, or 0 for whole prompts: measure instead "
                   "the prefill of every --prefill length with each of these"),
    OPTION("json", FLAG, json, .common = true, .group = "Output", .help = "Print one JSON object"),
    OPTION("save", STRING, save, .common = true, .metavar = "FILE",
           .help = "Save the report as JSON, for --baseline and spry report"),
    OPTION("baseline", STRING, judge.baseline_path, .common = true, .metavar = "FILE", .group = "Gate",
           .help = "A saved report: measure the same and compare every figure"),
    OPTION("max-drop", STRING, max_drop, .metavar = "PERCENT",
           .help = "Maximum decline of a figure relative to the baseline"),
    OPTION("targets", STRING, judge.targets_path, .metavar = "FILE",
           .help = "Targets for machines, as JSON (docs/INSIGHT.md), or profile: the targets of the machine's profile"),
    OPTION("measured", STRING, judge.measured_path, .metavar = "FILE",
           .help = "Measure nothing: use this saved report"),
    OPTION("force", FLAG, judge.force, .help = "Compare reports of different machines, models or settings"),
    ACTION("shape", CHOICE, shape, .choices = spry_shape_names, .group = "Random weights",
           .help = "Measure random weights of this shape"),
    ACTION("widen", CHOICE, widen, .choices = spry_shape_names,
           .help =
               "Measure MODEL with the sizes of this shape: zeros are added, and it computes what it computed before"),
    OPTION("type", CHOICE, type, .choices = spry_recipe_names, .metavar = "TYPE",
           .help = "Type of the random matrices; default: q4_0"),
    ACTION("write", STRING, write, .letter = 'o', .metavar = "FILE",
           .help = "Only write the model with random weights, or the widened one, to FILE.gguf"),
    ACTION("mix", STRING, mix, .metavar = "NAME|FILE", .group = "Workload",
           .help = "Measure instead a workload: uniform, chat, documents, agent or writing (prompts and answers of 512 "
                   "to 4096 tokens), or a file of distributions or of JSON lines to replay (docs/INSIGHT.md)"),
    ACTION("agent", FLAG, agent,
           .help =
               "Measure instead a session of a coding agent, turn by turn: 12,000 tokens of instructions and tools, 20 "
               "turns of reading, editing and testing, then the first turn of a second session in another folder"),
    ACTION("agreement", FLAG, agreement,
           .help = "With --agent: compute every answer also without the cache, and count the predictions in which both "
                   "agree"),
    ACTION("requests", U32, requests, .max = SPRY_BENCH_REQUESTS_MAX,
           .help = "Number of requests; 0: all lines of the file, or 16"),
    ACTION("together", U32, together, .min = 1, .max = SPRY_BENCH_TOGETHER_MAX,
           .help = "Clients that ask at the same time, each one request after another"),
    ACTION("mix-scale", FLOAT, scale, .min = 0.001, .max = 1000, .metavar = "FACTOR",
           .help = "Multiply all lengths of the mix, or of the agent's session"),
    ACTION("seed", U64, seed, .help = "Seed of the drawn lengths and words"),
    ACTION("url", STRING, url, .metavar = "URL",
           .help = "Run the workload also on this server, which has OpenAI's or Ollama's interface"),
    ACTION("url-model", STRING, url_model, .metavar = "NAME",
           .help = "The server's model; default: the first of its list"),
    OPTION("url-key", STRING, url_key, .metavar = "KEY", .help = "API key for the server"),
};

enum { TABLES = 3 };

static void tables_of(spry_option_table tables[TABLES], spry_bench_flags *flags)
{
    tables[0] = (spry_option_table){bench_options, SPRY_COUNT(bench_options), flags};
    tables[1] = spry_engine_flags_table(&flags->engine);
    tables[2] = spry_model_flags_table(&flags->model);
}

/* Parses the arguments again into empty settings to see which were given. */
static spry_bench_flags find_given(const spry_bench_flags *flags, int argc, char **argv)
{
    spry_bench_flags said = {0};
    spry_usage_general general = {0};
    spry_option_table tables[TABLES + 1];
    const char *model = NULL;
    spry_option_list positionals = {&model, 1, 0};
    tables_of(tables, &said);
    tables[TABLES] = spry_usage_general_table(&general);
    spry_options_parse(tables, SPRY_COUNT(tables), &positionals, argc, argv, NULL);
    const spry_engine_options *engine = &said.engine.options;
    said.judge.given = (spry_bench_given){.prefill = flags->prefill_text != default_prefill,
                                          .depth = flags->depth_text != default_depth,
                                          .batch = flags->batch_text != default_batch,
                                          .tokens = said.tokens,
                                          .repeat = said.repeat,
                                          .threads = engine->threads,
                                          .chunk = said.chunk_text,
                                          .kv_type = engine->kv_type,
                                          .quantize = engine->quantize,
                                          .requests = said.requests,
                                          .together = said.together,
                                          .seed = said.seed,
                                          .scale = said.scale > 0};
    return said;
}

static spry_status read_lists(spry_bench_flags *f, spry_error *error)
{
    spry_status status =
        spry_bench_list_parse(&f->prefill, f->prefill_text, 1, SPRY_BENCH_TOKENS_MAX, "prefill", error);
    if (!status)
        status = spry_bench_list_parse(&f->depth, f->depth_text, 0, SPRY_BENCH_TOKENS_MAX, "decode-depth", error);
    if (!status)
        status = spry_bench_list_parse(&f->batch, f->batch_text, 1, SPRY_STEPS_MAX, "batch", error);
    if (!status)
        status = spry_bench_percent_parse(&f->judge.max_drop, f->max_drop, "max-drop", error);
    if (!f->engine.options.chunk) /* SPRY_CHUNK=0: whole prompts */
        f->engine.options.chunk = SPRY_BENCH_CHUNK_MAX;
    if (status || !f->chunk_text)
        return status;
    status = spry_bench_list_parse(&f->chunks, f->chunk_text, 0, SPRY_BENCH_CHUNK_MAX, "chunk", error);
    if (!status && !f->chunks.count)
        status = spry_fail(error, SPRY_ERR_INPUT, "--chunk names no size");
    if (!status && f->chunks.count == 1 && f->chunks.values[0]) {
        f->engine.options.chunk = f->chunks.values[0];
        f->chunks.count = 0;
    }
    return status;
}

static const spry_bench_kind *kind_of(const spry_bench_flags *f)
{
    return f->reuse          ? &spry_bench_reuse_kind
           : f->draft        ? &spry_bench_draft_kind
           : f->chunks.count ? &spry_bench_chunk_kind
           : f->mix          ? &spry_bench_mix_kind
           : f->agent        ? &spry_bench_agent_kind
           : f->without      ? &spry_bench_without_kind
           : f->image        ? &spry_bench_image_kind
                             : &spry_bench_points_kind;
}

/* Flags that exclude or need each other. The first rule that holds is reported; `said` has what the command line
 * gives. */
static int check_rules(const spry_bench_flags *f, const spry_bench_flags *said, const char *model)
{
    const spry_bench_judge *j = &f->judge;
    const spry_bench_given *given = &j->given;
    const int kinds = f->reuse + (f->draft != NULL) + (f->chunks.count > 0) + (f->mix != NULL) + (f->without != NULL) +
                      f->agent + (f->image != NULL);
    const bool special = kinds > 0, sweep = f->chunks.count > 0, mix = f->mix, measured = j->measured_path,
               workload = mix || f->agent;
    static const char other_kind[] =
        "the flags measure different things: give one of --reuse, --draft, --mix, --agent, --without, --image and "
        "several sizes of --chunk";
    static const char of_points[] =
        "is measured without --reuse, --draft, --mix, --agent, --image and several sizes of --chunk only";
    static const char no_sweep[] = "is not measured with several sizes of --chunk";
    static const char no_mix[] = "is not part of a workload: the mix has the lengths",
                      needs_workload[] = "needs --mix or --agent";
    static const char no_model[] = "--measured uses a saved report and measures no model: omit";
    const struct {
        bool holds;
        const char *before, *flag, *after;
    } rules[] = {
        {f->shape && model, "a MODEL and", "--shape", "were both given"},
        {f->shape && f->widen, "", "--shape", "has random weights, --widen the weights of a model: give one of them"},
        {!f->shape && f->type, "", "--type", "needs --shape"},
        {!f->shape && !f->widen && f->write, "", "--write", "needs --shape or --widen"},
        {f->draft && f->tokens > SPRY_BENCH_DRAFT_TOKENS_MAX, "", "--tokens", "is at most 1024 with --draft"},
        {f->curve && !f->draft, "", "--curve", "needs --draft"},
        {said->draft_mode && !f->draft, "", "--draft-mode", "needs --draft"},
        {said->draft_most && !f->draft, "", "--draft-most", "needs --draft"},
        {f->write && f->json, "", "--write", "measures nothing that --json could print"},
        {kinds > 1, other_kind, "", ""},
        {f->only && special, "", "--only", of_points},
        {f->only && f->with_policy, "--policy measures steps alone: omit", "--only", ""},
        {f->accept && (special || f->write || measured || f->save || j->baseline_path || j->targets_path || f->shape),
         "--accept", "", "chooses what to measure: give it MODEL and --json only"},
        {f->with_policy && special, "", "--policy", of_points},
        {f->write && special, "--write measures nothing: omit", special ? kind_of(f)->flag : "", ""},
        {f->write && f->save, "--write measures nothing: omit", "--save", ""},
        {f->write && j->baseline_path, "--write measures nothing: omit", "--baseline", ""},
        {f->write && j->targets_path, "--write measures nothing: omit", "--targets", ""},
        {f->write && measured, "--write measures nothing: omit", "--measured", ""},
        {f->write && f->with_policy, "--write measures nothing: omit", "--policy", ""},
        {!workload && said->url, "", "--url", needs_workload},
        {f->agreement && !f->agent, "", "--agreement", "needs --agent"},
        {!workload && said->url_model, "", "--url-model", needs_workload},
        {!mix && said->requests, "", "--requests", "needs --mix"},
        {!mix && said->together, "", "--together", "needs --mix"},
        {!workload && said->scale > 0, "", "--mix-scale", needs_workload},
        {!workload && said->seed, "", "--seed", needs_workload},
        {said->url_model && !said->url, "", "--url-model", "needs --url"},
        {sweep && given->depth, "", "--decode-depth", no_sweep},
        {sweep && given->batch, "", "--batch", no_sweep},
        {sweep && given->tokens, "", "--tokens", no_sweep},
        {workload && given->prefill, "", "--prefill", no_mix},
        {workload && given->depth, "", "--decode-depth", no_mix},
        {workload && given->batch, "", "--batch", no_mix},
        {workload && given->tokens, "", "--tokens", no_mix},
        {workload && given->repeat, "", "--repeat", no_mix},
        {!j->baseline_path && j->force, "", "--force", "needs --baseline"},
        {!j->baseline_path && f->max_drop != default_max_drop, "", "--max-drop", "needs --baseline"},
        {measured && !j->baseline_path && !j->targets_path, "", "--measured", "needs --baseline or --targets"},
        {measured && model, no_model, "MODEL", ""},
        {measured && f->shape, no_model, "--shape", ""},
        {measured && f->widen, no_model, "--widen", ""},
        {measured && f->save, no_model, "--save", ""},
        {measured && f->with_policy, no_model, "--policy", ""},
        {measured && special, no_model, special ? kind_of(f)->flag : "", ""},
        {measured && given->prefill, no_model, "--prefill", ""},
        {measured && given->depth, no_model, "--decode-depth", ""},
        {measured && given->batch, no_model, "--batch", ""},
        {measured && given->tokens, no_model, "--tokens", ""},
        {measured && given->repeat, no_model, "--repeat", ""},
    };
    for (size_t i = 0; i < SPRY_COUNT(rules); i++)
        if (rules[i].holds)
            return spry_usage_wrong(&usage, "%s%s%s%s%s", rules[i].before, rules[i].before[0] ? " " : "", rules[i].flag,
                                    rules[i].after[0] ? " " : "", rules[i].after);
    return SPRY_EXIT_OK;
}

/* ---- settings of files ------------------------------------------------------------------------------------------- */

static void take_number(uint32_t *out, bool given, const json_t *report, const char *path)
{
    if (!given && spry_bench_at(report, path))
        *out = (uint32_t)spry_bench_number(report, path);
}

static void take_text(const char **out, bool given, const json_t *report, const char *path)
{
    if (!given)
        *out = json_string_value(spry_bench_at(report, path));
}

/* Uses the baseline's settings for everything that was not given. Strings are borrowed from it. */
static void take_baseline(spry_bench_flags *f)
{
    const json_t *baseline = f->judge.baseline;
    const spry_bench_given *given = &f->judge.given;
    spry_engine_options *engine = &f->engine.options;
    take_number(&f->tokens, given->tokens, baseline, "settings.tokens");
    take_number(&f->repeat, given->repeat, baseline, "settings.repeat");
    take_number(&engine->chunk, given->chunk, baseline, "settings.chunk");
    take_number(&engine->threads, given->threads, baseline, "machine.threads");
    take_text(&engine->kv_type, given->kv_type, baseline, "settings.kv_type");
    take_text(&engine->quantize, given->quantize, baseline, "settings.quantize");
    take_number(&f->requests, given->requests, baseline, "requests");
    take_number(&f->together, given->together, baseline, "together");
    if (!given->seed && json_is_integer(json_object_get(baseline, "seed")))
        f->seed = (uint64_t)json_integer_value(json_object_get(baseline, "seed"));
    if (!given->scale && json_is_number(json_object_get(baseline, "scale")))
        f->scale = (float)spry_bench_number(baseline, "scale");
}

/* The sizes of a policy, ascending: powers of two, and the batches that were given. */
static void add_policy(spry_bench_flags *f)
{
    for (uint32_t size = 1; size <= SPRY_STEPS_MAX; size++) {
        bool wanted = size <= POLICY_MOST && (size & (size - 1)) == 0;
        for (size_t i = 0; f->judge.given.batch && i < f->batch.count; i++)
            wanted = wanted || f->batch.values[i] == size;
        if (wanted)
            spry_bench_list_add(&f->policy, size);
    }
}

/* Settings that were not given come from the files. */
static spry_status take_settings(spry_bench_flags *f, const spry_bench_kind *kind, spry_error *error)
{
    const spry_bench_given *given = &f->judge.given;
    const bool files = f->judge.baseline || f->judge.targets;
    spry_bench_list *lists[] = {given->prefill ? NULL : &f->prefill, given->depth ? NULL : &f->depth,
                                given->batch ? NULL : &f->batch};
    spry_option_table tables[TABLES];
    spry_status status = SPRY_OK;
    for (size_t i = 0; kind == &spry_bench_points_kind && files && i < SPRY_COUNT(lists); i++)
        if (lists[i])
            lists[i]->count = 0;
    if (f->judge.baseline) {
        spry_bench_file_lists(lists[0], lists[1], lists[2], f->judge.baseline);
        take_baseline(f);
    }
    if (f->judge.targets) {
        json_t *machine = NULL;
        status = spry_bench_machine_json(&machine, &f->engine.options, error);
        if (!status)
            status = spry_bench_targets_lists(lists[0], lists[1], lists[2], f->judge.targets, f->judge.targets_path,
                                              kind->format, machine, error);
        json_decref(machine);
        if (status)
            return status;
    }
    tables_of(tables, f);
    for (size_t i = 0; !status && i < TABLES; i++)
        status = spry_options_check(&tables[i], error);
    if (status)
        return spry_fail_prefix(error, status, f->judge.baseline_path ? f->judge.baseline_path : "settings");
    if (!f->with_policy)
        return SPRY_OK;
    add_policy(f);
    f->prefill.count = files || given->prefill ? f->prefill.count : 0;
    f->batch.count = files || given->batch ? f->batch.count : 0;
    return SPRY_OK;
}

/* A report must not overwrite the model, nor the files it is compared with. */
static spry_status check_save(const spry_bench_flags *f, const char *model, spry_error *error)
{
    const char *const files[] = {f->judge.baseline_path, f->judge.targets_path, f->mix, model};
    spry_file_writer writer = {0};
    if (!f->save)
        return SPRY_OK;
    for (size_t i = 0; i < SPRY_COUNT(files); i++)
        if (files[i] && spry_path_same(f->save, files[i]))
            return spry_fail(error, SPRY_ERR_INPUT, "%s is an input file: name another file with --save", f->save);
    spry_status status = spry_file_writer_open(&writer, f->save, error);
    spry_file_writer_abandon(&writer);
    return status;
}

/* ---- random and widened weights ---------------------------------------------------------------------------------- */

static bool show_progress(void *user, size_t done, size_t total)
{
    spry_progress_update(user, done, total);
    return !spry_interrupt_seen();
}

/* Writes the model of --shape or --widen to `path`; after Ctrl-C no file remains. `small`: the model that is widened,
 * resolved here and deinitialised by the caller. */
static spry_status write_shape(spry_model_source *small, const spry_bench_flags *f, const char *model, const char *path,
                               spry_error *error)
{
    char name[160];
    spry_progress_line progress;
    spry_convert_options options;
    spry_status status = f->widen ? spry_model_source_find(small, model, f->model.models_folder, error) : SPRY_OK;
    if (status)
        return status;
    spry_convert_options_default(&options);
    if (f->widen) {
        snprintf(name, sizeof name, "%.100s widened to %s", small->name, f->widen);
    } else {
        options.type = f->type ? f->type : "q4_0";
        snprintf(name, sizeof name, "%s %s random", f->shape, options.type);
    }
    options.name = name;
    options.threads = f->engine.options.threads;
    options.progress = show_progress;
    options.user = &progress;
    spry_progress_begin(&progress, f->widen ? "widening:" : "writing random weights:");
    if (f->widen) {
        const spry_model_file file = spry_model_source_file(small);
        status = spry_convert_widened(path, &file, f->widen, &options, error);
    } else {
        status = spry_convert_random(path, f->shape, &options, error);
    }
    spry_progress_end(&progress);
    return status;
}

static int write_only(const spry_bench_flags *f, const char *model)
{
    spry_error error;
    spry_model_source small = {0};
    spry_status status = write_shape(&small, f, model, f->write, &error);
    if (!status && f->widen)
        spry_out_quote("wrote %s: %s widened to %s\n", f->write, small.name, f->widen);
    else if (!status)
        spry_out_format("wrote %s: %s, %s, random weights\n", f->write, f->shape, f->type ? f->type : "q4_0");
    spry_model_source_deinit(&small);
    return status ? spry_complain_error(&error) : spry_out_finish(SPRY_EXIT_OK);
}

/* ---- measuring --------------------------------------------------------------------------------------------------- */

/* Saves a report, prints it, and checks it against baseline and targets; *passed is the verdict. */
static spry_status publish(bool *passed, const spry_bench_flags *f, const spry_bench_kind *kind, json_t *report,
                           spry_error *error)
{
    spry_status status =
        f->save ? spry_file_write_json(f->save, report, JSON_REAL_PRECISION(6) | JSON_INDENT(1), error) : SPRY_OK;
    if (!status && !f->json)
        kind->print(report);
    if (!status)
        status = spry_bench_judge_report(passed, &f->judge, report, f->json ? report : NULL, error);
    if (!status && f->json)
        status = spry_out_json(report, JSON_REAL_PRECISION(6), "the report", error);
    return status;
}

static spry_status measure(bool *passed, spry_bench_flags *f, const spry_bench_kind *kind, const char *model,
                           spry_error *error)
{
    char name[160];
    spry_model_source source = {0}, small = {0};
    spry_temporary made = {.file = -1};
    spry_bench bench = {.flags = f, .source = &source, .error = error};
    spry_status status = SPRY_OK;
    if (f->shape || f->widen) {
        status = spry_temporary_init(&made, f->widen ? "widened.gguf" : "random.gguf", error);
        if (!status)
            status = write_shape(&small, f, model, made.path, error);
        if (!status)
            status = spry_temporary_hide(&made, error);
        if (f->widen)
            snprintf(name, sizeof name, "%.100s as %s", small.name ? small.name : "", f->widen);
        else
            snprintf(name, sizeof name, "%s-%s", f->shape, f->type ? f->type : "q4_0");
        model = made.path;
    }
    if (!status)
        status = spry_model_source_find(&source, model, f->model.models_folder, error);
    bench.model = model;
    bench.name = made.path ? name : source.name;
    if (!status)
        status = spry_bench_run(&bench, kind);
    if (!status)
        status = publish(passed, f, kind, bench.report, error);
    if (!status && !bench.passed)
        spry_bench_mix_complain(bench.report);
    *passed = *passed && bench.passed;
    json_decref(bench.report);
    spry_model_source_deinit(&source);
    spry_model_source_deinit(&small);
    spry_temporary_deinit(&made);
    return status;
}

/* Uses a saved report instead of measuring. */
static spry_status use_measured(bool *passed, const spry_bench_flags *f, spry_error *error)
{
    json_t *json = f->json ? json_object() : NULL;
    spry_status status = spry_bench_judge_report(passed, &f->judge, f->judge.measured, json, error);
    if (!status && json)
        status = spry_out_json(json, JSON_REAL_PRECISION(6), "the verdicts", error);
    json_decref(json);
    return status;
}

/* Opens the files first, so that an invalid one is reported before minutes of measuring. */
static int bench_with_files(spry_bench_flags *f, const char *model)
{
    const spry_bench_kind *kind = kind_of(f);
    spry_error error;
    bool passed = true;
    spry_status status = spry_bench_judge_open(&f->judge, kind->format, &error);
    if (!status)
        status = check_save(f, model, &error);
    if (!status && f->judge.measured) {
        status = use_measured(&passed, f, &error);
    } else {
        if (!status)
            status = take_settings(f, kind, &error);
        if (!status)
            status = measure(&passed, f, kind, model, &error);
    }
    spry_bench_judge_deinit(&f->judge);
    return status ? spry_complain_error(&error) : spry_out_finish(passed ? SPRY_EXIT_OK : SPRY_EXIT_FAILURE);
}

int spry_cmd_bench(int argc, char **argv)
{
    static spry_bench_flags flags; /* too large for some stacks */
    flags = (spry_bench_flags){.prefill_text = default_prefill,
                               .depth_text = default_depth,
                               .batch_text = default_batch,
                               .max_drop = default_max_drop,
                               .draft_mode = spry_draft_modes[0],
                               .tokens = 32,
                               .repeat = 3,
                               .together = 4,
                               .scale = 1,
                               .seed = 1};
    spry_engine_flags_default(&flags.engine);
    spry_option_table tables[TABLES];
    const char *model = NULL;
    spry_option_list positionals = {&model, 1, 0};
    spry_error error;
    int code;
    tables_of(tables, &flags);
    if (!spry_usage_parse(&code, &usage, tables, TABLES, &positionals, argc, argv))
        return code;
    if (strcmp(flags.engine.options.kv_type, "auto") == 0) /* reports are compared: they name a type */
        flags.engine.options.kv_type = "f16";
    const spry_bench_flags said = find_given(&flags, argc, argv);
    flags.judge.given = said.judge.given;
    if (flags.draft && !said.tokens)
        flags.tokens = DRAFT_TOKENS;
    if (flags.agent) /* turns follow each other */
        flags.together = 1;
    if (read_lists(&flags, &error))
        return spry_usage_wrong(&usage, "%s", error.message);
    code = check_rules(&flags, &said, model);
    if (code != SPRY_EXIT_OK)
        return code;
    flags.engine.quiet = true;
    spry_interrupt_install(NULL, true);
    if (flags.accept) {
        bool passed = false;
        spry_status status = spry_bench_accept(&passed, model, flags.json, &error);
        code = status ? spry_complain_error(&error) : spry_out_finish(passed ? SPRY_EXIT_OK : SPRY_EXIT_FAILURE);
        spry_interrupt_remove();
        return code;
    }
    code = flags.write ? write_only(&flags, model) : bench_with_files(&flags, model);
    spry_interrupt_remove();
    return code;
}
