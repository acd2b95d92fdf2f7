/* Option tables for the engine, the model's name, and answers. */
#include "cli/common_options.h"

#include <math.h>
#include <string.h>

#include "base/kv_types.h"
#include "base/sampling_options.h"
#include "cli/settings_profile.h"
#include "cli/terminal.h"
#include "platform/clock.h"

/* ---- the engine -------------------------------------------------------------------------------------------------- */

static const char *const layer_words[] = {"auto", "all", NULL};
static const char *const think_words[] = {"on", "off", "show", NULL};
const char *const spry_draft_modes[] = {"fast", "precise", NULL};
static const char *const draft_words[] = {"auto", "none", "lookup", "head", NULL};
#define KV_NAME(name, type) #name,
static const char *const kv_types[] = {"auto", SPRY_KV_TYPES_ALL(KV_NAME) NULL};
#undef KV_NAME

enum { QUANTIZE_TYPES = 64 };
static const char *quantize_types[QUANTIZE_TYPES] = {"auto"}; /* then the types of `spry convert` */

#define ENGINE_OPTION(...) SPRY_OPTION(spry_engine_flags, __VA_ARGS__)
#define ANSWER_OPTION(...) SPRY_OPTION(spry_answer_flags, __VA_ARGS__)

static const spry_option engine_options[] = {
    ENGINE_OPTION(
        "context", U32, options.context, .letter = 'c', .common = true,
        .help = "Context size in tokens; 0: the model's limit, or less where its keys and values do not fit the memory",
        .group = "Engine"),
    ENGINE_OPTION("kv-type", CHOICE, options.kv_type, .choices = kv_types, .metavar = "TYPE",
                  .help = "Type of keys and values in the KV cache; auto: f16, or q8_0 or q4_0 where a full context of "
                          "f16 does not fit"),
    ENGINE_OPTION("threads", U32, options.threads, .letter = 't', .common = true, .max = 1024,
                  .help = "Number of threads; 0: every processor available to this process"),
    ENGINE_OPTION(
        "chunk", U32, options.chunk, .max = 65536,
        .help = "Prompt tokens computed in one step; 0: the whole prompt. Affects speed and memory, never the answer"),
    ENGINE_OPTION("device", STRING, options.device, .common = true, .metavar = "DEVICE",
                  .help = "Where to compute: cpu, cuda:0 for the first NVIDIA GPU, vulkan:0 for the first GPU of "
                          "Vulkan, or auto: the GPU where there is "
                          "one, with as many layers as fit, else the CPU"),
    ENGINE_OPTION("gpu-layers", STRING, options.gpu_layers, .choices = layer_words, .metavar = "N",
                  .help = "Number of layers on the GPU, counted from the last; the others run on the CPU; auto: as "
                          "many as fit in the GPU's free memory; all: every layer"),
    ENGINE_OPTION("gpu-memory", SIZE, options.gpu_bytes, .unset = "what is free",
                  .help = "Limit for the memory of the GPU that is used: with --gpu-layers auto or --device auto fewer "
                          "layers are there"),
    ENGINE_OPTION("cpu", STRING, options.cpu, .metavar = "SET",
                  .help = "Kernel set: auto is the fastest this machine supports, ref is plain C"),
    ENGINE_OPTION("quantize", CHOICE, options.quantize, .choices = quantize_types, .metavar = "TYPE",
                  .help = "Quantise a float model while loading it, as `spry convert --type` does; auto: to q8_0, and "
                          "leave models that are quantised as they are"),
    ENGINE_OPTION("lora", STRING, options.lora, .metavar = "PATH[=SCALE],...",
                  .help = "Load LoRA adapters beside the model: Hugging Face folders or GGUF files. They apply, times "
                          "SCALE (default 1), where a request chooses none; SCALE 0 loads one for requests that do"),
    ENGINE_OPTION("chat-template", STRING, options.chat_template, .metavar = "FILE",
                  .help = "Chat template to use instead of the model's own: a file, or the template itself"),
    ENGINE_OPTION("mmproj", STRING, options.mmproj, .unset = "one beside the model", .metavar = "FILE",
                  .help = "GGUF file with the model's vision tower, so that it sees pictures; empty: none"),
    ENGINE_OPTION("max-image-pixels", SIZE, options.max_image_pixels, .metavar = "N",
                  .help = "Make larger pictures smaller for the model: fewer pixels are fewer tokens; 0: 1048576"),
    ENGINE_OPTION("verbose", FLAG, verbose, .letter = 'v', .help = "Print the engine's log to standard error"),
    ENGINE_OPTION("kv-bytes", SIZE, options.kv_bytes,
                  .help = "Limit for KV memory, which grows as it is used: pages in use and pages cached for later "
                          "prompts; 0: an eighth of the machine's memory, or up to a quarter if full sessions need it",
                  .group = "Memory"),
    ENGINE_OPTION("expert-bytes", SIZE, options.expert_bytes,
                  .help = "Limit for experts of a mixture that is larger than memory: others stay in the file and are "
                          "packed when they are used; 0: all experts, or as many as fit"),
    ENGINE_OPTION("kv-idle", U32, options.kv_idle, .metavar = "SECONDS",
                  .help = "Return KV memory to the system after this time without work, and while the machine is short "
                          "of memory; 0: never"),
    ENGINE_OPTION("kv-idle-share", U32, options.kv_idle_share, .max = 100, .metavar = "PERCENT",
                  .help = "Share of KV memory that cached pages may keep then"),
    ENGINE_OPTION("cache-bytes", SIZE, options.cache_bytes,
                  .help = "Limit for shared cached pages; pages in use are never evicted; 0: no limit"),
    ENGINE_OPTION("cache-host-bytes", SIZE, options.cache_host_bytes, .unset = "an eighth of the memory",
                  .help = "Limit for pinned host memory that a GPU's cached pages go to when they are evicted, and "
                          "come back from; 0: none"),
    ENGINE_OPTION("cache-ttl", U32, options.cache_ttl, .metavar = "SECONDS",
                  .help = "Evict cached pages that were not used for this long; 0: never"),
    ENGINE_OPTION("cache-dir", STRING, options.cache_dir, .metavar = "DIR",
                  .help = "Also store cached pages in this folder, so that they survive a restart"),
    ENGINE_OPTION("cache-disk-bytes", SIZE, options.cache_disk_bytes, .help = "Size limit of that folder; 0: no limit"),
};

static const char *const reuse_kinds[] = {"prefix", "spans=auto", NULL};

static const spry_option reuse_options[] = {
    ENGINE_OPTION("reuse", CHOICE, reuse, .choices = reuse_kinds, .metavar = "WHAT",
                  .help =
                      "prefix: text that is cached as the beginning of a prompt, and declared fragments; spans=auto: "
                      "also any text that is cached after other text, which changes answers slightly (docs/SPANS.md)",
                  .group = "Reuse"),
    ENGINE_OPTION("reuse-pages", U32, reuse_pages, .min = 1, .max = 1 << 20, .metavar = "N",
                  .help = "With spans=auto: the shortest text that is reused, in pages of 32 tokens"),
};

static void print_log(void *user, int level, const char *sentence)
{
    const spry_engine_flags *flags = user;
    if (flags->verbose || (level >= SPRY_LOG_WARN && !flags->quiet))
        spry_complain("%s", sentence);
}

void spry_engine_flags_log(spry_engine_flags *flags)
{
    flags->options.log = print_log;
    flags->options.log_user = flags;
}

void spry_engine_flags_default(spry_engine_flags *flags)
{
    *flags = (spry_engine_flags){0};
    spry_engine_options_default(&flags->options);
    flags->options.device = "auto";
    flags->options.data_is_mapped = true; /* the data are bundled models, constants of this program */
    flags->reuse = reuse_kinds[0];
    flags->reuse_pages = 4;
}

spry_option_table spry_engine_flags_table(spry_engine_flags *flags)
{
    for (size_t i = 0; spry_recipe_names[i] && i + 2 < QUANTIZE_TYPES; i++)
        quantize_types[i + 1] = spry_recipe_names[i];
    return (spry_option_table){engine_options, SPRY_COUNT(engine_options), flags};
}

spry_option_table spry_reuse_flags_table(spry_engine_flags *flags)
{
    return (spry_option_table){reuse_options, SPRY_COUNT(reuse_options), flags};
}

spry_engine_options spry_engine_flags_options(const spry_engine_flags *flags)
{
    spry_engine_options options = flags->options;
    options.span_pages = strcmp(flags->reuse, "spans=auto") == 0 ? flags->reuse_pages : 0;
    return options;
}

/* ---- which model ------------------------------------------------------------------------------------------------- */

static const spry_option model_options[] = {
    SPRY_OPTION(spry_model_flags, "models-dir", STRING, models_folder, .common = true, .metavar = "DIR",
                .help = "Folder in which MODEL is looked up by name; default: spry/models in the user's data folder",
                .group = "Model"),
};

spry_option_table spry_model_flags_table(spry_model_flags *flags)
{
    return (spry_option_table){model_options, SPRY_COUNT(model_options), flags};
}

/* Loading a large model takes a while. */
static spry_status open_shown(spry_engine **engine, const spry_model_source *source, const spry_engine_options *options,
                              spry_error *error)
{
    spry_progress_line line;
    char what[128];
    snprintf(what, sizeof what, "loading %.100s", source->name);
    spry_progress_begin(&line, what);
    spry_status status = spry_model_source_engine(engine, source, options, error);
    spry_progress_end(&line);
    return status;
}

const char *spry_draft_head_of(const char *draft)
{
    return strcmp(draft, "auto") == 0 || strcmp(draft, "head") == 0 ? draft : NULL;
}

spry_status spry_open_model(spry_engine **engine, spry_model_source *source, const char *model,
                            const spry_model_flags *model_flags, spry_engine_flags *engine_flags, spry_error *error)
{
    spry_engine_flags_log(engine_flags);
    spry_status status = spry_trace_file_open(&engine_flags->options.trace, &engine_flags->trace, error);
    if (status == SPRY_OK)
        status = spry_model_source_find(source, model, model_flags->models_folder, error);
    const spry_engine_options options = spry_engine_flags_options(engine_flags);
    if (status == SPRY_OK)
        status = open_shown(engine, source, &options, error);
    return status;
}

/* ---- how to answer ----------------------------------------------------------------------------------------------- */

const char *const spry_json_styles[] = {"compact", "pretty", "free", "any", NULL};

static const spry_option answer_options[] = {
    ANSWER_OPTION("seed", STRING, seed_text, .metavar = "N",
                  .help = "Seed of the random numbers, an integer: the same seed gives the same answer. Default: a new "
                          "one per run, shown by --stats and --json",
                  .group = "Answer"),
    ANSWER_OPTION("think", CHOICE, think, .choices = think_words, .common = true,
                  .help = "Thoughts of models that think: on: one line says how long they took; show: they are shown, "
                          "dimmed; off: the model is asked not to think"),
    ANSWER_OPTION("plain", FLAG, plain,
                  .help = "Show Markdown in answers as it is written, without styles; files and pipes always get that"),
    ANSWER_OPTION("max-tokens", U32, max_tokens, .letter = 'n', .common = true,
                  .help = "Maximum length of the answer in tokens; 0: until the model ends it or the context is full"),
    ANSWER_OPTION("stop", LIST, stop, .help = "End the answer before this text; up to 16 stop texts"),
    ANSWER_OPTION("ignore-end", FLAG, ignore_end, .help = "Continue when the model ends its answer"),
    ANSWER_OPTION(
        "slide", FLAG, slide,
        .help =
            "When the context is full, drop the oldest tokens and continue; by default a full context ends the answer"),
    ANSWER_OPTION("keep", U32, keep, .help = "Slide, but keep the first N tokens, for example the system message"),
    ANSWER_OPTION("draft", STRING, draft, .choices = draft_words, .metavar = "WHO",
                  .help = "Drafter for speculative decoding: none, lookup (tokens that followed an earlier occurrence "
                          "of the same text), head (the model's own, where its checkpoint has one), a smaller MODEL "
                          "with the same vocabulary, or auto. The answer is the "
                          "same; drafting stops when it does not pay"),
    ANSWER_OPTION("draft-mode", CHOICE, draft_mode, .choices = spry_draft_modes, .metavar = "MODE",
                  .help = "fast: draft as long as that is expected to pay; precise: draft only tokens that the drafter "
                          "is sure of, so that hardly one is refused"),
    ANSWER_OPTION("draft-most", U32, draft_most,
                  .help = "Maximum number of drafted tokens per step; 0: chosen automatically"),
    ANSWER_OPTION("special", FLAG, special,
                  .help = "Show control tokens in the answer; with --raw, their spellings in the prompt are parsed as "
                          "control tokens"),
    ANSWER_OPTION("json-schema", STRING, schema_file, .common = true, .metavar = "FILE",
                  .help = "The answer is JSON that is valid against this schema", .group = "Shape of the answer"),
    ANSWER_OPTION("json-style", CHOICE, json_style, .choices = spry_json_styles,
                  .help = "With --json-schema: blanks between the parts of JSON; any: members in any order, too"),
    ANSWER_OPTION("json-lenient", FLAG, json_lenient,
                  .help = "With --json-schema: ignore parts that cannot be enforced instead of refusing the schema"),
    ANSWER_OPTION("grammar", STRING, grammar_file, .metavar = "FILE", .help = "The answer matches this GBNF grammar"),
    ANSWER_OPTION("regex", STRING, regex, .help = "The whole answer matches this regular expression"),
    ANSWER_OPTION("choice", STRING, choice, .metavar = "A,B,C", .help = "The answer is one of these texts"),
};

unsigned char spry_answer_flags_style(const spry_answer_flags *flags)
{
    unsigned char i = 0;
    while (spry_json_styles[i + 1] && strcmp(spry_json_styles[i], flags->json_style) != 0)
        i++;
    return (unsigned char)(flags->json_lenient ? i | SPRY_JSON_LENIENT : i);
}

void spry_answer_flags_default(spry_answer_flags *flags)
{
    *flags = (spry_answer_flags){.json_style = "compact", .think = think_words[0]};
    spry_sampling_default(&flags->sampling);
    flags->sampling.temperature = flags->sampling.top_p = flags->sampling.min_p = flags->sampling.repeat_penalty = NAN;
    flags->sampling.top_k = UINT32_MAX;
    flags->draft = "auto";
    flags->draft_mode = spry_draft_modes[0];
    flags->stop = (spry_option_list){flags->stops, SPRY_STOPS_MAX, 0};
}

/* The sampling table without its last entry, the seed, which has no numeric default here. */
static spry_option_table sampling_without_seed(spry_sampling *sampling)
{
    spry_option_table table = spry_sampling_options(sampling);
    if (strcmp(table.options[table.count - 1].name, "seed") == 0)
        table.count--;
    return table;
}

void spry_answer_flags_tables(spry_option_table tables[2], spry_answer_flags *flags)
{
    tables[0] = (spry_option_table){answer_options, SPRY_COUNT(answer_options), flags};
    tables[1] = sampling_without_seed(&flags->sampling);
}

spry_status spry_answer_flags_settle(spry_answer_flags *flags, spry_error *error)
{
    spry_option_table table = spry_sampling_options(&flags->sampling);
    if (flags->seed_text)
        return spry_options_set(&table, "seed", flags->seed_text, error);
    flags->sampling.seed = spry_entropy() >> 32; /* short enough to type */
    return SPRY_OK;
}

static float given_or(float given, float otherwise)
{
    return isnan(given) ? otherwise : given;
}

void spry_answer_flags_sampling(spry_sampling *out, const spry_answer_flags *flags, const spry_engine *engine)
{
    const spry_sampling *given = &flags->sampling;
    spry_sampling usual = {.temperature = 0.8f, .top_p = 0.95f, .min_p = 0.05f, .repeat_penalty = 1};
    spry_engine_sampling(engine, &usual);
    *out = *given;
    out->temperature = given_or(given->temperature, usual.temperature);
    out->top_p = given_or(given->top_p, usual.top_p);
    out->min_p = given_or(given->min_p, usual.min_p);
    out->repeat_penalty = given_or(given->repeat_penalty, usual.repeat_penalty);
    if (given->top_k == UINT32_MAX)
        out->top_k = usual.top_k;
}

/* ---- --trace ----------------------------------------------------------------------------------------------------- */

static spry_trace *opened;

static const spry_option trace_options[] = {
    SPRY_OPTION(
        spry_trace_flags, "trace", STRING, file, .metavar = "FILE",
        .help = "Write a trace of the time spent to FILE as Chrome trace events, for ui.perfetto.dev and `spry report`",
        .group = "Trace"),
    SPRY_OPTION(spry_trace_flags, "trace-ops", FLAG, ops,
                .help = "With --trace: include every op of every step, with its kernel"),
};

spry_option_table spry_trace_flags_table(spry_trace_flags *flags)
{
    return (spry_option_table){trace_options, SPRY_COUNT(trace_options), flags};
}

spry_status spry_trace_flags_check(const spry_trace_flags *flags, spry_error *error)
{
    if (flags->ops && !flags->file)
        return spry_fail(error, SPRY_ERR_INPUT, "--trace-ops needs --trace FILE");
    return SPRY_OK;
}

spry_status spry_trace_file_open(spry_trace **trace, const spry_trace_flags *flags, spry_error *error)
{
    *trace = NULL;
    if (!flags->file)
        return SPRY_OK;
    spry_status status = opened ? SPRY_OK : spry_trace_open(&opened, flags->file, flags->ops, error);
    *trace = opened;
    return status;
}

int spry_trace_file_close(int code)
{
    spry_error error;
    spry_status status = spry_trace_close(opened, &error);
    opened = NULL;
    if (status == SPRY_OK)
        return code;
    int failure = spry_complain_error(&error);
    return code == SPRY_EXIT_OK ? failure : code;
}
