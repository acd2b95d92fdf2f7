/* The pool serves the models of the command line, of the models folder, and the bundled ones. */
#include "server/server_setup.h"
#include "server/request/agents.h"
#include "server/request/completion.h"

#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "cli/model_source.h"
#include "cli/terminal.h"
#include "mcp/mcp.h"
#include "platform/clock.h"
#include "platform/directory.h"
#include "platform/file.h"
#include "platform/memory.h"
#include "server/models/derived_model.h"

enum { PATH_BYTES = 4096, NAME_BYTES_MAX = 127 };

static const char *const policies[] = {"auto", "interactive", "offline", "throughput", NULL};

#define OPTION(...) SPRY_OPTION(spry_server_flags, __VA_ARGS__)

static const char *const agent_caches[] = {"exact", "off", NULL};

static const spry_option work_options[] = {
    OPTION("pool-bytes", SIZE, model_bytes, .common = true,
           .help = "Limit for the memory of all loaded models; 0: three quarters of the machine's memory",
           .group = "Models"),
    OPTION(
        "models-max", U32, models_max, .metavar = "N",
        .help =
            "Most models loaded at the same time; the one not used for longest is unloaded for another; 0: no limit"),
    OPTION("keep-alive", U32, keep_alive_s, .common = true, .metavar = "SECONDS",
           .help = "Unload a model that was not used for this time; 0: never"),
    OPTION("answer-spans", FLAG, settings.answer_spans,
           .help = "Compute every answer as a fragment, too, while nothing else is to be done, so that prompts that "
                   "contain it as one find it; a request's answer_span decides otherwise"),
    OPTION(
        "agent-cache", CHOICE, settings.agent_cache, .choices = agent_caches, .metavar = "HOW",
        .help =
            "exact: in prompts of known coding agents, folder, date and whatever else changes come after instructions "
            "and tools, so that a new session finds those in the cache; off: prompts keep the order of the request"),
    OPTION("slide", FLAG, settings.slide,
           .help = "Drop the oldest messages or tokens when a context is full, instead of an error or the answer's "
                   "end; a request's context_overflow decides otherwise"),
    OPTION("keep", U32, settings.keep, .metavar = "N", .help = "Tokens at the beginning that sliding keeps"),
    OPTION("draft", STRING, draft, .metavar = "DRAFTER",
           .help = "Drafter of the first model: none, lookup, a smaller MODEL with the same vocabulary, or auto: each "
                   "model's own head, where its checkpoint has one, else lookup"),
    OPTION("draft-mode", CHOICE, draft_mode, .choices = spry_draft_modes, .metavar = "MODE",
           .help = "fast: draft as long as that is expected to pay; precise: draft only tokens that the drafter is "
                   "sure of, so that hardly one is refused"),
    OPTION("draft-most", U32, settings.draft_most, .max = SPRY_DRAFT_MOST,
           .help = "Maximum number of drafted tokens per step; 0: chosen automatically"),
    OPTION("policy", CHOICE, policy, .choices = policies, .metavar = "POLICY",
           .help = "How many requests are computed together: auto: all, up to --parallel, and as throughput when more "
                   "wait; interactive: one, and more while steps become less than 10 % slower; offline: 2, 4, 8, ... "
                   "while each gives 10 % more tokens a second for less than 10 % slower steps; throughput: what gives "
                   "the most tokens a second"),
    OPTION("max-stall", U32, stall_ms, .metavar = "MS",
           .help = "Longest time a prefill step may delay answers being decoded; 0: three quarters of a decode step, "
                   "at most 50"),
};

void spry_server_flags_default(spry_server_flags *flags)
{
    spry_jobs_options sched;
    spry_jobs_options_default(&sched);
    *flags = (spry_server_flags){.settings = {.host = "127.0.0.1",
                                              .port = 8080,
                                              .like = "openai",
                                              .agent_cache = agent_caches[0],
                                              .max_body = 32 << 20,
                                              .max_head = 32 << 10,
                                              .request_memory = 1 << 30,
                                              .connections = 512,
                                              .idle_s = 60,
                                              .head_s = 10,
                                              .grace_s = 10,
                                              .tool_s = 30,
                                              .event_s = 10,
                                              .responses_bytes = 64 << 20,
                                              .responses_s = 3600},
                                 .parallel = 8,
                                 .queue = sched.max_waiting,
                                 .policy = "auto",
                                 .draft_mode = spry_draft_modes[0],
                                 .draft = "auto"};
    spry_engine_flags_default(&flags->engine);
    spry_speech_flags_default(&flags->speech);
}

void spry_server_flags_tables(spry_option_table tables[SPRY_SERVER_FLAG_TABLES], spry_server_flags *flags)
{
    tables[0] = (spry_option_table){work_options, SPRY_COUNT(work_options), flags};
    tables[1] = spry_model_flags_table(&flags->model);
    tables[2] = spry_engine_flags_table(&flags->engine);
    tables[3] = spry_trace_flags_table(&flags->engine.trace);
    tables[4] = spry_reuse_flags_table(&flags->engine);
}

/* ---- models ------------------------------------------------------------------------------------------------------ */

struct spry_server_models {
    spry_model_source sources[SPRY_SERVER_MODELS_MAX];
    spry_pool_entry entries[SPRY_SERVER_MODELS_MAX];
    size_t count;
    spry_buffer folder;
};

typedef struct spry_server_models model_list;

static size_t find_entry(const model_list *list, const char *name)
{
    for (size_t i = 0; i < list->count; i++)
        if (strcmp(list->entries[i].name, name) == 0)
            return i;
    return list->count;
}

/* NAME of "NAME=MODEL", under which the model is served; size 0: it has no other name. A file may have that form. */
static spry_view given_name(const char *model)
{
    const char *equal = strchr(model, '=');
    return equal && !spry_path_exists(model) ? (spry_view){model, (size_t)(equal - model)} : (spry_view){model, 0};
}

static spry_status rename_source(spry_model_source *source, spry_view name, spry_error *error)
{
    char *given = name.size <= NAME_BYTES_MAX ? strndup(name.data, name.size) : NULL;
    if (!given)
        return spry_fail(error, SPRY_ERR_INPUT, "%.*s: the name of a model has at most %d bytes", SPRY_VIEW_ARG(name),
                         NAME_BYTES_MAX);
    free(source->name);
    source->name = given;
    source->alias = NULL;
    return SPRY_OK;
}

/* *index is the entry of the model; a name that is already in the list is not added again. */
static spry_status add_entry(model_list *list, size_t *index, const char *model, const char *folder, spry_error *error)
{
    spry_model_source *source = &list->sources[list->count];
    spry_view name = given_name(model);
    if (list->count == SPRY_SERVER_MODELS_MAX)
        return spry_fail(error, SPRY_ERR_INPUT, "more than %d models", SPRY_SERVER_MODELS_MAX);
    spry_status status = spry_model_source_find(source, model + (name.size ? name.size + 1 : 0), folder, error);
    if (status == SPRY_OK && name.size && (status = rename_source(source, name, error)))
        spry_model_source_deinit(source);
    if (status != SPRY_OK)
        return status;
    *index = find_entry(list, source->name);
    if (*index < list->count) {
        spry_model_source_deinit(source);
        return SPRY_OK;
    }
    list->entries[list->count++] = (spry_pool_entry){
        .name = source->name, .alias = source->alias, .path = source->path, .data = source->data, .size = source->size};
    return SPRY_OK;
}

static bool is_model(const char *draft)
{
    return strcmp(draft, "none") != 0 && strcmp(draft, "lookup") != 0 && strcmp(draft, "auto") != 0;
}

static spry_status add_drafter(model_list *list, const spry_server_flags *flags, spry_error *error)
{
    size_t drafter = 0, target = 0;
    spry_status status = SPRY_OK;
    if (is_model(flags->draft)) {
        status = add_entry(list, &drafter, flags->draft, flags->model.models_folder, error);
    } else if (strcmp(flags->draft, "auto") == 0) {
        for (; target < list->count && list->entries[target].data != spry_bundled_tales_begin; target++) {
        }
        drafter = find_entry(list, SPRY_BUNDLED_DRAFTER);
    } else {
        return SPRY_OK;
    }
    if (status == SPRY_OK && target < list->count && drafter < list->count && drafter != target)
        list->entries[target].drafter = list->entries[drafter].name;
    return status;
}

static spry_status list_models(model_list *list, const spry_server_flags *flags, const spry_option_list *named,
                               spry_error *error)
{
    static const char *const bundled[] = {SPRY_BUNDLED_MODEL, SPRY_BUNDLED_DRAFTER};
    size_t index;
    spry_status status = SPRY_OK;
    for (size_t i = 0; i < named->count && status == SPRY_OK; i++)
        status = add_entry(list, &index, named->items[i], flags->model.models_folder, error);
    bool only = flags->settings.only_named && named->count;
    for (size_t i = 0; i < SPRY_COUNT(bundled) && status == SPRY_OK && !only; i++)
        status = add_entry(list, &index, bundled[i], flags->model.models_folder, error);
    if (status == SPRY_OK)
        status = add_drafter(list, flags, error);
    if (only)
        return status;
    if (flags->model.models_folder)
        spry_buffer_text(&list->folder, flags->model.models_folder);
    else
        spry_path_user_data(&list->folder, "models");
    return status;
}

static void deinit_models(model_list *list)
{
    for (size_t i = 0; i < list->count; i++)
        spry_model_source_deinit(&list->sources[i]);
    spry_buffer_deinit(&list->folder);
}

static void log_line(void *user, int level, const char *sentence)
{
    const spry_server_flags *flags = user;
    if (flags->engine.verbose || level >= SPRY_LOG_WARN)
        spry_complain("%s", sentence);
}

static void log_mcp(void *user, const char *sentence)
{
    (void)user;
    spry_complain("%s", sentence);
}

static spry_status open_pool(spry_server *server, const model_list *models, spry_server_flags *flags, spry_error *error)
{
    static const spry_policy by_name[] = {SPRY_POLICY_AUTO, SPRY_POLICY_INTERACTIVE, SPRY_POLICY_OFFLINE,
                                          SPRY_POLICY_THROUGHPUT};
    spry_engine_options engine = spry_engine_flags_options(&flags->engine);
    spry_jobs_options jobs;
    spry_pool_options options;
    spry_pool_options_default(&options);
    spry_jobs_options_default(&jobs);
    options.entries = models->entries;
    options.n_entries = models->count;
    options.max_bytes = server->pool_bytes;
    options.max_models = flags->models_max;
    options.keep_alive_s = flags->keep_alive_s ? (double)flags->keep_alive_s : -1;
    options.engine = &engine;
    options.jobs = &jobs;
    if (flags->settings.allow_pull && models->folder.size) {
        spry_directory made;
        spry_status status = spry_directory_open(&made, models->folder.data, error);
        if (status != SPRY_OK)
            return status;
        spry_directory_close(&made);
    }
    bool there = models->folder.size && spry_path_is_folder(models->folder.data);
    server->models_folder = options.models_dir = there ? models->folder.data : NULL;
    engine.sessions = flags->parallel;
    engine.draft_head = strcmp(flags->draft, "auto") == 0 ? "auto" : NULL;
    jobs.max_running = flags->parallel;
    jobs.max_waiting = flags->queue;
    if (flags->stall_ms) {
        jobs.max_stall_ms = flags->stall_ms;
        jobs.gentle = false;
    }
    for (size_t i = 0; policies[i]; i++)
        if (strcmp(policies[i], flags->policy) == 0)
            jobs.policy = by_name[i];
    return spry_model_pool_create(&server->pool, &options, error);
}

/* ---- the server -------------------------------------------------------------------------------------------------- */

/* Loads the first model before the first request, so that errors are reported at the start. */
static spry_status warm_up(spry_server *server, spry_error *error)
{
    const spry_pooled *model;
    spry_status status = spry_model_pool_acquire(server->pool, &model, NULL, error);
    if (status == SPRY_OK)
        spry_model_pool_release(server->pool, model);
    return status;
}

spry_status spry_server_open(spry_server **out, spry_server_flags *flags, const spry_option_list *named,
                             spry_error *error)
{
    spry_server *server = calloc(1, sizeof *server);
    model_list *models = calloc(1, sizeof *models);
    if (!server || !models) {
        free(server);
        free(models);
        return spry_fail_memory(error, "the server", sizeof *server);
    }
    flags->settings.verbose = flags->engine.verbose;
    flags->settings.speculation = strcmp(flags->draft, "none") == 0     ? SPRY_DRAFT_NONE
                                  : strcmp(flags->draft, "lookup") == 0 ? SPRY_DRAFT_LOOKUP
                                                                        : SPRY_DRAFT_AUTO;
    flags->settings.draft_precise = strcmp(flags->draft_mode, "precise") == 0;
    server->settings = &flags->settings;
    server->models = models;
    server->audit.file = -1;
    server->started_ns = spry_clock_ns();
    server->pool_bytes = flags->model_bytes ? flags->model_bytes : spry_memory_total() / 4 * 3;
    server->slots = flags->parallel;
    server->models_max = flags->models_max;
    server->answers_max = flags->parallel + flags->queue;
    spry_json_watch(spry_memory_size);
    spry_registry_init(&server->registry);
    spry_response_store_init(&server->responses, flags->settings.responses_bytes, flags->settings.responses_s);
    spry_kept_streams_init(&server->streams);
    server->descriptions = json_object();
    pthread_mutex_init(&server->descriptions_lock, NULL);
    spry_buffer_init(&models->folder, PATH_BYTES);
    spry_machine_watch_init(&server->machine);
    spry_status status = spry_access_keys_init(&server->keys, flags->settings.key_file, &flags->settings.rates, error);
    if (status == SPRY_OK && !spry_key_limits_init(&server->limits, server->keys.count ? SPRY_ACCESS_KEYS_MAX : 1))
        status = spry_fail_memory(error, "limits of keys", SPRY_ACCESS_KEYS_MAX * sizeof *server->limits.use);
    if (status == SPRY_OK)
        status = spry_audit_log_open(&server->audit, flags->settings.audit_log, error);
    if (status == SPRY_OK && flags->settings.defaults)
        status = spry_derived_defaults(&server->defaults, flags->settings.defaults, error);
    if (status == SPRY_OK && strcmp(flags->settings.agent_cache, "off") != 0 && !(server->agents = spry_agents_open()))
        status = spry_fail_memory(error, "the table of agents", 0);
    if (status == SPRY_OK)
        status = spry_trace_file_open(&server->trace, &flags->engine.trace, error);
    if (status == SPRY_OK)
        status = spry_energy_open(&server->meter, "", error);
    flags->engine.options.trace = server->trace;
    flags->engine.options.log = log_line;
    flags->engine.options.log_user = flags;
    flags->speech.recogniser.engine = &flags->engine.options;
    if (status == SPRY_OK)
        status = spry_speech_service_create(&server->speech, &flags->speech, error);
    if (status == SPRY_OK)
        status = list_models(models, flags, named, error);
    if (status == SPRY_OK)
        status = open_pool(server, models, flags, error);
    if (status == SPRY_OK)
        status = spry_answer_spans_create(&server->spans, server->pool, error);
    if (status == SPRY_OK)
        status = flags->settings.no_autoload ? SPRY_OK : warm_up(server, error);
    if (status == SPRY_OK && flags->settings.mcp)
        status = spry_mcp_open(&server->mcp, flags->settings.mcp, log_mcp, NULL, error);
    if (status == SPRY_OK)
        *out = server;
    else
        spry_server_close(server);
    return status;
}

const char *spry_server_first_model(const spry_server *server)
{
    return server->models->count ? server->models->entries[0].name : "";
}

void spry_server_model_file(spry_model_file *file, const spry_server *server, const spry_pool_info *info)
{
    *file = (spry_model_file){.path = info->path, .name = info->name};
    for (size_t i = 0; i < server->models->count; i++) {
        const spry_pool_entry *entry = &server->models->entries[i];
        if (entry->data && strcmp(entry->name, info->name) == 0)
            *file = (spry_model_file){.name = entry->name, .data = entry->data, .size = entry->size};
    }
}

void spry_server_close(spry_server *server)
{
    spry_mcp_close(server->mcp);
    spry_answer_spans_destroy(server->spans);
    if (server->pool)
        spry_model_pool_destroy(server->pool);
    spry_energy_close(server->meter);
    spry_machine_watch_deinit(&server->machine);
    spry_speech_service_destroy(server->speech);
    spry_access_keys_deinit(&server->keys);
    spry_key_limits_deinit(&server->limits);
    spry_audit_log_close(&server->audit);
    spry_registry_deinit(&server->registry);
    spry_response_store_deinit(&server->responses);
    spry_kept_streams_deinit(&server->streams);
    json_decref(server->defaults);
    json_decref(server->agents);
    json_decref(server->descriptions);
    pthread_mutex_destroy(&server->descriptions_lock);
    deinit_models(server->models);
    free(server->models);
    free(server);
}
