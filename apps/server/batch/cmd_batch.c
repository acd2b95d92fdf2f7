/* spry batch: requests of OpenAI's batch format from a file, answered by the server's handlers, many at a time. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/json.h"
#include "cli/commands.h"
#include "cli/terminal.h"
#include "cli/usage.h"
#include "platform/clock.h"
#include "platform/threads.h"
#include "server/batch/batch.h"
#include "server/http/exchange.h"
#include "server/server_setup.h"
#include "spry_serve.h"

enum { WORKERS_MAX = 512 };

static const spry_usage usage = {
    .command = "batch",
    .arguments = "INPUT OUTPUT [options]",
    .about =
        "Answers every line of INPUT, a request of OpenAI's batch format ({\"custom_id\", \"method\", \"url\", "
        "\"body\"} with url /v1/chat/completions or /v1/completions), and appends one line per answer to OUTPUT, "
        "in the order in which they complete; when all are there, OUTPUT is put in the order of INPUT.\n"
        "A line whose custom_id is already in OUTPUT is skipped, so an interrupted batch continues where it "
        "stopped. A line without a custom_id is named by its number: line-7.\n"
        "Started by mpirun, each process has a model of its own and is given line after line; the lines of a process "
        "that dies are answered by the others (docs/SCALING.md).\n"
        "Ctrl-C stops the batch when unfinished answers are complete. Exit codes: 0 all answered, 1 some failed.",
    .examples = "spry batch questions.jsonl answers.jsonl\n"
                "mpirun --enable-recovery -n 4 spry batch questions.jsonl answers.jsonl\n"
                "spry batch questions.jsonl answers.jsonl --parallel 16 --models-dir ~/models",
};

static const spry_option batch_options[] = {
    SPRY_OPTION(spry_server_flags, "parallel", U32, parallel, .common = true, .min = 1, .max = 256,
                .help = "Most answers computed at the same time", .group = "Batch"),
};

typedef struct batch {
    spry_server *server;
    spry_batch_lines lines;
    spry_batch_guest *guest; /* NULL on rank 0, which has the input and the output */
    spry_batch_output output;
    pthread_mutex_t lock; /* guards all members below */
    size_t total, done, failed, skipped;
    spry_status status;
    spry_error error;
    spry_progress_line progress;
} batch;

static volatile sig_atomic_t interrupted;

static void on_interrupt(int number)
{
    (void)number;
    interrupted = 1;
}

/* ---- one line ---------------------------------------------------------------------------------------------------- */

static bool is_allowed(const char *url)
{
    return url && (strcmp(url, "/v1/chat/completions") == 0 || strcmp(url, "/v1/completions") == 0);
}

/* The reply of the handler of `url`; *status is its HTTP status. NULL: memory is short. */
static json_t *call_handler(batch *b, const char *url, json_t *body, unsigned *status)
{
    char allowed[64];
    spry_exchange x = {.server = b->server, .method = "POST", .path = url, .began_ns = spry_clock_ns()};
    x.number = atomic_fetch_add(&b->server->numbers, 1) + 1;
    x.route = spry_route_find(x.method, url, &x.tail, allowed);
    spry_buffer_init(&x.body, SIZE_MAX / 2);
    json_object_del(body, "stream"); /* the reply is stored, not streamed */
    char *text = spry_json_text(body, JSON_COMPACT);
    if (text && spry_buffer_text(&x.body, text))
        x.route->handle(&x);
    free(text);
    spry_buffer_deinit(&x.body);
    *status = x.status;
    return x.kept;
}

static json_t *answer_line(batch *b, const json_t *request, const char *id, size_t number, bool *failed)
{
    char name[SPRY_BATCH_ID_BYTES];
    unsigned status = 0;
    const char *url = json_string_value(json_object_get(request, "url"));
    json_t *body = json_object_get(request, "body"), *answer = NULL;
    snprintf(name, sizeof name, "batch_req_%zu", number);
    if (is_allowed(url) && json_is_object(body))
        answer = call_handler(b, url, body, &status);
    *failed = status != SPRY_HTTP_OK;
    if (answer)
        return json_pack("{s:s, s:s, s:{s:i, s:s, s:o}, s:n}", "id", name, "custom_id", id, "response", "status_code",
                         (int)status, "request_id", name, "body", answer, "error");
    return json_pack("{s:s, s:s, s:n, s:{s:s, s:s}}", "id", name, "custom_id", id, "response", "error", "code",
                     "invalid_request", "message",
                     !request                ? "the line is not a JSON object"
                     : !is_allowed(url)      ? "url must be /v1/chat/completions or /v1/completions"
                     : !json_is_object(body) ? "body must be an object"
                                             : "there is not enough memory for the answer");
}

/* Stores an answer. */
static void store(void *user, spry_view json, bool failed)
{
    batch *b = user;
    spry_error error;
    pthread_mutex_lock(&b->lock);
    spry_status status = spry_batch_output_add(&b->output, json, &error);
    if (status != SPRY_OK && b->status == SPRY_OK) {
        b->status = status;
        b->error = error;
    }
    b->done++;
    b->failed += failed;
    spry_progress_update(&b->progress, b->done + b->skipped, b->total);
    bool stop = b->status != SPRY_OK || interrupted;
    pthread_mutex_unlock(&b->lock);
    if (stop)
        spry_batch_lines_stop(&b->lines);
}

static void finish_line(batch *b, const spry_batch_line *line, json_t *answer, bool failed)
{
    char *json = answer ? spry_json_text(answer, JSON_COMPACT | JSON_REAL_PRECISION(9)) : NULL;
    json_decref(answer);
    const char *text = json ? json : "";
    if (b->guest)
        spry_batch_guest_answer(b->guest, line->number, text, failed);
    else if (spry_batch_lines_done(&b->lines, line->number, 0))
        store(b, spry_view_of(text), failed);
    free(json);
}

static bool is_answered(void *user, const spry_batch_line *line)
{
    batch *b = user;
    char own[SPRY_BATCH_ID_BYTES];
    json_t *request = NULL;
    (void)spry_json_object(&request, line->text, NULL);
    bool answered = spry_batch_output_has(&b->output, spry_batch_line_id(own, request, line->number));
    json_decref(request);
    pthread_mutex_lock(&b->lock);
    b->skipped += answered;
    pthread_mutex_unlock(&b->lock);
    return answered;
}

static void process_line(batch *b, const spry_batch_line *line)
{
    char own[SPRY_BATCH_ID_BYTES];
    json_t *request = NULL;
    bool failed = false;
    (void)spry_json_object(&request, line->text, NULL);
    const char *id = spry_batch_line_id(own, request, line->number);
    json_t *answer = answer_line(b, request, id, line->number, &failed);
    finish_line(b, line, answer, failed);
    json_decref(request);
}

static void *work(void *argument)
{
    batch *b = argument;
    spry_batch_line line;
    char *text = NULL;
    while (!interrupted &&
           (b->guest ? spry_batch_guest_next(b->guest, &line, &text) : spry_batch_lines_next(&b->lines, &line, 0))) {
        process_line(b, &line);
        free(text);
        text = NULL;
    }
    return NULL;
}

/* ---- all lines --------------------------------------------------------------------------------------------------- */

static void count_lines(batch *b)
{
    const spry_mapping *input = &b->lines.input;
    for (size_t i = 0; i < input->size; i++)
        b->total += input->data[i] == '\n' || i + 1 == input->size;
}

/* Twice as many workers as running answers, so that the queue is never empty. */
static void run_workers(batch *b, uint32_t parallel)
{
    pthread_t workers[WORKERS_MAX];
    size_t count = 0;
    while (count < 2 * (size_t)parallel && count < WORKERS_MAX &&
           spry_background_start(&workers[count], work, b, "the batch", NULL) == SPRY_OK)
        count++;
    if (!count)
        work(b);
    for (size_t i = 0; i < count; i++)
        pthread_join(workers[i], NULL);
}

/* The server's handlers, without its socket. */
static spry_status open_server(batch *b, spry_server_flags *flags, spry_error *error)
{
    const spry_option_list none = {0};
    spry_status status = spry_server_open(&b->server, flags, &none, error);
    struct sigaction action = {.sa_handler = on_interrupt, .sa_flags = (int)SA_RESETHAND};
    if (status == SPRY_OK)
        sigaction(SIGINT, &action, NULL);
    return status;
}

/* Rank 0, or the only process: answers lines and hands them out. */
static spry_status run(batch *b, spry_server_flags *flags, uint32_t n_ranks, size_t *lost, spry_error *error)
{
    spry_batch_host *host = NULL;
    spry_status status = open_server(b, flags, error);
    if (status != SPRY_OK)
        return status;
    count_lines(b);
    if (n_ranks > 1)
        status = spry_batch_host_start(&host, &b->lines, n_ranks, store, b, error);
    if (status == SPRY_OK) {
        spry_progress_begin(&b->progress, "answering");
        run_workers(b, flags->parallel);
        if (interrupted)
            spry_batch_lines_stop(&b->lines);
        *lost = host ? spry_batch_host_finish(host) : 0;
        spry_progress_end(&b->progress);
        status = b->status;
        *error = b->error;
    }
    spry_server_close(b->server);
    if (status == SPRY_OK && !interrupted)
        status = spry_batch_output_sort(&b->output, &b->lines.input, error);
    return status;
}

static spry_status run_host(batch *b, spry_server_flags *flags, const char *const paths[2], uint32_t n_ranks,
                            size_t *lost, spry_error *error)
{
    spry_status status = spry_batch_lines_open(&b->lines, paths[0], error);
    if (status == SPRY_OK) {
        status = spry_batch_output_open(&b->output, paths[1], error);
        if (status == SPRY_OK) {
            pthread_mutex_init(&b->lock, NULL);
            b->lines.skip = is_answered;
            b->lines.user = b;
            status = run(b, flags, n_ranks, lost, error);
            pthread_mutex_destroy(&b->lock);
            spry_batch_output_close(&b->output);
        }
    }
    spry_batch_lines_close(&b->lines);
    return status;
}

/* Another rank: answers the lines that rank 0 hands out. */
static spry_status run_guest(batch *b, spry_server_flags *flags, spry_error *error)
{
    spry_status status = spry_batch_guest_start(&b->guest, error);
    if (status != SPRY_OK)
        return status;
    status = open_server(b, flags, error);
    if (status == SPRY_OK) {
        run_workers(b, flags->parallel);
        spry_server_close(b->server);
    }
    spry_batch_guest_finish(b->guest);
    return status;
}

int spry_cmd_batch(int argc, char **argv)
{
    spry_server_flags flags;
    spry_server_flags_default(&flags);
    flags.settings.strict = true; /* a line has no header that could name what was ignored */
    flags.policy = "throughput";
    flags.queue = WORKERS_MAX;
    spry_option_table tables[1 + SPRY_SERVER_FLAG_TABLES] = {
        {batch_options, SPRY_COUNT(batch_options), &flags},
    };
    spry_server_flags_tables(&tables[1], &flags);
    const char *paths[2] = {NULL, NULL};
    spry_option_list positionals = {paths, 2, 0};
    int code;
    if (!spry_usage_parse(&code, &usage, tables, SPRY_COUNT(tables), &positionals, argc, argv))
        return code;
    if (positionals.count != 2)
        return spry_usage_wrong(&usage, "INPUT and OUTPUT are needed");
    spry_error error;
    if (spry_trace_flags_check(&flags.engine.trace, &error) != SPRY_OK)
        return spry_usage_wrong(&usage, "%s", error.message);
    batch b = {.status = SPRY_OK};
    uint32_t n_ranks, rank = spry_ranks_number(&n_ranks);
    size_t lost = 0;
    if ((rank ? run_guest(&b, &flags, &error) : run_host(&b, &flags, paths, n_ranks, &lost, &error)) != SPRY_OK)
        return spry_complain_error(&error);
    if (rank)
        return SPRY_EXIT_OK;
    if (lost)
        spry_complain("%zu of %u ranks were lost; the others answered their lines", lost, n_ranks);
    spry_complain("%zu answered, %zu of them with an error; %zu skipped as answered before", b.done, b.failed,
                  b.skipped);
    return interrupted ? SPRY_EXIT_INTERRUPTED : b.failed ? SPRY_EXIT_FAILURE : SPRY_EXIT_OK;
}
