/* spry serve: its options; starting and stopping the server. */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cli/commands.h"
#include "cli/terminal.h"
#include "cli/usage.h"
#include "platform/clock.h"
#include "platform/directory.h"
#include "platform/environment.h"
#include "platform/file.h"
#include "platform/child.h"
#include "server/api/apis.h"
#include "server/http/http_server.h"
#include "server/request/prompt.h"
#include "server/server_setup.h"

enum { POLL_MS = 20, LAST_EVENTS_MS = 10000 };

static const spry_usage usage = {
    .command = "serve",
    .arguments = "[MODEL ...] [options]",
    .about =
        "Serves models over HTTP with the interfaces of OpenAI (/v1/chat/completions, /v1/responses, /v1/completions), "
        "Anthropic (/v1/messages), Ollama (/api/chat, /api/generate) and llama-server (/completion, /tokenize); a web "
        "page is at /. "
        "docs/SERVER.md has examples.\n"
        "MODEL is a .gguf file, a Hugging Face folder, or the name of either in the models folder; NAME=MODEL serves "
        "it "
        "under another name. A request may name "
        "any of these, any model in the models folder, and the bundled ones. A request that names none uses the first. "
        "Models are loaded on first use and unloaded when another one needs the memory.\n"
        "Ctrl-C stops the server when unfinished requests are complete; a second one stops it at once.",
    .examples = "spry serve\n"
                "spry serve model.gguf --port 9000\n"
                "spry serve --host 0.0.0.0 --api-key-file keys.txt --tls-cert cert.pem --tls-key key.pem\n"
                "spry serve --models-dir ~/models --pool-bytes 8G --parallel 4",
};

static const char *const manners[] = {"openai", "llama-server", NULL};

#define OPTION(...) SPRY_OPTION(spry_server_flags, __VA_ARGS__)

static const spry_option reach_options[] = {
    OPTION("host", STRING, settings.host, .common = true, .metavar = "ADDRESS",
           .help = "Address to listen on; one that other machines can reach needs keys", .group = "Reach"),
    OPTION("port", U32, settings.port, .common = true, .max = 65535, .help = "Port to listen on; 0: any free port"),
    OPTION("api-key-file", STRING, settings.key_file, .common = true, .metavar = "FILE",
           .help = "File of access keys, one per line, each followed by optional settings (name=, requests=, tokens=, "
                   "concurrent=, admin: it may change models); SIGHUP reads it again; every request must send one of "
                   "them. Cached pages are never shared between keys"),
    OPTION("tls-cert", STRING, settings.tls_cert, .common = true, .metavar = "FILE",
           .help = "Serve HTTPS with this certificate chain, in PEM form; needs --tls-key"),
    OPTION("tls-key", STRING, settings.tls_key, .common = true, .metavar = "FILE",
           .help = "The certificate's unencrypted key, in PEM form"),
    OPTION("insecure", FLAG, settings.insecure, .help = "Allow requests of other machines without keys"),
    OPTION("cors", STRING, settings.cors, .common = true, .metavar = "ORIGIN",
           .help = "Allow web pages of these origins to send requests, with commas between them; localhost: pages of "
                   "this machine, on any port; *: any origin"),
    OPTION("allow-pull", FLAG, settings.allow_pull, .common = true,
           .help = "Allow /api/pull to copy or download models into the models folder, from any file the server can "
                   "read and any address it can reach"),
    OPTION("any-model", FLAG, settings.any_model,
           .help = "Answer requests that name an unknown model with the first one, for clients that send a fixed name"),
    OPTION("strict", FLAG, settings.strict,
           .help = "Refuse requests with fields, blocks or tools that no part of the server knows, instead of naming "
                   "them in the reply's header x-spry-ignored"),
    OPTION("like", CHOICE, settings.like, .choices = manners, .metavar = "SERVER",
           .help = "Whose details to follow where the interfaces of openai and llama-server contradict each other; "
                   "docs/SERVER.md lists them"),
    OPTION("alias", STRING, settings.alias, .metavar = "NAMES",
           .help = "Further names of the first model, with commas between them"),
    OPTION("tags", STRING, settings.tags, .metavar = "WORDS",
           .help = "Words that /v1/models shows with the first model, with commas between them"),
    OPTION("no-autoload", FLAG, settings.no_autoload,
           .help = "Load models only with /models/load: requests for one that is not loaded are refused"),
    OPTION("only-named", FLAG, settings.only_named,
           .help = "Serve only the models of the command line: none of the models folder, and not the bundled ones"),
    OPTION("disable", STRING, settings.disable, .metavar = "PATHS",
           .help = "Paths that are turned off, with commas between them, for example /,/slots,/metrics"),
    OPTION("public-metrics", FLAG, settings.public_metrics, .help = "Allow /metrics without a key"),
    OPTION("audit-log", STRING, settings.audit_log, .metavar = "FILE",
           .help = "Append one line of JSON for every request, without its text, to this file; -: standard error"),
    OPTION("allow-chats", FLAG, settings.allow_chats,
           .help = "Allow /api/chats to list, read, change and delete the chats that the terminal stores; all keys see "
                   "the same chats"),
    OPTION("chats", STRING, settings.chats, .metavar = "FILE",
           .help = "File of these chats; default: spry/chats.db in the user's data folder"),
    OPTION("allow-pin", FLAG, settings.allow_pin, .help = "Allow /models/pin to pin models in memory"),
    OPTION("allow-fetch", STRING, settings.allow_fetch, .metavar = "HOSTS",
           .help =
               "Fetch pictures that requests name by https addresses of these hosts (HOST or HOST:PORT, with commas "
               "between them; http://HOST:PORT: without encryption), for models that see"),
    OPTION("allow-tool", STRING, settings.allow_tool, .metavar = "URLS",
           .help = "Allow the web page and other clients to call these tools of this machine: http:// addresses with "
                   "the host 127.0.0.1, [::1] or localhost, with commas between them"),
    OPTION("mcp", STRING, settings.mcp, .metavar = "FILE", .common = true,
           .help = "Start the MCP servers of this file ({\"mcpServers\": ...}), in sandboxes, and offer their tools to "
                   "the web page and to requests; docs/MCP.md"),
};

static const spry_option limit_options[] = {
    OPTION("parallel", U32, parallel, .common = true, .min = 1, .max = 256,
           .help = "Most answers of one model computed at the same time", .group = "Limits"),
    OPTION("queue", U32, queue, .max = 65536,
           .help = "Most answers of one model waiting in the queue; more are refused with status 503"),
    OPTION("key-requests", U32, settings.rates.requests,
           .help = "Most POST requests a minute of one key; more are refused with status 429; 0: no limit"),
    OPTION("key-tokens", U32, settings.rates.tokens,
           .help = "Most tokens a minute of one key, of prompts and answers; 0: no limit"),
    OPTION("key-concurrent", U32, settings.rates.concurrent,
           .help = "Most POST requests of one key at the same time; 0: no limit"),
    OPTION("max-body", SIZE, settings.max_body, .min = 1024, .max = 1e12, .help = "Limit for the body of a request"),
    OPTION("max-head", SIZE, settings.max_head, .min = 4096, .max = 1 << 20, .help = "Limit for the head of a request"),
    OPTION("request-memory", SIZE, settings.request_memory, .min = 1 << 20, .max = 1e15,
           .help = "Limit for the memory that all requests take to be read and answered, of which one gets at most "
                   "half; further requests get status 503"),
    OPTION("max-connections", U32, settings.connections, .min = 1, .max = 65536, .help = "Most open connections"),
    OPTION(
        "max-per-address", U32, settings.per_address, .max = 65536,
        .help =
            "Most open connections of one address; 0: half of --max-connections, and no limit on a loopback address"),
    OPTION("head-timeout", U32, settings.head_s, .min = 1, .max = 86400, .metavar = "SECONDS",
           .help = "Close a connection that has sent no complete head of a request after this time"),
    OPTION("idle-timeout", U32, settings.idle_s, .min = 1, .max = 86400, .metavar = "SECONDS",
           .help = "Close a connection that is idle for this time; waiting for the model does not count"),
    OPTION("max-tokens", U32, settings.max_tokens,
           .help = "Limit for the tokens of every answer, also where a request asks for more; 0: no limit"),
    OPTION("defaults", STRING, settings.defaults, .metavar = "JSON",
           .help = "Settings of requests that do not set them, as an object with Ollama's names, for example "
                   "{\"temperature\": 0.2, \"num_predict\": 500, \"think\": false}"),
    OPTION("answer-timeout", U32, settings.answer_s, .max = 86400, .metavar = "SECONDS",
           .help = "Limit for the time of a request, with its time in the queue; 0: no limit"),
    OPTION("event-interval", FLOAT, settings.event_s, .min = 0.01, .max = 3600, .metavar = "SECONDS",
           .help = "A stream in which nothing happens for this time, as while a long prompt is computed, gets an event "
                   "with the progress, so that clients do not give up"),
    OPTION("tool-timeout", U32, settings.tool_s, .min = 1, .max = 86400, .metavar = "SECONDS",
           .help = "Limit for the time of a call of a tool (--allow-tool)"),
    OPTION("grace", U32, settings.grace_s, .max = 86400, .metavar = "SECONDS",
           .help = "Time for unfinished requests to complete when the server is told to stop"),
    OPTION("responses-bytes", SIZE, settings.responses_bytes,
           .help = "Limit for the responses of /v1/responses that are kept in memory for previous_response_id"),
    OPTION("responses-ttl", U32, settings.responses_s, .metavar = "SECONDS",
           .help = "Time for which these responses are kept; 0: none is kept"),
};

/* ---- starting and stopping --------------------------------------------------------------------------------------- */

static void end_signals(sigset_t *set)
{
    sigemptyset(set);
    sigaddset(set, SIGINT);
    sigaddset(set, SIGTERM);
}

/* Reads the files of keys and of the certificate again. */
static void reload(spry_server *server, spry_http_server *http)
{
    const spry_serve_settings *s = server->settings;
    spry_error error;
    spry_status status = s->key_file ? spry_access_keys_read(&server->keys, s->key_file, &s->rates, &error) : SPRY_OK;
    if (status == SPRY_OK)
        status = spry_http_server_reload(http, &error);
    if (status == SPRY_OK)
        spry_complain("keys and certificate were read again");
    else
        spry_complain("keys or certificate stay as they are: %s", error.message);
}

/* Waits until all requests are answered, --grace has passed, or a second signal arrives. */
static void wait_for_answers(spry_server *server)
{
    uint64_t until = spry_clock_ns() + (uint64_t)server->settings->grace_s * 1000000000;
    while (atomic_load(&server->open_exchanges) && spry_clock_ns() < until) {
        const struct timespec nap = {.tv_nsec = POLL_MS * 1000000};
        sigset_t pending;
        if (sigpending(&pending) == 0 && (sigismember(&pending, SIGINT) == 1 || sigismember(&pending, SIGTERM) == 1))
            return;
        nanosleep(&nap, NULL);
    }
}

/* Unfinished streams end with an error event, for which they have a moment. */
static void wait_for_last_events(const spry_server *server)
{
    for (int i = 0; i < LAST_EVENTS_MS / POLL_MS && atomic_load(&server->open_exchanges); i++) {
        const struct timespec nap = {.tv_nsec = POLL_MS * 1000000};
        nanosleep(&nap, NULL);
    }
}

/* What to do next, for people at a terminal. A server on all addresses is reached as localhost. */
static void invite(const spry_server *server, const spry_http_address *address)
{
    const spry_serve_settings *settings = server->settings;
    const char *host = address->host;
    bool everywhere = strcmp(host, "0.0.0.0") == 0 || strcmp(host, "::") == 0 || strcmp(host, "[::]") == 0;
    spry_complain("%s answers; open %s://%s:%u in your browser, Ctrl-C ends the server",
                  spry_server_first_model(server), settings->tls_cert ? "https" : "http",
                  everywhere ? "localhost" : host, address->port);
}

static spry_status run(spry_server *server, spry_error *error)
{
    sigset_t signals;
    int which;
    spry_http_address address;
    spry_http_server *http;
    end_signals(&signals);
    sigaddset(&signals, SIGHUP);
    const spry_serve_settings *settings = server->settings;
    bool terminal = isatty(STDERR_FILENO);
    bool logged = settings->verbose || (settings->audit_log && strcmp(settings->audit_log, "-") == 0);
    server->shows_requests = terminal && !logged;
    spry_status status = spry_http_server_start(&http, server, &address, error);
    if (status != SPRY_OK)
        return status;
    spry_complain("listening on %s://%s:%u", settings->tls_cert ? "https" : "http", address.host, address.port);
    if (terminal)
        invite(server, &address);
    while (sigwait(&signals, &which) == 0 && which == SIGHUP)
        reload(server, http);
    end_signals(&signals);
    atomic_store(&server->ending, true);
    spry_http_server_quiesce(http);
    wait_for_answers(server);
    atomic_store(&server->cutting, true);
    wait_for_last_events(server);
    spry_http_server_stop(http);
    return SPRY_OK;
}

/* ---- the sandbox ------------------------------------------------------------------------------------------------- */

enum { PLACES_MAX = 16, PLACE_BYTES = 4096 };

/* Where the server writes. */
typedef struct places {
    char text[PLACES_MAX][PLACE_BYTES];
    const char *paths[PLACES_MAX + 1];
    size_t count;
} places;

static void add_place(places *p, const char *path)
{
    if (!path || !*path || strlen(path) >= PLACE_BYTES || p->count == PLACES_MAX)
        return;
    snprintf(p->text[p->count], PLACE_BYTES, "%s", path);
    p->paths[p->count] = p->text[p->count];
    p->count++;
}

/* A folder is made now: later it could not be. Where that fails, the part of the server that needs it says so. */
static void add_folder(places *p, const char *path)
{
    spry_directory folder;
    if (!path || !*path || spry_directory_open(&folder, path, NULL) != SPRY_OK)
        return;
    spry_directory_close(&folder);
    add_place(p, path);
}

static void add_folder_of(places *p, const char *file)
{
    char path[PLACE_BYTES];
    const char *slash = file ? strrchr(file, '/') : NULL;
    snprintf(path, sizeof path, "%.*s", slash ? (int)(slash - file + 1) : 1, slash ? file : ".");
    if (file)
        add_place(p, path);
}

static void add_user_folder(places *p, const char *kind)
{
    spry_buffer path;
    spry_buffer_init(&path, PLACE_BYTES);
    spry_path_user_data(&path, kind);
    add_folder(p, spry_buffer_view(&path).data);
    spry_buffer_deinit(&path);
}

static void add_file(places *p, const char *path, unsigned mode)
{
    if (path && strcmp(path, "-") != 0 && spry_path_create(path, mode))
        add_place(p, path);
}

/* Before there are threads, which each have rights of their own. */
static void confine(const spry_server_flags *flags)
{
    const spry_serve_settings *s = &flags->settings;
    static places p;
    spry_buffer own;
    bool any = s->mcp || flags->speech.recogniser.command || flags->speech.synthesiser.command;
    if (!spry_sandbox_is_on())
        return;
    /* NVIDIA's driver makes its devices on first use, by a program that needs the rights of root. */
    if (spry_path_exists("/proc/driver/nvidia") && !spry_path_exists("/dev/nvidia-uvm") &&
        strcmp(flags->engine.options.device, "cpu") != 0) {
        spry_complain("the NVIDIA driver has no devices yet: this server runs without a sandbox");
        return;
    }
    spry_buffer_init(&own, PLACE_BYTES);
    if (spry_environment_hub_folder(&own, SPRY_OWN_FOLDER))
        add_folder(&p, spry_buffer_view(&own).data);
    spry_buffer_deinit(&own);
    add_folder(&p, flags->engine.options.cache_dir);
    if (s->allow_pull && flags->model.models_folder)
        add_folder(&p, flags->model.models_folder);
    else if (s->allow_pull)
        add_user_folder(&p, "models");
    if (s->allow_chats && s->chats)
        add_folder_of(&p, s->chats);
    else if (s->allow_chats)
        add_user_folder(&p, "");
    add_file(&p, s->audit_log, 0600);
    add_file(&p, flags->engine.trace.file, 0644);
    add_place(&p, "/dev");
    add_place(&p, "/proc/self");
    const char *temporary = spry_environment_setting("TMPDIR");
    add_place(&p, temporary ? temporary : "/tmp");
    if (!temporary)
        add_place(&p, "/var/tmp");
    /* Commands of the operator may write anywhere, and have no more rights than the server. */
    spry_sandbox_enter_server(any ? NULL : p.paths);
}

int spry_cmd_serve(int argc, char **argv)
{
    spry_server_flags flags;
    spry_server_flags_default(&flags);
    spry_option_table tables[3 + SPRY_SERVER_FLAG_TABLES] = {
        {reach_options, SPRY_COUNT(reach_options), &flags},
        {limit_options, SPRY_COUNT(limit_options), &flags},
        spry_speech_flags_table(&flags.speech),
    };
    spry_server_flags_tables(&tables[3], &flags);
    const char *names[SPRY_SERVER_MODELS_MAX];
    spry_option_list named = {names, SPRY_SERVER_MODELS_MAX, 0};
    int code;
    if (!spry_usage_parse(&code, &usage, tables, SPRY_COUNT(tables), &named, argc, argv))
        return code;
    spry_error error;
    if (spry_trace_flags_check(&flags.engine.trace, &error) != SPRY_OK ||
        spry_tools_check(flags.settings.allow_tool, &error) != SPRY_OK ||
        spry_fetch_check(flags.settings.allow_fetch, &error) != SPRY_OK)
        return spry_usage_wrong(&usage, "%s", error.message);
    /* Threads inherit the mask, so only this thread receives these signals. */
    sigset_t signals;
    end_signals(&signals);
    sigaddset(&signals, SIGHUP);
    pthread_sigmask(SIG_BLOCK, &signals, NULL);
    confine(&flags);
    spry_server *server;
    spry_status status = spry_server_open(&server, &flags, &named, &error);
    if (status == SPRY_OK) {
        status = run(server, &error);
        spry_server_close(server);
    }
    return status == SPRY_OK ? SPRY_EXIT_OK : spry_complain_error(&error);
}
