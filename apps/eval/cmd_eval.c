/* spry eval: perplexity of a model on a text, divergence from another model, and the cost of reusing spans. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "bench/bench_gate.h"
#include "cli/commands.h"
#include "cli/common_options.h"
#include "cli/terminal.h"
#include "cli/usage.h"
#include "eval/eval_run.h"
#include "eval/eval_span.h"
#include "platform/clock.h"
#include "platform/file.h"

enum { TEXT_BYTES_MAX = 1 << 30 };

static const spry_usage usage = {
    .command = "eval",
    .exact = true,
    .arguments = "ppl|kl|span [MODEL] -f TEXT | --docs DIR --questions FILE",
    .about =
        "`ppl` computes the perplexity of a text. `kl` compares MODEL with --base on the same text: the KL "
        "divergence of its predictions, how often both have the same most probable token, and the mean change of the "
        "probability of the next token. Lower is closer.\n"
        "The text is processed in windows of the context, --stride tokens apart. The first window counts all of its "
        "tokens but the first; each later one counts its last --stride tokens, so every token counts once and, in "
        "later windows, has at least context - stride tokens before it. If the tokenizer adds a token before a text, "
        "every window starts with it.\n"
        "MODEL and --base are as for `spry run` and must have the same tokenizer. --quantize applies to MODEL only: "
        "`spry eval kl X --base X --quantize q4_0` measures the cost of a type without writing a file.\n"
        "`span` measures the cost of reusing fragments of a prompt. Every file in --docs is a document and a span: "
        "computed once, alone, and reused at any position. Prompts are all documents and one question. Their "
        "answers, with none, some or all of each span recomputed in place, are compared with the answers of fully "
        "computed "
        "prompts: KL divergence, same top token, and the time to the first token. See docs/SPANS.md.",
    .examples =
        "spry eval ppl -f book.txt\n"
        "spry eval ppl model.gguf -f book.txt --context 1024 --stride 256 --json\n"
        "spry eval ppl model.gguf -f book.txt --json > before.json\n"
        "spry eval ppl model.gguf -f book.txt --baseline before.json --max-loss 0.5%\n"
        "spry eval kl model-q4_k_m.gguf --base model-f16.gguf -f book.txt\n"
        "spry eval kl model-folder --base model-folder --quantize q4_k_m -f book.txt\n"
        "spry eval span --docs tests/data/span/docs --questions tests/data/span/questions.txt --plot spans.html",
};

typedef struct eval_settings {
    const char *file, *base;
    uint32_t stride;
    bool special, json;
    spry_engine_flags engine, base_engine;
    spry_model_flags model;
    spry_eval_span_flags span;
    spry_eval_gate gate;
    const char *max_loss;
} eval_settings;

static const char default_max_loss[] = "1%";

#define OPTION(...) SPRY_OPTION(eval_settings, __VA_ARGS__)

static const spry_option eval_options[] = {
    OPTION("file", STRING, file, .letter = 'f', .common = true, .metavar = "TEXT",
           .help = "The text, UTF-8; - is standard input", .group = "Evaluation"),
    OPTION("base", STRING, base, .common = true, .metavar = "MODEL", .help = "The model to compare with, for kl"),
    OPTION("stride", U32, stride, .help = "Distance of windows in tokens; 0: half of the context"),
    OPTION("special", FLAG, special,
           .help = "Spellings of control tokens in the text become those tokens, for a text of whole chats"),
    OPTION("json", FLAG, json, .common = true, .help = "Print one JSON object"),
    OPTION("baseline", STRING, gate.path, .common = true, .metavar = "FILE",
           .help =
               "Compare with the --json result of an earlier ppl or kl of the same text; exit code 1 when it is worse"),
    OPTION("max-loss", STRING, max_loss, .metavar = "PERCENT",
           .help = "How much worse a figure may be than the baseline's: higher perplexity or divergence, fewer same "
                   "top tokens"),
};

/* ---- printing ---------------------------------------------------------------------------------------------------- */

/* The results of both kinds of evaluation. */
typedef struct eval_report {
    const char *model, *base; /* base NULL: perplexity alone */
    const spry_eval_windows *windows;
    spry_eval_nll nll;
    spry_eval_kl_result kl;
    double seconds;
} eval_report;

static json_t *real_or_null(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

static json_t *divergence_to_json(const spry_eval_summary *summary)
{
    json_t *object = json_object();
    json_object_set_new(object, "mean", real_or_null(summary->mean));
    json_object_set_new(object, "median", real_or_null(summary->median));
    json_object_set_new(object, "p99", real_or_null(summary->p99));
    json_object_set_new(object, "max", real_or_null(summary->max));
    return object;
}

static json_t *report_to_json(const eval_report *r)
{
    const spry_eval_windows *w = r->windows;
    json_t *object = json_object();
    json_object_set_new(object, "model", json_string(r->model));
    if (r->base)
        json_object_set_new(object, "base", json_string(r->base));
    json_object_set_new(object, "tokens", json_integer((json_int_t)w->n_ids));
    json_object_set_new(object, "counted", json_integer((json_int_t)r->nll.count));
    json_object_set_new(object, "context", json_integer((json_int_t)w->context));
    json_object_set_new(object, "stride", json_integer((json_int_t)w->stride));
    json_object_set_new(object, "windows", json_integer((json_int_t)w->count));
    json_object_set_new(object, "nll", real_or_null(spry_eval_nll_mean(&r->nll)));
    json_object_set_new(object, "nll_error", real_or_null(spry_eval_nll_error(&r->nll)));
    json_object_set_new(object, "perplexity", real_or_null(spry_eval_perplexity(&r->nll)));
    if (r->base) {
        json_object_set_new(object, "base_perplexity", real_or_null(spry_eval_perplexity(&r->kl.base_nll)));
        json_object_set_new(object, "kl", divergence_to_json(&r->kl.divergence));
        json_object_set_new(object, "top1", json_real(r->kl.top1));
        json_object_set_new(object, "delta_p", json_real(r->kl.delta_p));
    }
    json_object_set_new(object, "seconds", json_real(r->seconds));
    return object;
}

static void print_text(const eval_report *r)
{
    const spry_eval_windows *w = r->windows;
    double perplexity = spry_eval_perplexity(&r->nll);
    spry_out_format("perplexity     %.4f +- %.4f\n", perplexity, perplexity * spry_eval_nll_error(&r->nll));
    if (r->base) {
        const spry_eval_summary *d = &r->kl.divergence;
        spry_out_format("of the base    %.4f\n", spry_eval_perplexity(&r->kl.base_nll));
        spry_out_format("KL divergence  mean %.6f, median %.6f, 99 %% below %.6f, largest %.6f\n", d->mean, d->median,
                        d->p99, d->max);
        spry_out_format("same top token %.2f %%\n", 100 * r->kl.top1);
        spry_out_format("|delta p|      %.6f\n", r->kl.delta_p);
    }
    spry_out_format("%zu tokens in %zu %s of %zu, stride %zu\n", r->nll.count, w->count,
                    w->count == 1 ? "window" : "windows", w->context, w->stride);
}

/* ---- the command ------------------------------------------------------------------------------------------------- */

static spry_status read_text(spry_buffer *out, const char *file, spry_error *error)
{
    spry_buffer bytes;
    spry_buffer_init(&bytes, TEXT_BYTES_MAX);
    bool standard = strcmp(file, "-") == 0;
    spry_status status = standard ? spry_input_read(&bytes, error) : spry_file_read(&bytes, file, error);
    if (status == SPRY_OK)
        status = spry_input_clean(out, spry_buffer_view(&bytes), "the text", error);
    spry_buffer_deinit(&bytes);
    return status;
}

/* Models are comparable only when both tokenise the text identically. */
static spry_status check_same_tokens(const spry_eval_windows *windows, const spry_engine *engine,
                                     const spry_engine *base, const eval_report *names, spry_view text,
                                     spry_error *error)
{
    spry_engine_info info, base_info;
    spry_eval_windows other = {0};
    spry_engine_describe(engine, &info);
    spry_engine_describe(base, &base_info);
    if (info.vocabulary != base_info.vocabulary)
        return spry_fail(error, SPRY_ERR_INPUT, "%.100s has a vocabulary of %zu, %.100s one of %zu: not comparable",
                         names->model, info.vocabulary, names->base, base_info.vocabulary);
    spry_status status =
        spry_eval_windows_init(&other, base, text.data, text.size, windows->stride, windows->special, error);
    if (status == SPRY_OK &&
        (other.n_ids != windows->n_ids || memcmp(other.ids, windows->ids, other.n_ids * sizeof *other.ids) != 0))
        status = spry_fail(error, SPRY_ERR_INPUT, "%.100s and %.100s tokenise the text differently: not comparable",
                           names->model, names->base);
    spry_eval_windows_deinit(&other);
    return status;
}

/* The base has the same settings except the type, and the same context as the model. */
static spry_status open_base(spry_engine **base, spry_model_source *source, eval_settings *settings,
                             const spry_engine *engine, spry_error *error)
{
    spry_engine_info info;
    spry_engine_describe(engine, &info);
    settings->base_engine = settings->engine;
    settings->base_engine.options.quantize = NULL;
    settings->base_engine.options.context = (uint32_t)info.context;
    return spry_open_model(base, source, settings->base, &settings->model, &settings->base_engine, error);
}

static spry_status evaluate(eval_report *report, spry_engine *engine, spry_engine *base, spry_error *error)
{
    uint64_t began = spry_clock_ns();
    spry_status status = base ? spry_eval_kl(&report->kl, engine, base, report->windows, error)
                              : spry_eval_ppl(&report->nll, engine, report->windows, error);
    if (base)
        report->nll = report->kl.nll;
    report->seconds = (double)(spry_clock_ns() - began) / 1e9;
    return status;
}

/* Prints a report and the gate's verdict. */
static spry_status publish(bool *passed, const eval_report *report, const eval_settings *settings, spry_error *error)
{
    json_t *json = report_to_json(report);
    spry_status status = SPRY_OK;
    if (settings->gate.baseline)
        status = spry_eval_gate_judge(passed, &settings->gate, json, error);
    if (status == SPRY_OK && settings->json)
        status = spry_out_json(json, JSON_REAL_PRECISION(12), "the result", error);
    else if (status == SPRY_OK)
        print_text(report);
    if (status == SPRY_OK && settings->gate.baseline && !settings->json)
        spry_eval_gate_print(json);
    json_decref(json);
    return status;
}

static spry_status eval(bool *passed, eval_settings *settings, const char *model, bool compares, spry_error *error)
{
    spry_engine *engine = NULL, *base = NULL;
    spry_model_source source = {0}, base_source = {0};
    spry_eval_windows windows = {0};
    spry_buffer text;
    spry_buffer_init(&text, 4 * (size_t)TEXT_BYTES_MAX);
    spry_status status = spry_eval_gate_open(&settings->gate, error);
    if (status == SPRY_OK)
        status = read_text(&text, settings->file, error);
    if (status == SPRY_OK)
        status = spry_open_model(&engine, &source, model, &settings->model, &settings->engine, error);
    spry_view view = spry_buffer_view(&text);
    if (status == SPRY_OK)
        status =
            spry_eval_windows_init(&windows, engine, view.data, view.size, settings->stride, settings->special, error);
    if (status == SPRY_OK && compares)
        status = open_base(&base, &base_source, settings, engine, error);
    eval_report report = {.model = source.name, .base = base_source.name, .windows = &windows};
    if (status == SPRY_OK && compares)
        status = check_same_tokens(&windows, engine, base, &report, view, error);
    if (status == SPRY_OK)
        status = evaluate(&report, engine, base, error);
    if (status == SPRY_OK)
        status = publish(passed, &report, settings, error);
    spry_eval_windows_deinit(&windows);
    spry_engine_close(engine);
    spry_engine_close(base);
    spry_model_source_deinit(&source);
    spry_model_source_deinit(&base_source);
    spry_buffer_deinit(&text);
    spry_eval_gate_close(&settings->gate);
    return status;
}

/* Checks the options of each kind; NULL: correct. */
static const char *wrong_use(const eval_settings *s, const char *kind)
{
    bool perplexity = kind && strcmp(kind, "ppl") == 0, divergence = kind && strcmp(kind, "kl") == 0;
    bool span = kind && strcmp(kind, "span") == 0;
    if (!perplexity && !divergence && !span)
        return "the first argument must be ppl, kl or span";
    if (span && (s->file || s->base || s->stride))
        return "-f, --base and --stride are for ppl and kl; span takes --docs DIR and --questions FILE";
    if (span && (!s->span.docs || !s->span.questions))
        return "span needs documents and questions: --docs DIR --questions FILE";
    if (s->gate.path ? span : s->max_loss != default_max_loss)
        return s->gate.path ? "--baseline is for ppl and kl" : "--max-loss needs --baseline";
    if (span && s->engine.options.cache_dir)
        return "span computes everything itself and cannot be used with --cache-dir";
    if (!span && (s->span.docs || s->span.questions || s->span.plot))
        return "--docs, --questions and --plot are for span";
    if (!span && !s->file)
        return "eval needs a text: -f FILE, or -f - for standard input";
    if (divergence && !s->base)
        return "kl needs a model to compare with: --base MODEL";
    return perplexity && s->base ? "--base is for kl; ppl evaluates one model" : NULL;
}

int spry_cmd_eval(int argc, char **argv)
{
    eval_settings settings = {0};
    spry_engine_flags_default(&settings.engine);
    spry_eval_span_flags_default(&settings.span);
    settings.engine.quiet = true;
    settings.max_loss = default_max_loss;
    const spry_option_table tables[] = {{eval_options, SPRY_COUNT(eval_options), &settings},
                                        spry_eval_span_flags_table(&settings.span),
                                        spry_engine_flags_table(&settings.engine),
                                        spry_model_flags_table(&settings.model)};
    const char *items[2] = {NULL, NULL};
    spry_option_list positionals = {items, SPRY_COUNT(items), 0};
    int code = SPRY_EXIT_OK;
    if (!spry_usage_parse(&code, &usage, tables, SPRY_COUNT(tables), &positionals, argc, argv))
        return code;
    const char *kind = items[0], *model = items[1], *wrong = wrong_use(&settings, kind);
    if (wrong)
        return spry_usage_wrong(&usage, "%s", wrong);
    spry_error error;
    bool passed = true;
    if (spry_bench_percent_parse(&settings.gate.max_loss, settings.max_loss, "max-loss", &error) != SPRY_OK)
        return spry_usage_wrong(&usage, "%s", error.message);
    spry_status status = strcmp(kind, "span") == 0 ? spry_eval_span(&settings.span, settings.json, model,
                                                                    &settings.model, &settings.engine, &error)
                                                   : eval(&passed, &settings, model, settings.base != NULL, &error);
    if (status != SPRY_OK)
        code = spry_complain_error(&error);
    else if (!passed)
        code = SPRY_EXIT_FAILURE;
    return spry_out_finish(code);
}
