/* Servers and their tools. A server's own thread connects, reads the list of tools, waits until the link breaks, and
 * connects again, each time after a longer pause. Calls are made on the threads of their callers. */
#include "mcp/mcp.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "base/interrupt.h"
#include "base/json.h"
#include "base/utf8.h"
#include "mcp/mcp_server.h"
#include "platform/clock.h"
#include "platform/threads.h"

enum {
    START_S = 60,
    LOOK_MS = 100,
    PAUSE_MS = 250,
    PAUSE_MOST_MS = 60000,
    TOOLS_MAX = 256,
    PAGES_MAX = 64,
    NAME_BYTES = 64
};
enum { SCHEMAS_BYTES = 1 << 20 }; /* limit for the schemas of all tools of a server, in bytes */
#define SECOND_NS 1000000000ull
#define MS_NS     1000000ull
#define PROTOCOL  "2025-06-18"

typedef enum server_state { STARTING, READY, FAILED } server_state;

typedef struct server {
    spry_mcp *owner;
    const spry_mcp_entry *entry;
    pthread_t thread;
    bool has_thread;
    atomic_llong last_id;

    pthread_mutex_t lock; /* for the members below; not held while a message is exchanged */
    pthread_cond_t changed;
    server_state state;
    bool broken, list_changed, stopping;
    unsigned n_users; /* threads that use the link */
    spry_mcp_link *link;
    char why[SPRY_ERROR_MAX];  /* the reason of FAILED */
    char said[SPRY_ERROR_MAX]; /* the last that was logged, since it ran */
    json_t *tools;             /* [{"name", "own", "description", "parameters"}]; `own`: the server's name for it */
} server;

struct spry_mcp {
    spry_mcp_file file;
    server *servers;
    size_t count;
    void (*log)(void *user, const char *sentence);
    void *user;
};

static void say(const server *s, const char *sentence)
{
    char line[SPRY_ERROR_MAX + 80];
    snprintf(line, sizeof line, "mcp: server \"%s\": %s", s->entry->name, sentence);
    s->owner->log(s->owner->user, line);
}

/* ---- messages ---------------------------------------------------------------------------------------------------- */

/* Takes `params` (NULL: none). A failure that the server reports is one of *refused, in its own words. */
static spry_status request(json_t **result, json_t **refused, server *s, spry_mcp_link *link, const char *method,
                           json_t *params, uint32_t seconds, spry_error *error)
{
    json_int_t id = atomic_fetch_add(&s->last_id, 1) + 1;
    json_t *reply = NULL, *message = json_pack("{s:s, s:I, s:s, s:o*}", "jsonrpc", "2.0", "id", id, "method", method,
                                               "params", params);
    spry_status status =
        !message ? spry_fail_memory(error, "a message", 0)
                 : link->ops->exchange(link, &reply, message, id, spry_clock_ns() + seconds * SECOND_NS, error);
    json_decref(message);
    if (status != SPRY_OK)
        return status;
    *result = json_incref(json_object_get(reply, "result"));
    const char *sentence = json_string_value(json_object_get(json_object_get(reply, "error"), "message"));
    if (!*result && refused)
        *refused = json_sprintf("%s", sentence ? sentence : "the call failed");
    else if (!*result)
        status = spry_fail(error, SPRY_ERR_FILE, "%s: %.200s", method, sentence ? sentence : "it reports an error");
    json_decref(reply);
    return status;
}

static spry_status shake_hands(server *s, spry_mcp_link *link, spry_error *error)
{
    json_t *result = NULL;
    spry_status status = request(&result, NULL, s, link, "initialize",
                                 json_pack("{s:s, s:{}, s:{s:s, s:s}}", "protocolVersion", PROTOCOL, "capabilities",
                                           "clientInfo", "name", "spry", "version", SPRY_VERSION),
                                 START_S, error);
    json_decref(result);
    if (status != SPRY_OK)
        return status;
    json_t *ready = json_pack("{s:s, s:s}", "jsonrpc", "2.0", "method", "notifications/initialized");
    status = link->ops->exchange(link, NULL, ready, 0, spry_clock_ns() + START_S * SECOND_NS, error);
    json_decref(ready);
    return status;
}

/* ---- tools ------------------------------------------------------------------------------------------------------- */

static bool has_tool(const json_t *tools, const char *name)
{
    const json_t *tool;
    size_t i;
    json_array_foreach(tools, i,
                       tool) if (strcmp(json_string_value(json_object_get(tool, "name")), name) == 0) return true;
    return false;
}

/* Why a tool is left out; NULL: it was added. */
static const char *add_tool(json_t *tools, size_t *bytes, const server *s, const json_t *tool)
{
    char name[NAME_BYTES + 1];
    const char *own = json_string_value(json_object_get(tool, "name"));
    const json_t *schema = json_object_get(tool, "inputSchema"), *about = json_object_get(tool, "description");
    if (!own || !*own || snprintf(name, sizeof name, "%s__%s", s->entry->name, own) >= (int)sizeof name)
        return "it has no name, or one that is too long";
    for (char *at = name; *at; at++)
        if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-", *at))
            *at = '_';
    if (has_tool(tools, name))
        return "another one has its name";
    char *text = spry_json_text(schema, JSON_COMPACT);
    *bytes += (text ? strlen(text) : 0) + json_string_length(about);
    free(text);
    if (json_array_size(tools) == TOOLS_MAX || *bytes > SCHEMAS_BYTES)
        return "the server has more than 256 tools, or more than 1 MiB of descriptions";
    json_array_append_new(
        tools, json_pack("{s:s, s:s, s:O*, s:o}", "name", name, "own", own, "description",
                         json_is_string(about) ? about : NULL, "parameters",
                         json_is_object(schema) ? json_deep_copy(schema) : json_pack("{s:s}", "type", "object")));
    return NULL;
}

static void add_page(json_t *tools, size_t *bytes, const server *s, const json_t *page)
{
    const json_t *tool;
    size_t i;
    json_array_foreach(page, i, tool)
    {
        char sentence[300];
        const char *own = json_string_value(json_object_get(tool, "name"));
        const char *why = add_tool(tools, bytes, s, tool);
        snprintf(sentence, sizeof sentence, "tool \"%.100s\" is left out: %s", own ? own : "", why ? why : "");
        if (why)
            say(s, sentence);
    }
}

static spry_status list_tools(server *s, spry_mcp_link *link, spry_error *error)
{
    json_t *tools = json_array(), *result = NULL, *cursor = NULL;
    size_t bytes = 0;
    spry_status status = SPRY_OK;
    for (size_t page = 0; page < PAGES_MAX && status == SPRY_OK && (!page || cursor); page++) {
        json_t *params = cursor ? json_pack("{s:o}", "cursor", cursor) : NULL;
        cursor = NULL;
        status = request(&result, NULL, s, link, "tools/list", params, START_S, error);
        if (status != SPRY_OK)
            break;
        add_page(tools, &bytes, s, json_object_get(result, "tools"));
        const json_t *next = json_object_get(result, "nextCursor");
        cursor = json_is_string(next) ? json_deep_copy(next) : NULL;
        json_decref(result);
    }
    json_decref(cursor);
    pthread_mutex_lock(&s->lock);
    json_t *before = s->tools;
    s->tools = status == SPRY_OK ? tools : before;
    pthread_mutex_unlock(&s->lock);
    json_decref(status == SPRY_OK ? before : tools);
    return status;
}

/* ---- the thread of a server -------------------------------------------------------------------------------------- */

static void on_broken(void *user, const char *why)
{
    server *s = user;
    pthread_mutex_lock(&s->lock);
    s->broken = true;
    if (s->state == READY)
        snprintf(s->why, sizeof s->why, "%s", why);
    if (s->state == READY)
        s->state = FAILED;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

static void on_list_changed(void *user)
{
    server *s = user;
    pthread_mutex_lock(&s->lock);
    s->list_changed = true;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

static bool is_stopping(void *user)
{
    server *s = user;
    pthread_mutex_lock(&s->lock);
    bool stopping = s->stopping;
    pthread_mutex_unlock(&s->lock);
    return stopping;
}

static void set_state(server *s, server_state state, const char *why)
{
    pthread_mutex_lock(&s->lock);
    bool said = state == READY || s->stopping || strcmp(s->said, why) == 0;
    s->state = state;
    snprintf(s->why, sizeof s->why, "%s", why);
    snprintf(s->said, sizeof s->said, "%s", why);
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
    if (!said)
        say(s, why);
}

/* Until the link breaks. */
static spry_status stay(server *s, spry_mcp_link *link, spry_error *error)
{
    spry_status status = SPRY_OK;
    pthread_mutex_lock(&s->lock);
    while (!s->broken && !s->stopping && status == SPRY_OK) {
        bool changed = s->list_changed;
        s->list_changed = false;
        if (!changed) {
            pthread_cond_wait(&s->changed, &s->lock);
            continue;
        }
        pthread_mutex_unlock(&s->lock);
        status = list_tools(s, link, error);
        pthread_mutex_lock(&s->lock);
    }
    pthread_mutex_unlock(&s->lock);
    return status;
}

/* No thread uses the link when it is closed. */
static void close_link(server *s, spry_mcp_link *link, const char *why)
{
    set_state(s, FAILED, why);
    link->ops->stop(link);
    pthread_mutex_lock(&s->lock);
    s->link = NULL;
    while (s->n_users)
        pthread_cond_wait(&s->changed, &s->lock);
    pthread_mutex_unlock(&s->lock);
    link->ops->close(link);
}

/* One connection, from its start to its end; `why`: how it ended. */
static void live(server *s, spry_error *why)
{
    const spry_mcp_events events = {on_broken, on_list_changed, s};
    spry_mcp_link *link = NULL;
    s->broken = s->list_changed = false; /* there is no link that could set them */
    spry_status status = (s->entry->url ? spry_mcp_http_open : spry_mcp_stdio_open)(&link, s->entry, &events, why);
    if (status != SPRY_OK)
        return;
    status = shake_hands(s, link, why);
    if (status == SPRY_OK)
        status = list_tools(s, link, why);
    if (status != SPRY_OK && s->entry->readable) {
        const spry_error inner = *why;
        (void)spry_fail(why, status, "%.380s. It runs in a sandbox: \"read\", \"write\" and \"network\" allow more",
                        inner.message);
    }
    if (status == SPRY_OK) {
        pthread_mutex_lock(&s->lock);
        s->link = link;
        pthread_mutex_unlock(&s->lock);
        set_state(s, READY, "");
        status = stay(s, link, why);
    }
    if (status == SPRY_OK) { /* the link said why it broke */
        pthread_mutex_lock(&s->lock);
        spry_fail(why, SPRY_ERR_FILE, "%s", s->why);
        pthread_mutex_unlock(&s->lock);
    }
    close_link(s, link, why->message);
}

static void *run(void *context)
{
    server *s = context;
    uint64_t pause_ms = PAUSE_MS;
    spry_interrupt_begin(is_stopping, s);
    while (!is_stopping(s)) {
        uint64_t began = spry_clock_ns();
        spry_error why = {0};
        live(s, &why);
        set_state(s, FAILED, why.message);
        if (spry_clock_ns() - began > PAUSE_MOST_MS * MS_NS)
            pause_ms = PAUSE_MS;
        uint64_t until = spry_clock_ns() + pause_ms * MS_NS;
        pause_ms = 2 * pause_ms < PAUSE_MOST_MS ? 2 * pause_ms : PAUSE_MOST_MS;
        pthread_mutex_lock(&s->lock);
        while (!s->stopping && spry_clock_ns() < until)
            spry_background_wait(&s->changed, &s->lock, LOOK_MS * MS_NS);
        pthread_mutex_unlock(&s->lock);
    }
    spry_interrupt_end();
    return NULL;
}

/* ---- opening ----------------------------------------------------------------------------------------------------- */

spry_status spry_mcp_open(spry_mcp **out, const char *file, void (*log)(void *user, const char *sentence), void *user,
                          spry_error *error)
{
    spry_mcp *mcp = calloc(1, sizeof *mcp);
    if (!mcp)
        return spry_fail_memory(error, "the servers of --mcp", sizeof *mcp);
    mcp->log = log;
    mcp->user = user;
    spry_status status = spry_mcp_file_read(&mcp->file, file, log, user, error);
    mcp->servers = status == SPRY_OK ? calloc(mcp->file.count + 1, sizeof *mcp->servers) : NULL;
    if (status == SPRY_OK && !mcp->servers)
        status = spry_fail_memory(error, "the servers of --mcp", mcp->file.count * sizeof *mcp->servers);
    for (; status == SPRY_OK && mcp->count < mcp->file.count; mcp->count++) {
        server *s = &mcp->servers[mcp->count];
        s->owner = mcp;
        s->entry = &mcp->file.entries[mcp->count];
        s->tools = json_array();
        pthread_mutex_init(&s->lock, NULL);
        spry_background_condition(&s->changed);
        status = spry_background_start(&s->thread, run, s, "a server of --mcp", error);
        s->has_thread = status == SPRY_OK;
    }
    if (status == SPRY_OK)
        *out = mcp;
    else
        spry_mcp_close(mcp);
    return status;
}

void spry_mcp_close(spry_mcp *mcp)
{
    for (size_t i = 0; mcp && i < mcp->count; i++) {
        server *s = &mcp->servers[i];
        pthread_mutex_lock(&s->lock);
        s->stopping = true;
        pthread_cond_broadcast(&s->changed);
        pthread_mutex_unlock(&s->lock);
    }
    for (size_t i = 0; mcp && i < mcp->count; i++) {
        server *s = &mcp->servers[i];
        if (s->has_thread)
            pthread_join(s->thread, NULL);
        json_decref(s->tools);
        pthread_mutex_destroy(&s->lock);
        pthread_cond_destroy(&s->changed);
    }
    if (mcp) {
        free(mcp->servers);
        spry_mcp_file_deinit(&mcp->file);
    }
    free(mcp);
}

/* ---- asking ------------------------------------------------------------------------------------------------------ */

/* Under the lock; a request that is over does not wait. */
static void wait_for_start(server *s)
{
    while (s->state == STARTING && !s->stopping && !spry_interrupted(SPRY_INTERRUPT_WORK))
        spry_background_wait(&s->changed, &s->lock, LOOK_MS * MS_NS);
}

static json_t *server_json(server *s)
{
    pthread_mutex_lock(&s->lock);
    wait_for_start(s);
    json_t *tools = json_deep_copy(s->tools), *tool;
    size_t i;
    json_array_foreach(tools, i, tool) json_object_del(tool, "own");
    json_t *json =
        json_pack("{s:s, s:s, s:s*, s:o}", "name", s->entry->name, "state", s->state == READY ? "ready" : "failed",
                  "error", s->state == FAILED ? s->why : NULL, "tools", tools);
    pthread_mutex_unlock(&s->lock);
    return json;
}

json_t *spry_mcp_servers(spry_mcp *mcp)
{
    json_t *list = mcp ? json_array() : NULL;
    for (size_t i = 0; mcp && i < mcp->count; i++)
        json_array_append_new(list, server_json(&mcp->servers[i]));
    return list;
}

json_t *spry_mcp_tools(spry_mcp *mcp, const char *name)
{
    for (size_t i = 0; mcp && i < mcp->count; i++) {
        if (strcmp(mcp->servers[i].entry->name, name) != 0)
            continue;
        json_t *own = server_json(&mcp->servers[i]), *functions = json_array(), *tool;
        size_t k;
        json_array_foreach(json_object_get(own, "tools"), k, tool)
            json_array_append_new(functions, json_pack("{s:s, s:O}", "type", "function", "function", tool));
        json_decref(own);
        return functions;
    }
    return NULL;
}

/* The server of a tool, and the server's own name for it, which the caller frees. */
static server *find_tool(char **own, spry_mcp *mcp, const char *name)
{
    for (size_t i = 0; mcp && i < mcp->count; i++) {
        server *s = &mcp->servers[i];
        const json_t *tool;
        size_t k, size = strlen(s->entry->name);
        *own = NULL;
        if (strncmp(name, s->entry->name, size) != 0 || strncmp(name + size, "__", 2) != 0)
            continue;
        pthread_mutex_lock(&s->lock);
        wait_for_start(s);
        json_array_foreach(
            s->tools, k, tool) if (!*own && strcmp(json_string_value(json_object_get(tool, "name")), name) == 0) *own =
            strdup(json_string_value(json_object_get(tool, "own")));
        pthread_mutex_unlock(&s->lock);
        if (*own)
            return s;
    }
    return NULL;
}

bool spry_mcp_has(spry_mcp *mcp, const char *tool)
{
    char *own = NULL;
    bool found = find_tool(&own, mcp, tool) != NULL;
    free(own);
    return found;
}

/* ---- calling ----------------------------------------------------------------------------------------------------- */

static void add_line(spry_buffer *out, const char *text)
{
    if (out->size)
        spry_buffer_text(out, "\n");
    spry_utf8_append_valid(out, spry_view_of(text));
}

/* The text of a part of a result; parts that are no text are named. */
static void add_part(spry_buffer *out, const json_t *part)
{
    char sentence[300];
    const char *type = json_string_value(json_object_get(part, "type"));
    const json_t *resource = json_object_get(part, "resource");
    const char *text = json_string_value(json_object_get(part, "text"));
    const char *kind = json_string_value(json_object_get(part, "mimeType"));
    const char *uri = json_string_value(json_object_get(resource ? resource : part, "uri"));
    if (!text)
        text = json_string_value(json_object_get(resource, "text"));
    snprintf(sentence, sizeof sentence, "[%.40s%s%.100s%s%.100s: not shown]", type ? type : "part", kind ? " " : "",
             kind ? kind : "", uri ? " " : "", uri ? uri : "");
    add_line(out, text ? text : sentence);
}

static void add_result(spry_buffer *out, const json_t *result)
{
    const json_t *parts = json_object_get(result, "content"), *part,
                 *structure = json_object_get(result, "structuredContent");
    size_t i;
    json_array_foreach(parts, i, part) add_part(out, part);
    char *text = !out->size && structure ? spry_json_text(structure, JSON_COMPACT) : NULL;
    if (text)
        add_line(out, text);
    free(text);
}

/* The link for a call; NULL: the server does not run, and the error says why. */
static spry_mcp_link *borrow(server *s, spry_error *error)
{
    pthread_mutex_lock(&s->lock);
    spry_mcp_link *link = s->state == READY ? s->link : NULL;
    s->n_users += link != NULL;
    if (!link)
        spry_fail(error, SPRY_ERR_BUSY, "the MCP server \"%s\" does not run, and is started again soon: %s",
                  s->entry->name, s->why);
    pthread_mutex_unlock(&s->lock);
    return link;
}

static void give_back(server *s)
{
    pthread_mutex_lock(&s->lock);
    s->n_users--;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

spry_status spry_mcp_call(spry_buffer *text, bool *failed, spry_mcp *mcp, const char *tool, const json_t *arguments,
                          spry_error *error)
{
    char *own = NULL;
    json_t *result = NULL, *refused = NULL;
    server *s = find_tool(&own, mcp, tool);
    if (!s)
        return spry_fail(error, SPRY_ERR_INPUT, "no MCP server has a tool \"%.100s\"", tool);
    spry_mcp_link *link = borrow(s, error);
    spry_status status = link ? SPRY_OK : SPRY_ERR_BUSY;
    if (link) {
        json_t *params = json_pack("{s:s, s:o}", "name", own, "arguments",
                                   json_is_object(arguments) ? json_deep_copy(arguments) : json_object());
        status = request(&result, &refused, s, link, "tools/call", params, s->entry->seconds, error);
        give_back(s);
        if (status != SPRY_OK && status != SPRY_ERR_CANCELLED) {
            spry_error inner = *error;
            (void)spry_fail(error, status, "the MCP server \"%s\": %s", s->entry->name, inner.message);
        }
    }
    if (status == SPRY_OK) {
        *failed = refused || json_is_true(json_object_get(result, "isError"));
        if (refused)
            add_line(text, json_string_value(refused));
        else
            add_result(text, result);
        if (text->failed)
            status = spry_fail(error, SPRY_ERR_INPUT, "the MCP server \"%s\": its answer is too long", s->entry->name);
    }
    json_decref(result);
    json_decref(refused);
    free(own);
    return status;
}
