/* Cold and warm runs alternate, so that changes of the machine's speed affect both alike. Every cold run has its own
 * salt, under which nothing is cached. */
#include "bench/bench_reuse.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/interrupt.h"
#include "cli/terminal.h"
#include "platform/clock.h"
#include "platform/directory.h"
#include "platform/file.h"

enum {
    PREFIX = 1000,
    NEW = 20,
    N_SPANS = 4,
    SPAN = 512,
    QUESTION = 32,
    MOVED_SPANS = 8, /* position differences in the table whose decode is measured; the same number of pages either
                      * way */
    MOVED_SPAN = 2 * SPRY_PAGE_TOKENS,
    MOVED_FIRST = SPRY_PAGE_TOKENS,
    DECODED = 64,
    LOOKUP_TOKENS = 8192,
    LOOKUP_PAGES = 100000,
};

typedef struct bench {
    spry_bench_settings *settings;
    const spry_model_source *source;
    spry_engine *engine;
    spry_session *session;
    int32_t *ids; /* [n_ids]: synthetic text */
    size_t n_ids;
    uint64_t salt;
    spry_progress_line line;
    size_t done, whole;
    spry_error *error;
} bench;

static spry_status go_on(bench *b)
{
    spry_progress_update(&b->line, b->done++, b->whole);
    return spry_interrupt_seen() ? spry_fail(b->error, SPRY_ERR_CANCELLED, "interrupted; nothing is reported")
                                 : SPRY_OK;
}

static void forget(bench *b)
{
    b->salt++;
    spry_session_set_salt(b->session, &b->salt, sizeof b->salt);
}

/* Milliseconds to the logits after the prompt. */
static spry_status time_prompt(bench *b, double *ms, const int32_t *ids, size_t count, const spry_span *spans,
                               size_t n_spans, size_t repair)
{
    const float *logits;
    spry_status status = go_on(b);
    uint64_t start = spry_clock_ns();
    if (!status)
        status = spry_session_eval_spans(b->session, &logits, ids, count, spans, n_spans, repair, b->error);
    *ms = (double)(spry_clock_ns() - start) / 1e6;
    return status;
}

static spry_status time_plain(bench *b, double *ms, const int32_t *ids, size_t count)
{
    return time_prompt(b, ms, ids, count, NULL, 0, 0);
}

/* ---- a known prefix ---------------------------------------------------------------------------------------------- */

static spry_status measure_prefix(bench *b, spry_bench_pair *pair)
{
    double cold[SPRY_BENCH_REPEAT_MAX], warm[SPRY_BENCH_REPEAT_MAX], unused;
    size_t count = PREFIX + NEW;
    spry_status status = SPRY_OK;
    for (uint32_t i = 0; !status && i < b->settings->repeat; i++) {
        forget(b);
        status = time_plain(b, &cold[i], b->ids, count);
        forget(b);
        if (!status)
            status = time_plain(b, &unused, b->ids, PREFIX);
        if (!status)
            status = time_plain(b, &warm[i], b->ids, count);
    }
    if (!status)
        *pair = (spry_bench_pair){"cached prefix", count, PREFIX, spry_bench_stat_of(cold, b->settings->repeat),
                                  spry_bench_stat_of(warm, b->settings->repeat)};
    return status;
}

/* ---- fragments in another order ---------------------------------------------------------------------------------- */

/* The synthetic documents in `order`, then a question. */
static void put_documents(bench *b, int32_t *out, spry_span *spans, size_t length, const size_t *order)
{
    for (size_t i = 0; i < N_SPANS; i++) {
        memcpy(out + i * length, b->ids + order[i] * length, length * sizeof *out);
        spans[i] = (spry_span){i * length, (i + 1) * length};
    }
    memcpy(out + N_SPANS * length, b->ids + N_SPANS * length, QUESTION * sizeof *out);
}

/* A second order computes the last pages of the fragment that stood at the end alone for the first time, because there
 * they are always computed in place (docs/SPANS.md). From the third one on all fragments are cached. */
static spry_status measure_spans(bench *b, spry_bench_pair *second, spry_bench_pair *third, size_t length)
{
    enum { ORDERS = 3 };
    static const size_t orders[ORDERS][N_SPANS] = {{0, 1, 2, 3}, {2, 0, 3, 1}, {1, 3, 0, 2}};
    double cold[SPRY_BENCH_REPEAT_MAX], warm[ORDERS][SPRY_BENCH_REPEAT_MAX];
    size_t count = N_SPANS * length + QUESTION;
    spry_span spans[N_SPANS];
    int32_t *ids = malloc(count * sizeof *ids);
    if (!ids)
        return spry_fail_memory(b->error, "a prompt", count * sizeof *ids);
    spry_status status = SPRY_OK;
    for (uint32_t i = 0; !status && i < b->settings->repeat; i++) {
        put_documents(b, ids, spans, length, orders[ORDERS - 1]);
        forget(b);
        status = time_plain(b, &cold[i], ids, count);
        forget(b);
        for (size_t k = 0; !status && k < ORDERS; k++) {
            put_documents(b, ids, spans, length, orders[k]);
            status = time_prompt(b, &warm[k][i], ids, count, spans, N_SPANS, SPRY_PAGE_TOKENS);
        }
    }
    free(ids);
    if (status)
        return status;
    const spry_bench_stat anew = spry_bench_stat_of(cold, b->settings->repeat);
    *second = (spry_bench_pair){"4 fragments, second order", count, N_SPANS * length, anew,
                                spry_bench_stat_of(warm[1], b->settings->repeat)};
    *third = (spry_bench_pair){"4 fragments, third order", count, N_SPANS * length, anew,
                               spry_bench_stat_of(warm[2], b->settings->repeat)};
    return SPRY_OK;
}

/* ---- decoding over moved pages ----------------------------------------------------------------------------------- */

static spry_status time_decode(bench *b, double *tps, const spry_span *spans, size_t n_spans)
{
    spry_request request;
    spry_result result;
    spry_request_default(&request);
    request.prompt = b->ids;
    request.n_prompt = MOVED_FIRST + MOVED_SPANS * MOVED_SPAN + 1;
    request.spans = spans;
    request.n_spans = n_spans;
    request.span_repair = 0;
    request.max_tokens = DECODED + 1;
    request.ignore_end = true;
    request.speculation = SPRY_DRAFT_NONE;
    request.sampling.temperature = 0;
    spry_status status = go_on(b);
    if (!status)
        status = spry_session_generate(b->session, &result, &request, b->error);
    *tps = status ? 0 : DECODED * 1000 / result.decode_ms;
    return status;
}

static spry_status measure_moved(bench *b, spry_bench_pair *pair)
{
    double plain[SPRY_BENCH_REPEAT_MAX], moved[SPRY_BENCH_REPEAT_MAX];
    spry_span spans[MOVED_SPANS];
    for (size_t i = 0; i < MOVED_SPANS; i++)
        spans[i] = (spry_span){MOVED_FIRST + i * MOVED_SPAN, MOVED_FIRST + (i + 1) * MOVED_SPAN};
    spry_status status = SPRY_OK;
    for (uint32_t i = 0; !status && i < b->settings->repeat; i++) {
        status = time_decode(b, &plain[i], NULL, 0);
        if (!status)
            status = time_decode(b, &moved[i], spans, MOVED_SPANS);
    }
    if (!status)
        *pair =
            (spry_bench_pair){"decode over 8 moved spans", DECODED, 0, spry_bench_stat_of(plain, b->settings->repeat),
                              spry_bench_stat_of(moved, b->settings->repeat)};
    return status;
}

/* ---- after a restart --------------------------------------------------------------------------------------------- */

static spry_status open_engine(bench *b, const char *cache_dir)
{
    spry_engine_options options = b->settings->engine.options;
    options.cache_dir = cache_dir;
    spry_status status = spry_model_source_engine(&b->engine, b->source, &options, b->error);
    return status ? status : spry_session_create(&b->session, b->engine, b->error);
}

static void close_engine(bench *b)
{
    spry_session_destroy(b->session);
    spry_engine_close(b->engine);
    b->session = NULL;
    b->engine = NULL;
}

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

static spry_status measure_restart(bench *b, spry_bench_pair *pair)
{
    double cold[SPRY_BENCH_REPEAT_MAX], warm[SPRY_BENCH_REPEAT_MAX];
    spry_temporary folder = {.file = -1};
    spry_status status = spry_temporary_init(&folder, "pages", b->error);
    for (uint32_t i = 0; !status && i < b->settings->repeat; i++) {
        empty_folder(folder.path);
        status = open_engine(b, folder.path);
        if (!status)
            status = time_plain(b, &cold[i], b->ids, PREFIX);
        close_engine(b);
        if (!status)
            status = open_engine(b, folder.path);
        if (!status)
            status = time_plain(b, &warm[i], b->ids, PREFIX + NEW);
        close_engine(b);
    }
    if (folder.path) {
        empty_folder(folder.path);
        remove(folder.path);
    }
    spry_temporary_deinit(&folder);
    if (!status)
        *pair = (spry_bench_pair){"cached prefix, restarted", PREFIX + NEW, PREFIX,
                                  spry_bench_stat_of(cold, b->settings->repeat),
                                  spry_bench_stat_of(warm, b->settings->repeat)};
    return status;
}

/* ---- finding among many ------------------------------------------------------------------------------------------ */

static spry_status measure_lookup(bench *b, spry_bench_reuse *reuse)
{
    double us[SPRY_BENCH_REPEAT_MAX];
    size_t pages = LOOKUP_PAGES;
    spry_status status = spry_lookup_measure(us, b->settings->repeat, LOOKUP_TOKENS, &pages, b->error);
    if (status)
        return status;
    reuse->lookup_us = spry_bench_stat_of(us, b->settings->repeat);
    reuse->lookup_tokens = LOOKUP_TOKENS;
    reuse->lookup_pages = pages;
    return SPRY_OK;
}

/* ---- all of it --------------------------------------------------------------------------------------------------- */

static spry_status make_up_text(bench *b)
{
    spry_engine_info info;
    spry_engine_describe(b->engine, &info);
    b->n_ids = N_SPANS * SPAN + QUESTION;
    b->ids = malloc(b->n_ids * sizeof *b->ids);
    if (!b->ids)
        return spry_fail_memory(b->error, "synthetic text", b->n_ids * sizeof *b->ids);
    for (size_t i = 0; i < b->n_ids; i++)
        b->ids[i] = (int32_t)((i * i * 7 + i * 131 + i / 9) % info.vocabulary);
    return info.context < PREFIX + NEW + DECODED
               ? spry_fail(b->error, SPRY_ERR_CONTEXT,
                           "the model's context of %zu tokens is too short to measure reuse", info.context)
               : SPRY_OK;
}

spry_status spry_bench_reuse_run(spry_bench_reuse *reuse, spry_bench_settings *settings,
                                 const spry_model_source *source, spry_error *error)
{
    bench b = {.settings = settings, .source = source, .whole = settings->repeat * 11, .error = error};
    spry_progress_begin(&b.line, "measuring reuse");
    spry_status status = open_engine(&b, NULL);
    if (!status)
        status = make_up_text(&b);
    if (!status) {
        spry_engine_info info;
        spry_engine_describe(b.engine, &info);
        size_t length = (info.context - QUESTION) / N_SPANS / SPRY_PAGE_TOKENS * SPRY_PAGE_TOKENS;
        status = measure_prefix(&b, &reuse->pairs[0]);
        if (!status)
            status = measure_spans(&b, &reuse->pairs[1], &reuse->pairs[2], length < SPAN ? length : SPAN);
        if (!status)
            status = measure_moved(&b, &reuse->pairs[4]);
    }
    close_engine(&b);
    if (!status)
        status = measure_restart(&b, &reuse->pairs[3]);
    if (!status)
        status = measure_lookup(&b, reuse);
    spry_progress_end(&b.line);
    free(b.ids);
    return status;
}
