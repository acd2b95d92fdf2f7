/* Measures, for every order of the documents and every question, the reference once, then every repair.
 *
 * A run is one prompt with one repair under a new salt. It first generates an answer, which is timed, and then computes
 * the logits after the prompt and after each of the reference's tokens, reusing the pages of the answer. */
#include "eval/eval_span.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/number.h"
#include "cli/terminal.h"
#include "platform/clock.h"
#include "platform/file.h"

/* Totals for one kind of order and one repair. */
typedef struct tally {
    double *divergence; /* [runs, tokens] */
    double *ttft;       /* [runs] */
    double *ratio;      /* [runs]: relative to the reference */
    size_t n_rows, n_runs, same, identical;
    double repaired, computed;
} tally;

typedef struct span_run {
    spry_session *session;
    const spry_eval_corpus *corpus;
    const spry_eval_span_report *report;
    size_t vocabulary;
    uint64_t salt;

    int32_t *ids; /* the prompt followed by the reference's answer */
    size_t n_prompt, n_answer;
    spry_span *spans; /* [documents] */
    size_t *order;    /* [documents] */
    float *reference; /* [n_rows, vocabulary]: its logits */
    size_t n_rows;    /* predictions that are compared */
    tally tallies[SPRY_EVAL_ORDERS][SPRY_EVAL_REPAIRS];
    tally full[SPRY_EVAL_ORDERS];

    spry_progress_line progress;
    size_t done, total; /* predictions */
} span_run;

/* ---- prompts ----------------------------------------------------------------------------------------------------- */

static size_t put(span_run *run, size_t at, const spry_eval_text *text)
{
    if (text->n_ids)
        memcpy(run->ids + at, text->ids, text->n_ids * sizeof *text->ids);
    return at + text->n_ids;
}

static void make_prompt(span_run *run, const spry_eval_text *question)
{
    const spry_eval_texts *documents = &run->corpus->documents;
    size_t at = put(run, 0, &run->corpus->start);
    for (size_t i = 0; i < documents->count; i++) {
        run->spans[i].begin = at;
        at = put(run, at, &documents->items[run->order[i]]);
        run->spans[i].end = at;
    }
    run->n_prompt = put(run, at, question);
    run->n_answer = 0;
}

static bool in_order(const size_t *order, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (order[i] != i)
            return false;
    return true;
}

/* A random order, never the original one; there are at least two documents. */
static void shuffle(size_t *order, size_t count, spry_random *random)
{
    do {
        for (size_t i = count - 1; i > 0; i--) {
            size_t other = (size_t)(spry_random_unit(random) * (double)(i + 1)), moved = order[i];
            order[i] = order[other];
            order[other] = moved;
        }
    } while (in_order(order, count));
}

/* ---- one run ----------------------------------------------------------------------------------------------------- */

static bool on_prefill(void *user, size_t done, size_t total)
{
    span_run *run = user;
    (void)done, (void)total;
    spry_progress_update(&run->progress, run->done, run->total);
    return true;
}

static bool on_reference_token(void *user, spry_logprob_entry token, const spry_logprob_entry *top, size_t n_top)
{
    span_run *run = user;
    (void)top, (void)n_top;
    run->ids[run->n_prompt + run->n_answer++] = token.id;
    return true;
}

static spry_request request_of(span_run *run, size_t repair, uint32_t max_tokens)
{
    spry_request request;
    spry_request_default(&request);
    request.prompt = run->ids;
    request.n_prompt = run->n_prompt;
    request.spans = run->spans;
    request.n_spans = run->corpus->documents.count;
    request.span_repair = repair;
    request.max_tokens = max_tokens;
    request.sampling.temperature = 0;
    request.on_prefill = on_prefill;
    request.user = run;
    return request;
}

static void forget_everything(span_run *run)
{
    run->salt++;
    spry_session_set_salt(run->session, &run->salt, sizeof run->salt);
}

/* Runs the timed reference and stores its answer. */
static spry_status answer_reference(span_run *run, spry_result *result, spry_error *error)
{
    size_t tokens = run->report->tokens;
    spry_request request = request_of(run, SPRY_REPAIR_ALL, (uint32_t)(tokens > 1 ? tokens - 1 : 1));
    request.on_token = on_reference_token;
    run->n_answer = 0;
    forget_everything(run);
    spry_status status = spry_session_generate(run->session, result, &request, error);
    run->n_rows = run->n_answer + 1 < tokens ? run->n_answer + 1 : tokens;
    return status;
}

/* Computes each span like a request that contains only the span and one token. */
static spry_status warm_spans(span_run *run, spry_error *error)
{
    const spry_eval_texts *documents = &run->corpus->documents;
    spry_status status = SPRY_OK;
    for (size_t i = 0; !status && i < documents->count; i++) {
        const spry_span *span = &run->spans[i], alone = {0, span->end - span->begin};
        const float *logits;
        int32_t *ids = run->ids + span->begin; /* the token after the span serves as that token */
        status = spry_session_eval_spans(run->session, &logits, ids, alone.end + 1, &alone, 1, 0, error);
        spry_progress_update(&run->progress, run->done, run->total);
    }
    return status;
}

static spry_status answer_with_spans(span_run *run, spry_result *result, size_t repair, spry_error *error)
{
    spry_request request = request_of(run, repair, 1);
    forget_everything(run);
    spry_status status =
        repair == SPRY_REPAIR_ALL ? SPRY_OK : warm_spans(run, error); /* full repair computes all spans again */
    if (!status)
        status = spry_session_generate(run->session, result, &request, error);
    if (!status && result->reused_tokens < result->span_tokens)
        status =
            spry_fail(error, SPRY_ERR_MEMORY,
                      "of %zu tokens in spans only %zu stayed in memory until they were used; give more --kv-bytes "
                      "and --cache-bytes, or fewer documents",
                      result->span_tokens, result->reused_tokens);
    return status;
}

/* ---- comparing --------------------------------------------------------------------------------------------------- */

static spry_status row(span_run *run, const float **logits, size_t index, size_t repair, spry_error *error)
{
    spry_status status = spry_session_eval_spans(run->session, logits, run->ids, run->n_prompt + index, run->spans,
                                                 run->corpus->documents.count, repair, error);
    run->done++;
    spry_progress_update(&run->progress, run->done, run->total);
    return status;
}

static spry_status keep_reference(span_run *run, spry_error *error)
{
    const float *logits;
    spry_status status = SPRY_OK;
    for (size_t i = 0; !status && i < run->n_rows; i++) {
        status = row(run, &logits, i, SPRY_REPAIR_ALL, error);
        if (!status)
            memcpy(run->reference + i * run->vocabulary, logits, run->vocabulary * sizeof *logits);
    }
    return status;
}

static spry_status compare(span_run *run, tally *t, size_t repair, spry_error *error)
{
    const float *logits;
    for (size_t i = 0; i < run->n_rows; i++) {
        const float *reference = run->reference + i * run->vocabulary;
        spry_status status = row(run, &logits, i, repair, error);
        if (status)
            return status;
        spry_eval_pair pair = spry_eval_compare(logits, reference, run->vocabulary, 0);
        if (!isfinite(pair.divergence))
            return spry_fail(error, SPRY_ERR_FORMAT, "the model's logits for token %zu of an answer are not finite",
                             i + 1);
        t->divergence[t->n_rows++] = pair.divergence;
        t->same += pair.same_top;
        t->identical += memcmp(logits, reference, run->vocabulary * sizeof *logits) == 0;
    }
    return SPRY_OK;
}

/* The times of a prompt are measured within seconds of each other, so that other load on the machine cancels out. */
static void add_time(tally *t, const spry_result *result, double full_ms)
{
    double ms = result->first_token_ms;
    t->ttft[t->n_runs] = ms;
    t->ratio[t->n_runs++] = full_ms > 0 ? ms / full_ms : 1;
    t->computed += (double)(result->prompt_tokens - result->reused_tokens);
}

static spry_status measure_prompt(span_run *run, size_t kind, spry_error *error)
{
    spry_result result;
    spry_status status = answer_reference(run, &result, error);
    const double full_ms = status ? 0 : result.first_token_ms;
    if (!status)
        add_time(&run->full[kind], &result, full_ms);
    if (!status)
        status = keep_reference(run, error);
    for (size_t i = 0; !status && i < SPRY_EVAL_REPAIRS; i++) {
        tally *t = &run->tallies[kind][i];
        size_t repair = run->report->repairs[i].tokens;
        status = answer_with_spans(run, &result, repair, error);
        if (status)
            break;
        add_time(t, &result, full_ms);
        t->repaired += (double)(run->corpus->document_tokens - result.span_tokens);
        status = compare(run, t, repair, error);
    }
    /* Answers that ended early have fewer predictions than expected. */
    run->total -= (run->report->tokens - run->n_rows) * (SPRY_EVAL_REPAIRS + 1);
    return status;
}

static spry_status measure_questions(span_run *run, size_t kind, spry_error *error)
{
    const spry_eval_texts *questions = &run->corpus->questions;
    spry_status status = SPRY_OK;
    for (size_t i = 0; !status && i < questions->count; i++) {
        make_prompt(run, &questions->items[i]);
        status = measure_prompt(run, kind, error);
    }
    return status;
}

/* The very first run touches the weights for the first time and is not measured. */
static spry_status measure(span_run *run, const spry_eval_span_flags *flags, spry_error *error)
{
    const size_t n_documents = run->corpus->documents.count;
    spry_result result;
    spry_random random;
    spry_random_seed(&random, flags->seed);
    make_prompt(run, &run->corpus->questions.items[0]);
    spry_status status = answer_reference(run, &result, error);
    if (!status)
        status = measure_questions(run, 0, error);
    for (size_t i = 0; !status && run->report->n_orders > 1 && i < run->report->orders[1].n_orders; i++) {
        shuffle(run->order, n_documents, &random);
        status = measure_questions(run, 1, error);
    }
    return status;
}

/* ---- before and after -------------------------------------------------------------------------------------------- */

static void plan(spry_eval_span_report *report, const spry_eval_span_flags *flags)
{
    const spry_eval_corpus *c = report->corpus;
    const size_t page = report->page_tokens, n_documents = c->documents.count;
    /* A repair is given for each span, and the share is of their mean length. */
    const size_t share = (c->document_tokens * 15 + n_documents * 100 - 1) / (n_documents * 100);
    const spry_eval_repair repairs[SPRY_EVAL_REPAIRS] = {
        {"none", 0},
        {"1 page", page},
        {"2 pages", 2 * page},
        [SPRY_EVAL_REPAIR_SHARE] = {"15 %", share},
        {"first", SPRY_REPAIR_FIRST + share},
        {"spread", SPRY_REPAIR_SPREAD + share},
        {"all", SPRY_REPAIR_ALL},
    };
    memcpy(report->repairs, repairs, sizeof repairs);
    report->orders[0] = (spry_eval_span_order){.name = "original", .n_orders = 1};
    report->orders[1] = (spry_eval_span_order){.name = "shuffled", .n_orders = flags->shuffles};
    report->n_orders = flags->shuffles && n_documents > 1 ? 2 : 1;
    for (size_t i = 0; i < c->questions.count; i++)
        report->prompt_tokens += (double)c->questions.items[i].n_ids / (double)c->questions.count;
    report->prompt_tokens += (double)(c->start.n_ids + c->document_tokens);
}

static spry_status check_context(const spry_eval_corpus *c, size_t tokens, size_t context, spry_error *error)
{
    size_t prompt = c->start.n_ids + c->document_tokens + c->longest_question;
    if (prompt + tokens <= context)
        return SPRY_OK;
    return spry_fail(
        error, SPRY_ERR_CONTEXT,
        "the documents with the longest question are %zu tokens, with an answer of %zu that makes %zu, but "
        "the context holds %zu; give a larger --context where the model allows it, or fewer documents",
        prompt, tokens, prompt + tokens, context);
}

static bool tally_init(tally *t, size_t n_runs, size_t n_tokens)
{
    size_t n_rows;
    if (!spry_checked_mul(&n_rows, n_runs, n_tokens))
        return false;
    t->divergence = calloc(n_rows, sizeof *t->divergence);
    t->ttft = calloc(n_runs, sizeof *t->ttft);
    t->ratio = calloc(n_runs, sizeof *t->ratio);
    return t->divergence && t->ttft && t->ratio;
}

static void tally_deinit(tally *t)
{
    free(t->divergence);
    free(t->ttft);
    free(t->ratio);
}

static spry_status run_init(span_run *run, spry_engine *engine, const spry_eval_span_report *report, spry_error *error)
{
    const spry_eval_corpus *c = report->corpus;
    const size_t n_documents = c->documents.count, n_questions = c->questions.count;
    spry_engine_info info;
    spry_engine_describe(engine, &info);
    spry_status status = check_context(c, report->tokens, info.context, error);
    if (!status)
        status = spry_session_create(&run->session, engine, error);
    if (status)
        return status;
    size_t row_bytes;
    run->vocabulary = info.vocabulary;
    run->ids = calloc(info.context, sizeof *run->ids);
    run->spans = calloc(n_documents, sizeof *run->spans);
    run->order = calloc(n_documents, sizeof *run->order);
    if (spry_checked_mul(&row_bytes, run->vocabulary, sizeof *run->reference))
        run->reference = calloc(report->tokens, row_bytes);
    bool enough = run->ids && run->spans && run->order && run->reference;
    for (size_t kind = 0; enough && kind < report->n_orders; kind++) {
        size_t n_runs;
        enough = spry_checked_mul(&n_runs, report->orders[kind].n_orders, n_questions) &&
                 tally_init(&run->full[kind], n_runs, 1);
        for (size_t i = 0; enough && i < SPRY_EVAL_REPAIRS; i++)
            enough = tally_init(&run->tallies[kind][i], n_runs, report->tokens);
        run->total += enough ? n_runs * (SPRY_EVAL_REPAIRS + 1) * report->tokens : 0;
    }
    if (!enough)
        return spry_fail(error, SPRY_ERR_MEMORY, "there is not enough memory to compare %zu tokens of each answer",
                         report->tokens);
    for (size_t i = 0; i < n_documents; i++)
        run->order[i] = i;
    return SPRY_OK;
}

static void run_deinit(span_run *run)
{
    spry_session_destroy(run->session);
    free(run->ids);
    free(run->spans);
    free(run->order);
    free(run->reference);
    for (size_t kind = 0; kind < SPRY_EVAL_ORDERS; kind++) {
        tally_deinit(&run->full[kind]);
        for (size_t i = 0; i < SPRY_EVAL_REPAIRS; i++)
            tally_deinit(&run->tallies[kind][i]);
    }
}

static void conclude(spry_eval_span_report *report, span_run *run)
{
    for (size_t kind = 0; kind < report->n_orders; kind++) {
        spry_eval_span_order *order = &report->orders[kind];
        order->full_ttft_ms = spry_eval_summarize(run->full[kind].ttft, run->full[kind].n_runs).median;
        for (size_t i = 0; i < SPRY_EVAL_REPAIRS; i++) {
            tally *t = &run->tallies[kind][i];
            order->results[i] = (spry_eval_span_result){
                .divergence = spry_eval_summarize(t->divergence, t->n_rows),
                .top1 = (double)t->same / (double)t->n_rows,
                .identical = t->identical == t->n_rows,
                .positions = t->n_rows,
                .ttft_ms = spry_eval_summarize(t->ttft, t->n_runs).median,
                .ttft_ratio = spry_eval_summarize(t->ratio, t->n_runs).median,
                .repaired_tokens = t->repaired / (double)t->n_runs,
                .computed_tokens = t->computed / (double)t->n_runs,
            };
        }
    }
}

/* Fills the report except `model`. Shows progress. */
static spry_status eval_span_run(spry_eval_span_report *report, spry_engine *engine, const spry_eval_corpus *corpus,
                                 const spry_eval_span_flags *flags, spry_error *error)
{
    uint64_t began = spry_clock_ns();
    spry_kv_figures figures;
    spry_engine_kv_figures(engine, &figures);
    report->corpus = corpus;
    report->page_tokens = figures.page_tokens;
    report->tokens = flags->tokens;
    report->seed = flags->seed;
    plan(report, flags);
    span_run run = {.corpus = corpus, .report = report};
    spry_status status = run_init(&run, engine, report, error);
    spry_progress_begin(&run.progress, "predictions");
    if (!status)
        status = measure(&run, flags, error);
    spry_progress_end(&run.progress);
    if (!status)
        conclude(report, &run);
    run_deinit(&run);
    report->seconds = (double)(spry_clock_ns() - began) / 1e9;
    return status;
}

/* ---- the report -------------------------------------------------------------------------------------------------- */

/* The result as a table in 80 columns, and as one JSON object. */

/* ---- the table --------------------------------------------------------------------------------------------------- */

static void print_head(const spry_eval_span_report *r)
{
    const spry_eval_corpus *c = r->corpus;
    const char *bold = spry_style_begin(stdout, SPRY_STYLE_BOLD), *plain = spry_style_end(stdout);
    spry_out_format("%s%s%s\n", bold, r->model, plain);
    spry_out_format("%zu %s of %zu to %zu tokens, %zu %s, prompts of %.0f tokens\n", c->documents.count,
                    c->documents.count == 1 ? "document" : "documents", c->shortest_document, c->longest_document,
                    c->questions.count, c->questions.count == 1 ? "question" : "questions", r->prompt_tokens);
    spry_out_format("\n%s%-9s%-8s%9s%9s%9s%8s%11s%8s%9s%s\n", bold, "order", "repair", "KL mean", "99 %", "max",
                    "top-1", "TTFT", "of full", "repaired", plain);
}

static void print_order(const spry_eval_span_report *r, const spry_eval_span_order *order)
{
    spry_out_format("%-9s%-8s%35s%8.1f ms%8.2f%9s\n", order->name, "full", "", order->full_ttft_ms, 1.0, "");
    for (size_t i = 0; i < SPRY_EVAL_REPAIRS; i++) {
        const spry_eval_span_result *result = &order->results[i];
        const spry_eval_summary *d = &result->divergence;
        spry_out_format("%-9s%-8s%9.6f%9.6f%9.6f%6.1f %%%8.1f ms%8.2f%9.0f\n", "", r->repairs[i].name, d->mean, d->p99,
                        d->max, 100 * result->top1, result->ttft_ms, result->ttft_ratio, result->repaired_tokens);
    }
}

static void eval_span_print(const spry_eval_span_report *r)
{
    const spry_eval_span_order *shuffled = &r->orders[1];
    print_head(r);
    for (size_t i = 0; i < r->n_orders; i++)
        print_order(r, &r->orders[i]);
    spry_out_format("\nKL and top-1: against full prefill, over %zu predictions", r->orders[0].results[0].positions);
    if (r->n_orders > 1)
        spry_out_format(" and %zu in %zu other %s", shuffled->results[0].positions, shuffled->n_orders,
                        shuffled->n_orders == 1 ? "order" : "orders");
    spry_out_format(".\nTTFT: documents were computed before, each alone, and nothing else; medians, and\n"
                    "so is its share of full prefill's, taken prompt by prompt.\n");
    spry_out_format("A page is %zu tokens. 15 %% is of the mean document: %zu tokens for each, and first\n"
                    "and spread as many: the first pages of each document, or pages spread over it.\n",
                    r->page_tokens, r->repairs[SPRY_EVAL_REPAIR_SHARE].tokens);
}

/* ---- JSON -------------------------------------------------------------------------------------------------------- */

static json_t *divergence_to_json(const spry_eval_summary *d)
{
    return json_pack("{s:f, s:f, s:f, s:f}", "mean", d->mean, "median", d->median, "p99", d->p99, "max", d->max);
}

static json_t *result_to_json(const spry_eval_span_order *order, const spry_eval_span_result *r,
                              const spry_eval_repair *repair)
{
    const size_t modes = SPRY_REPAIR_FIRST | SPRY_REPAIR_SPREAD;
    json_t *tokens =
        repair->tokens == SPRY_REPAIR_ALL ? json_null() : json_integer((json_int_t)(repair->tokens & ~modes));
    return json_pack("{s:s, s:s, s:o, s:o, s:f, s:b, s:I, s:f, s:f, s:f, s:f}", "order", order->name, "repair",
                     repair->name, "repair_tokens", tokens, "kl", divergence_to_json(&r->divergence), "top1", r->top1,
                     "identical", (int)r->identical, "positions", (json_int_t)r->positions, "ttft_ms", r->ttft_ms,
                     "ttft_ratio", r->ttft_ratio, "repaired_tokens", r->repaired_tokens, "computed_tokens",
                     r->computed_tokens);
}

static json_t *report_to_json(const spry_eval_span_report *r)
{
    const spry_eval_corpus *c = r->corpus;
    json_t *results = json_array(), *full = json_object();
    for (size_t i = 0; i < r->n_orders; i++) {
        const spry_eval_span_order *order = &r->orders[i];
        json_object_set_new(full, order->name, json_real(order->full_ttft_ms));
        for (size_t j = 0; j < SPRY_EVAL_REPAIRS; j++)
            json_array_append_new(results, result_to_json(order, &order->results[j], &r->repairs[j]));
    }
    size_t shuffles = r->n_orders > 1 ? r->orders[1].n_orders : 0;
    return json_pack("{s:o?, s:I, s:I, s:I, s:f, s:I, s:I, s:I, s:I, s:o, s:o, s:f}", "model", json_string(r->model),
                     "documents", (json_int_t)c->documents.count, "document_tokens", (json_int_t)c->document_tokens,
                     "questions", (json_int_t)c->questions.count, "prompt_tokens", r->prompt_tokens, "page_tokens",
                     (json_int_t)r->page_tokens, "tokens", (json_int_t)r->tokens, "shuffles", (json_int_t)shuffles,
                     "seed", (json_int_t)r->seed, "full_ttft_ms", full, "results", results, "seconds", r->seconds);
}

/* ---- the command ------------------------------------------------------------------------------------------------- */

enum { PLOT_BYTES_MAX = 1 << 20, TOKENS_MAX = 256, SHUFFLES_MAX = 1000 };

#define OPTION(...) SPRY_OPTION(spry_eval_span_flags, __VA_ARGS__)

static const spry_option span_options[] = {
    OPTION("docs", STRING, docs, .common = true, .metavar = "DIR",
           .help = "A folder of text files, each a document, by name", .group = "Spans"),
    OPTION("questions", STRING, questions, .common = true, .metavar = "FILE",
           .help = "A question on each line, plain or as {\"question\": \"...\"}"),
    OPTION("shuffles", U32, shuffles, .max = SHUFFLES_MAX,
           .help = "Number of additional random orders of the documents"),
    OPTION("seed", U32, seed, .help = "Seed of the random orders"),
    OPTION("tokens", U32, tokens, .min = 1, .max = TOKENS_MAX,
           .help = "Tokens per answer whose predictions are compared"),
    OPTION("plot", STRING, plot, .metavar = "FILE", .help = "Also write the result as an HTML page with plots"),
};

void spry_eval_span_flags_default(spry_eval_span_flags *flags)
{
    *flags = (spry_eval_span_flags){.shuffles = 2, .seed = 1, .tokens = 16};
}

spry_option_table spry_eval_span_flags_table(spry_eval_span_flags *flags)
{
    return (spry_option_table){span_options, SPRY_COUNT(span_options), flags};
}

/* Checked first, so that the work is not lost when the folder does not exist. */
static spry_status check_plot(const char *path, spry_error *error)
{
    spry_file_writer writer;
    spry_status status = spry_file_writer_open(&writer, path, error);
    spry_file_writer_abandon(&writer);
    return status;
}

static spry_status write_plot(const char *path, const spry_eval_span_report *report, spry_error *error)
{
    spry_buffer page;
    spry_buffer_init(&page, PLOT_BYTES_MAX);
    spry_eval_span_plot(&page, report);
    spry_status status = page.failed ? spry_fail(error, SPRY_ERR_MEMORY, "there is not enough memory for the plots")
                                     : spry_file_write(path, spry_buffer_view(&page), error);
    spry_buffer_deinit(&page);
    return status;
}

spry_status spry_eval_span(const spry_eval_span_flags *flags, bool json, const char *model,
                           const spry_model_flags *model_flags, spry_engine_flags *engine_flags, spry_error *error)
{
    spry_engine *engine = NULL;
    spry_model_source source = {0};
    spry_eval_corpus corpus;
    spry_eval_span_report report = {0};
    spry_status status = spry_eval_corpus_read(&corpus, flags->docs, flags->questions, error);
    if (!status && flags->plot)
        status = check_plot(flags->plot, error);
    if (!status)
        status = spry_open_model(&engine, &source, model, model_flags, engine_flags, error);
    if (!status)
        status = spry_eval_corpus_tokenize(&corpus, engine, error);
    report.model = source.name;
    if (!status)
        status = eval_span_run(&report, engine, &corpus, flags, error);
    if (!status && flags->plot)
        status = write_plot(flags->plot, &report, error);
    json_t *object = !status && json ? report_to_json(&report) : NULL;
    if (!status && json)
        status = spry_out_json(object, JSON_REAL_PRECISION(12), "the result", error);
    else if (!status)
        eval_span_print(&report);
    json_decref(object);
    spry_engine_close(engine);
    spry_model_source_deinit(&source);
    spry_eval_corpus_deinit(&corpus);
    return status;
}
