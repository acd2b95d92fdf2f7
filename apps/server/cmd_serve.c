/* spry serve: its options, and the time from the first connection to the last. */
#include <signal.h>
#include <time.h>

#include "cli/commands.h"
#include "cli/terminal.h"
#include "cli/usage.h"
#include "platform/clock.h"
#include "server/http/http_server.h"
#include "server/server_setup.h"

enum { POLL_MS = 20 };

static const spry_usage usage = {
    .command = "serve",
    .arguments = "[MODEL ...] [options]",
    .about =
        "Answers requests over HTTP, as OpenAI's interface has them (/v1/chat/completions, /v1/completions, "
        "/v1/models), as Ollama's has them (/api/chat, /api/generate) and as llama-server's has them (/completion, "
        "/tokenize); a page for people is at /. docs/SERVER.md has examples.\n"
        "MODEL is a .gguf file, a Hugging Face folder, or the name of either in the models folder; a request may name "
        "any of these, any model in the models folder, and the bundled ones. A request that names none gets the first. "
        "Models are loaded when they are first asked for, and let go when they would not fit.\n"
        "Ctrl-C ends the server when the answers under way are done; a second one ends it at once.",
    .examples = "spry serve\n"
                "spry serve model.gguf --port 9000\n"
                "spry serve --host 0.0.0.0 --api-key-file keys.txt --tls-cert cert.pem --tls-key key.pem\n"
                "spry serve --models-dir ~/models --pool-bytes 8G --parallel 4",
};

#define FIELD(name) offsetof(spry_server_flags, name)

static const spry_option reach_options[] = {
    {.name = "host",
     .kind = SPRY_OPTION_STRING,
     .offset = FIELD(settings.host),
     .metavar = "ADDRESS",
     .help = "Where to listen; anything but this machine itself needs keys",
     .group = "Reach"},
    {.name = "port",
     .kind = SPRY_OPTION_U32,
     .offset = FIELD(settings.port),
     .max = 65535,
     .help = "Port to listen on; 0 takes a free one",
     .group = "Reach"},
    {.name = "api-key-file",
     .kind = SPRY_OPTION_STRING,
     .offset = FIELD(settings.key_file),
     .metavar = "FILE",
     .help =
         "Keys, one a line: only who sends one of them is answered. What was computed for one key is never used for "
         "another",
     .group = "Reach"},
    {.name = "tls-cert",
     .kind = SPRY_OPTION_STRING,
     .offset = FIELD(settings.tls_cert),
     .metavar = "FILE",
     .help = "Answer HTTPS with this certificate and those above it, in PEM form; with --tls-key",
     .group = "Reach"},
    {.name = "tls-key",
     .kind = SPRY_OPTION_STRING,
     .offset = FIELD(settings.tls_key),
     .metavar = "FILE",
     .help = "The certificate's key, in PEM form, without a password",
     .group = "Reach"},
    {.name = "insecure",
     .kind = SPRY_OPTION_FLAG,
     .offset = FIELD(settings.insecure),
     .help = "Let other machines ask without a key",
     .group = "Reach"},
    {.name = "cors",
     .kind = SPRY_OPTION_STRING,
     .offset = FIELD(settings.cors),
     .metavar = "ORIGIN",
     .help = "Let pages of this origin ask from a browser; * is every page",
     .group = "Reach"},
    {.name = "allow-pull",
     .kind = SPRY_OPTION_FLAG,
     .offset = FIELD(settings.allow_pull),
     .help = "Let /api/pull bring models into the models folder, from files this server can read and from addresses it "
             "can reach",
     .group = "Reach"},
    {.name = "allow-pin",
     .kind = SPRY_OPTION_FLAG,
     .offset = FIELD(settings.allow_pin),
     .help = "Let /models/pin say which models stay in memory, whoever else needs it",
     .group = "Reach"},
};

static const spry_option limit_options[] = {
    {.name = "parallel",
     .kind = SPRY_OPTION_U32,
     .offset = FIELD(parallel),
     .min = 1,
     .max = 256,
     .help = "Answers of one model at once",
     .group = "Limits"},
    {.name = "queue",
     .kind = SPRY_OPTION_U32,
     .offset = FIELD(queue),
     .max = 65536,
     .help = "Requests of one model that may wait; more are told to come back later",
     .group = "Limits"},
    {.name = "max-body",
     .kind = SPRY_OPTION_SIZE,
     .offset = FIELD(settings.max_body),
     .min = 1024,
     .max = 1e12,
     .help = "Largest request",
     .group = "Limits"},
    {.name = "max-head",
     .kind = SPRY_OPTION_SIZE,
     .offset = FIELD(settings.max_head),
     .min = 4096,
     .max = 1 << 20,
     .help = "Largest head of a request",
     .group = "Limits"},
    {.name = "max-connections",
     .kind = SPRY_OPTION_U32,
     .offset = FIELD(settings.connections),
     .min = 1,
     .max = 65536,
     .help = "Connections at once",
     .group = "Limits"},
    {.name = "idle-timeout",
     .kind = SPRY_OPTION_U32,
     .offset = FIELD(settings.idle_s),
     .min = 1,
     .max = 86400,
     .metavar = "SECONDS",
     .help = "Close a connection on which nothing moves for so long; waiting for the model does not count",
     .group = "Limits"},
    {.name = "answer-timeout",
     .kind = SPRY_OPTION_U32,
     .offset = FIELD(settings.answer_s),
     .max = 86400,
     .metavar = "SECONDS",
     .help = "Longest an answer may take, waiting included; 0 is as long as it takes",
     .group = "Limits"},
    {.name = "grace",
     .kind = SPRY_OPTION_U32,
     .offset = FIELD(settings.grace_s),
     .max = 86400,
     .metavar = "SECONDS",
     .help = "When told to end, wait so long for answers under way",
     .group = "Limits"},
};

/* ---- from beginning to end --------------------------------------------------------------------------------------- */

static void end_signals(sigset_t *set)
{
    sigemptyset(set);
    sigaddset(set, SIGINT);
    sigaddset(set, SIGTERM);
}

/* Answers under way may end by themselves, until time is up or a second signal comes. */
static void wait_for_answers(spry_server *server, const sigset_t *signals)
{
    uint64_t until = spry_clock_ns() + (uint64_t)server->settings->grace_s * 1000000000;
    while (atomic_load(&server->open_exchanges) && spry_clock_ns() < until) {
        const struct timespec nap = {.tv_nsec = POLL_MS * 1000000};
        if (sigtimedwait(signals, NULL, &nap) > 0)
            return;
    }
}

static spry_status run(spry_server *server, spry_error *error)
{
    sigset_t signals;
    int which;
    uint16_t port;
    spry_http_server *http;
    end_signals(&signals);
    spry_status status = spry_http_server_start(&http, server, &port, error);
    if (status != SPRY_OK)
        return status;
    spry_complain("listening on %s://%s:%u", server->settings->tls_cert ? "https" : "http", server->settings->host,
                  port);
    sigwait(&signals, &which);
    atomic_store(&server->ending, true);
    spry_http_server_quiesce(http);
    wait_for_answers(server, &signals);
    spry_http_server_stop(http);
    return SPRY_OK;
}

int spry_cmd_serve(int argc, char **argv)
{
    spry_server_flags flags;
    spry_server_flags_default(&flags);
    spry_option_table tables[2 + SPRY_SERVER_FLAG_TABLES] = {
        {reach_options, SPRY_COUNT(reach_options), &flags},
        {limit_options, SPRY_COUNT(limit_options), &flags},
    };
    spry_server_flags_tables(&tables[2], &flags);
    const char *names[SPRY_SERVER_MODELS_MAX];
    spry_option_list named = {names, SPRY_SERVER_MODELS_MAX, 0};
    int code;
    if (!spry_usage_parse(&code, &usage, tables, SPRY_COUNT(tables), &named, argc, argv))
        return code;
    spry_error error;
    if (spry_trace_flags_check(&flags.engine.trace, &error) != SPRY_OK)
        return spry_usage_wrong(&usage, "%s", error.message);
    /* Every thread that is made from here on leaves these to this one. */
    sigset_t signals;
    end_signals(&signals);
    pthread_sigmask(SIG_BLOCK, &signals, NULL);
    spry_server *server;
    spry_status status = spry_server_open(&server, &flags, &named, &error);
    if (status == SPRY_OK) {
        status = run(server, &error);
        spry_server_close(server);
    }
    return status == SPRY_OK ? SPRY_EXIT_OK : spry_complain_error(&error);
}
