/* spry batch: requests of OpenAI's batch format from a file, answered by the server's handlers, many at a time. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/json.h"
#include "cli/commands.h"
#include "cli/terminal.h"
#include "cli/usage.h"
#include "platform/background.h"
#include "platform/clock.h"
#include "platform/file.h"
#include "server/batch/batch_output.h"
#include "server/http/exchange.h"
#include "server/http/http_route.h"
#include "server/server_setup.h"

enum { WORKERS_MAX = 512, ID_BYTES = 32 };

static const spry_usage usage = {
    .command = "batch",
    .arguments = "INPUT OUTPUT [options]",
    .about = "Answers every line of INPUT, a request of OpenAI's batch format ({\"custom_id\", \"method\", \"url\", "
             "\"body\"} with url /v1/chat/completions or /v1/completions), and appends one line per answer to OUTPUT, "
             "in the order in which they complete.\n"
             "A line whose custom_id is already in OUTPUT is skipped, so an interrupted batch continues where it "
             "stopped. A line without a custom_id is named by its number: line-7.\n"
             "Ctrl-C stops the batch when unfinished answers are complete. Exit codes: 0 all answered, 1 some failed.",
    .examples = "spry batch questions.jsonl answers.jsonl\n"
                "spry batch questions.jsonl answers.jsonl --parallel 16 --models-dir ~/models",
};

static const spry_option batch_options[] = {
    {.name = "parallel",
     .kind = SPRY_OPTION_U32,
     .offset = offsetof(spry_server_flags, parallel),
     .min = 1,
     .max = 256,
     .help = "Most answers computed at the same time",
     .group = "Batch"},
};

typedef struct batch {
    spry_server *server;
    spry_mapping input;
    spry_batch_output output;
    pthread_mutex_t lock; /* of all members below */
    size_t at, line;      /* position in the input: byte and line */
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

/* The next line that is not blank; false at the end, after a failure, or when interrupted. */
static bool next_line(batch *b, spry_view *text, size_t *number)
{
    bool found = false;
    pthread_mutex_lock(&b->lock);
    while (!found && b->status == SPRY_OK && !interrupted && b->at < b->input.size) {
        const char *begin = (const char *)b->input.data + b->at;
        const char *end = memchr(begin, '\n', b->input.size - b->at);
        text->data = begin;
        text->size = end ? (size_t)(end - begin) : b->input.size - b->at;
        b->at += text->size + (end != NULL);
        *number = ++b->line;
        for (size_t i = 0; i < text->size && !found; i++)
            found = !memchr(" \t\r", begin[i], 3);
    }
    pthread_mutex_unlock(&b->lock);
    return found;
}

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
    char *text = json_dumps(body, JSON_COMPACT);
    if (text && spry_buffer_text(&x.body, text))
        x.route->handle(&x);
    free(text);
    spry_buffer_deinit(&x.body);
    *status = x.status;
    return x.kept;
}

static json_t *answer_line(batch *b, const json_t *request, const char *id, size_t number, bool *failed)
{
    char name[ID_BYTES];
    unsigned status = 0;
    const char *url = json_string_value(json_object_get(request, "url"));
    json_t *body = json_object_get(request, "body"), *answer = NULL;
    snprintf(name, sizeof name, "batch_req_%zu", number);
    if (is_allowed(url) && json_is_object(body))
        answer = call_handler(b, url, body, &status);
    *failed = status != MHD_HTTP_OK;
    if (answer)
        return json_pack("{s:s, s:s, s:{s:i, s:s, s:o}, s:n}", "id", name, "custom_id", id, "response", "status_code",
                         (int)status, "request_id", name, "body", answer, "error");
    return json_pack("{s:s, s:s, s:n, s:{s:s, s:s}}", "id", name, "custom_id", id, "response", "error", "code",
                     "invalid_request", "message",
                     !request           ? "the line is not a JSON object"
                     : !is_allowed(url) ? "url must be /v1/chat/completions or /v1/completions"
                                        : "body must be an object");
}

static void finish_line(batch *b, json_t *answer, bool failed)
{
    spry_error error;
    pthread_mutex_lock(&b->lock);
    spry_status status = spry_batch_output_add(&b->output, answer, &error);
    if (status != SPRY_OK && b->status == SPRY_OK) {
        b->status = status;
        b->error = error;
    }
    b->done++;
    b->failed += failed;
    spry_progress_update(&b->progress, b->done + b->skipped, b->total);
    pthread_mutex_unlock(&b->lock);
}

static void *work(void *argument)
{
    batch *b = argument;
    spry_view text;
    size_t number;
    while (next_line(b, &text, &number)) {
        char own[ID_BYTES];
        json_t *request = NULL;
        bool failed;
        snprintf(own, sizeof own, "line-%zu", number);
        (void)spry_json_object(&request, text, NULL);
        const char *given = json_string_value(json_object_get(request, "custom_id")), *id = given ? given : own;
        if (spry_batch_output_has(&b->output, id)) {
            pthread_mutex_lock(&b->lock);
            b->skipped++;
            pthread_mutex_unlock(&b->lock);
        } else {
            json_t *answer = answer_line(b, request, id, number, &failed);
            finish_line(b, answer, failed);
        }
        json_decref(request);
    }
    return NULL;
}

/* ---- all lines --------------------------------------------------------------------------------------------------- */

static void count_lines(batch *b)
{
    for (size_t i = 0; i < b->input.size; i++)
        b->total += b->input.data[i] == '\n' || i + 1 == b->input.size;
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

static spry_status run(batch *b, spry_server_flags *flags, const char *const paths[2], spry_error *error)
{
    const spry_option_list none = {0};
    spry_status status = spry_mapping_open(&b->input, paths[0], error);
    if (status != SPRY_OK)
        return status;
    status = spry_batch_output_open(&b->output, paths[1], error);
    if (status == SPRY_OK) {
        status = spry_server_open(&b->server, flags, &none, error);
        if (status == SPRY_OK) {
            struct sigaction action = {.sa_handler = on_interrupt, .sa_flags = (int)SA_RESETHAND};
            sigaction(SIGINT, &action, NULL);
            count_lines(b);
            pthread_mutex_init(&b->lock, NULL);
            spry_progress_begin(&b->progress, "answering");
            run_workers(b, flags->parallel);
            spry_progress_end(&b->progress);
            pthread_mutex_destroy(&b->lock);
            spry_server_close(b->server);
            status = b->status;
            *error = b->error;
        }
        spry_batch_output_close(&b->output);
    }
    spry_mapping_close(&b->input);
    return status;
}

int spry_cmd_batch(int argc, char **argv)
{
    spry_server_flags flags;
    spry_server_flags_default(&flags);
    flags.policy = "offline";
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
    if (run(&b, &flags, paths, &error) != SPRY_OK)
        return spry_complain_error(&error);
    spry_complain("%zu answered, %zu of them with an error; %zu skipped as answered before", b.done, b.failed,
                  b.skipped);
    return interrupted ? SPRY_EXIT_INTERRUPTED : b.failed ? SPRY_EXIT_FAILURE : SPRY_EXIT_OK;
}
