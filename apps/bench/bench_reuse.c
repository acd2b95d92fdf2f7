/* `spry bench --reuse`: the savings of the KV cache. Times to the first token with cached text, compared with computing
 * it. Computed and reused runs alternate, so that changes of the machine's speed affect both alike. Every computed run
 * has its own salt, under which nothing is cached. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/bench.h"
#include "platform/clock.h"
#include "platform/directory.h"
#include "platform/file.h"

enum {
    PREFIX = 1000,
    NEW = 20,
    N_SPANS = 4,
    SPAN = 512,
    QUESTION = 32,
    ORDERS = 3,
    MOVED_SPANS = 8, /* position differences in the table whose decode is measured; both ways have the same pages */
    MOVED_SPAN = 2 * SPRY_PAGE_TOKENS,
    MOVED_FIRST = SPRY_PAGE_TOKENS,
    DECODED = 64,
    LOOKUP_TOKENS = 8192,
    LOOKUP_PAGES = 100000,
};

typedef struct reuse {
    uint64_t salt;
    size_t span;        /* tokens of a fragment */
    int32_t *ids;       /* [N_SPANS x span + QUESTION]: fragments in some order */
    const char *folder; /* where the engine keeps pages */
} reuse;

/* From here on nothing is cached. */
static void forget(spry_bench *b, reuse *r)
{
    r->salt++;
    spry_session_set_salt(b->session, &r->salt, sizeof r->salt);
}

/* Milliseconds to the logits after the prompt. */
static spry_status time_prompt(spry_bench *b, double *ms, const int32_t *ids, size_t count, const spry_span *spans,
                               size_t n_spans)
{
    const float *logits;
    spry_status status = spry_bench_go_on(b);
    uint64_t start = spry_clock_ns();
    if (!status)
        status = spry_session_eval_spans(b->session, &logits, ids, count, spans, n_spans,
                                         n_spans ? SPRY_PAGE_TOKENS : 0, b->error);
    *ms = spry_bench_ms_since(start);
    return status;
}

static spry_status prefix_once(spry_bench *b, void *context, double *ms)
{
    double unused;
    forget(b, context);
    spry_status status = time_prompt(b, &ms[0], b->ids, PREFIX + NEW, NULL, 0);
    forget(b, context);
    if (!status)
        status = time_prompt(b, &unused, b->ids, PREFIX, NULL, 0);
    return status ? status : time_prompt(b, &ms[1], b->ids, PREFIX + NEW, NULL, 0);
}

/* The synthetic documents in `order`, then a question. */
static void put_documents(spry_bench *b, reuse *r, spry_span *spans, const size_t *order)
{
    for (size_t i = 0; i < N_SPANS; i++) {
        memcpy(r->ids + i * r->span, b->ids + order[i] * r->span, r->span * sizeof *r->ids);
        spans[i] = (spry_span){i * r->span, (i + 1) * r->span};
    }
    memcpy(r->ids + N_SPANS * r->span, b->ids + N_SPANS * r->span, QUESTION * sizeof *r->ids);
}

/* A second order computes the last pages of the fragment that was at the end alone for the first time, because there
 * they are always computed in place (docs/SPANS.md). From the third one on all fragments are cached. */
static spry_status spans_once(spry_bench *b, void *context, double *ms)
{
    static const size_t orders[ORDERS][N_SPANS] = {{0, 1, 2, 3}, {2, 0, 3, 1}, {1, 3, 0, 2}};
    reuse *r = context;
    spry_span spans[N_SPANS];
    size_t count = N_SPANS * r->span + QUESTION;
    double first;
    put_documents(b, r, spans, orders[ORDERS - 1]);
    forget(b, r);
    spry_status status = time_prompt(b, &ms[0], r->ids, count, NULL, 0);
    forget(b, r);
    for (size_t k = 0; !status && k < ORDERS; k++) {
        put_documents(b, r, spans, orders[k]);
        status = time_prompt(b, k ? &ms[k] : &first, r->ids, count, spans, N_SPANS);
    }
    return status;
}

/* Tokens/s of decoding, without and with moved spans. */
static spry_status moved_once(spry_bench *b, void *context, double *tps)
{
    spry_span spans[MOVED_SPANS];
    spry_result result;
    spry_request request = spry_bench_request(b->ids, MOVED_FIRST + MOVED_SPANS * MOVED_SPAN + 1, DECODED + 1);
    spry_status status = SPRY_OK;
    (void)context;
    request.span_repair = 0;
    for (size_t i = 0; i < MOVED_SPANS; i++)
        spans[i] = (spry_span){MOVED_FIRST + i * MOVED_SPAN, MOVED_FIRST + (i + 1) * MOVED_SPAN};
    for (size_t way = 0; !status && way < 2; way++) {
        request.spans = way ? spans : NULL;
        request.n_spans = way ? MOVED_SPANS : 0;
        status = spry_bench_go_on(b);
        if (!status)
            status = spry_session_generate(b->session, &result, &request, b->error);
        tps[way] = status ? 0 : DECODED * 1000 / result.decode_ms;
    }
    return status;
}

/* ---- after a restart --------------------------------------------------------------------------------------------- */

static bool remove_file(void *context, const char *name)
{
    spry_directory_remove(context, name);
    return true;
}

static void empty_folder(const char *path)
{
    spry_directory folder;
    if (spry_directory_open(&folder, path, NULL))
        return;
    spry_directory_each(&folder, remove_file, &folder);
    spry_directory_close(&folder);
}

static spry_status restart_once(spry_bench *b, void *context, double *ms)
{
    const reuse *r = context;
    spry_status status = SPRY_OK;
    empty_folder(r->folder);
    for (size_t way = 0; !status && way < 2; way++) {
        spry_bench_close(b);
        status = spry_bench_open(b, r->folder, true);
        if (!status)
            status = time_prompt(b, &ms[way], b->ids, way ? PREFIX + NEW : PREFIX, NULL, 0);
    }
    spry_bench_close(b);
    return status;
}

/* ---- all of it --------------------------------------------------------------------------------------------------- */

/* A pair of the report: the same work computed anew, and with cached pages. */
static void put_pair(spry_bench *b, const char *key, const char *what, size_t tokens, size_t known,
                     spry_bench_series *series, size_t which)
{
    const bool is_speed = strcmp(key, "moved_decode") == 0;
    double anew = spry_bench_stat_of(series->values[0], series->count).median;
    double reused = spry_bench_stat_of(series->values[which], series->count).median,
           ratio = spry_bench_ratio(reused, anew);
    spry_bench_put(b, key,
                   json_pack("{s:s, s:I, s:I, s:s, s:f, s:f, s:f}", "what", what, "tokens", (json_int_t)tokens, "known",
                             (json_int_t)known, "unit", is_speed ? "tokens_per_second" : "ms", "anew", anew, "reused",
                             reused, "ratio", ratio));
}

static spry_status measure_with_engine(spry_bench *b, reuse *r)
{
    spry_bench_series series;
    if (b->context < PREFIX + NEW + DECODED)
        return spry_fail(b->error, SPRY_ERR_CONTEXT, "the model's context of %u tokens is too short to measure reuse",
                         b->context);
    size_t span = (b->context - QUESTION) / N_SPANS / SPRY_PAGE_TOKENS * SPRY_PAGE_TOKENS;
    r->span = span < SPAN ? span : SPAN;
    size_t count = N_SPANS * r->span + QUESTION;
    r->ids = malloc(count * sizeof *r->ids);
    spry_status status = r->ids ? spry_bench_make_text(b, N_SPANS * SPAN + QUESTION)
                                : spry_fail_memory(b->error, "a prompt", count * sizeof *r->ids);
    if (!status)
        status = spry_bench_repeat(b, &series, false, prefix_once, r);
    if (!status) {
        put_pair(b, "prefix", "cached prefix", PREFIX + NEW, PREFIX, &series, 1);
        status = spry_bench_repeat(b, &series, false, spans_once, r);
    }
    if (!status) {
        put_pair(b, "fragments", "4 fragments, second order", count, N_SPANS * r->span, &series, 1);
        put_pair(b, "fragments_again", "4 fragments, third order", count, N_SPANS * r->span, &series, 2);
        spry_bench_put(b, "restart", json_null()); /* keeps its place before the next */
        status = spry_bench_repeat(b, &series, false, moved_once, NULL);
    }
    if (!status)
        put_pair(b, "moved_decode", "decode over 8 moved spans", DECODED, 0, &series, 1);
    return status;
}

static spry_status measure_restart(spry_bench *b, reuse *r)
{
    spry_bench_series series;
    spry_temporary folder = {.file = -1};
    spry_status status = spry_temporary_init(&folder, "pages", b->error);
    r->folder = folder.path;
    if (!status)
        status = spry_bench_repeat(b, &series, false, restart_once, r);
    if (!status)
        put_pair(b, "restart", "cached prefix, restarted", PREFIX + NEW, PREFIX, &series, 1);
    if (folder.path) {
        empty_folder(folder.path);
        remove(folder.path);
    }
    spry_temporary_deinit(&folder);
    return status;
}

/* Finding a prompt among many pages. */
static spry_status measure_lookup(spry_bench *b)
{
    double us[SPRY_BENCH_REPEAT_MAX];
    size_t pages = LOOKUP_PAGES;
    spry_status status = spry_lookup_measure(us, b->flags->repeat, LOOKUP_TOKENS, &pages, b->error);
    if (status)
        return status;
    double median = spry_bench_stat_of(us, b->flags->repeat).median;
    spry_bench_put(
        b, "lookup",
        json_pack("{s:I, s:I, s:f}", "tokens", (json_int_t)LOOKUP_TOKENS, "pages", (json_int_t)pages, "us", median));
    spry_bench_put_figures(b, b->report, "");
    return SPRY_OK;
}

static spry_status measure(spry_bench *b)
{
    reuse r = {.salt = 0};
    snprintf(b->doing, sizeof b->doing, "measuring reuse");
    b->whole = 4;
    spry_status status = spry_bench_check_baseline(b);
    spry_bench_put(b, "lookup", json_null());
    if (!status)
        status = spry_bench_open(b, NULL, true);
    if (!status)
        status = measure_with_engine(b, &r);
    free(r.ids);
    spry_bench_close(b);
    if (!status)
        status = measure_restart(b, &r);
    return status ? status : measure_lookup(b);
}

static void print(const json_t *report)
{
    static const char *const keys[] = {"prefix", "fragments", "fragments_again", "restart", "moved_decode"};
    spry_bench_column columns[] = {{"Time to the first token", -26, "what", SPRY_BENCH_TEXT, NULL},
                                   {"tokens", 7, "tokens", SPRY_BENCH_COUNT, NULL},
                                   {"known", 7, "known", SPRY_BENCH_COUNT, NULL},
                                   {"anew", 14, "anew", SPRY_BENCH_OF_ROW, NULL},
                                   {"reused", 14, "reused", SPRY_BENCH_OF_ROW, NULL},
                                   {"share", 8, "ratio", SPRY_BENCH_SHARE, NULL}};
    json_t *rows = json_array();
    for (size_t i = 0; i < SPRY_COUNT(keys); i++) {
        json_t *row = json_copy(json_object_get(report, keys[i]));
        json_object_set_new(row, "unit", json_string(i + 1 < SPRY_COUNT(keys) ? "ms" : "tok/s"));
        json_array_append_new(rows, row);
    }
    spry_bench_print_bold(spry_bench_text(report, "model"));
    spry_out_format("\n");
    spry_bench_table(columns, SPRY_COUNT(columns), rows, NULL, "");
    json_decref(rows);
    spry_out_format("\nFinding a prompt of %.0f tokens among %.0f pages takes %.0f us.\n",
                    spry_bench_number(report, "lookup.tokens"), spry_bench_number(report, "lookup.pages"),
                    spry_bench_number(report, "lookup.us"));
}

const spry_bench_kind spry_bench_reuse_kind = {"--reuse", SPRY_REUSE_FORMAT, measure, print};
