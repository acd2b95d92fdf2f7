/* The file of --mcp: {"mcpServers": {NAME: {"command", "args", "env", "cwd"} or {"url", "headers"}}}, as other programs
 * have it, and members of its own: "read", "write", "network", "sandbox" and "timeout".
 *
 * A sandbox allows the programs of the system, the files that the command line names, and the folders that it names,
 * these with changes. A file inside a folder node_modules brings that folder, since a package consists of many; the
 * program brings its installation. */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/compiler.h"
#include "base/json.h"
#include "mcp/mcp_server.h"
#include "platform/child.h"
#include "platform/environment.h"
#include "platform/file.h"
#include "pull/pull_http.h"

enum { FILE_BYTES = 1 << 20, SERVERS_MAX = 64, ITEMS_MAX = 256, NAME_MAX_BYTES = 32, CALL_S = 60 };

typedef struct reader {
    const char *path, *name; /* path of the file; name of the server whose entry is read */
    spry_arena *memory;
    void (*log)(void *user, const char *sentence);
    void *user;
    spry_error *error;
} reader;

static spry_status wrong(const reader *r, const char *what)
{
    return spry_fail(r->error, SPRY_ERR_INPUT, "%s: server \"%.60s\": %s", r->path, r->name, what);
}

/* ---- texts ------------------------------------------------------------------------------------------------------- */

/* A copy with the values of environment variables for ${NAME}. NULL: it is no text, or a variable is not set. */
static const char *expand(const reader *r, const json_t *value)
{
    const char *text = json_string_value(value), *at;
    char name[128];
    spry_buffer out;
    if (!text)
        return NULL;
    spry_buffer_init(&out, FILE_BYTES);
    for (; (at = strstr(text, "${")) && strchr(at, '}'); text = strchr(at, '}') + 1) {
        size_t size = (size_t)(strchr(at, '}') - at) - 2;
        spry_buffer_append(&out, text, (size_t)(at - text));
        snprintf(name, sizeof name, "%.*s", (int)(size < sizeof name ? size : 0), at + 2);
        const char *found = spry_environment_setting(name);
        if (!found) {
            spry_buffer_deinit(&out);
            return NULL;
        }
        spry_buffer_text(&out, found);
    }
    spry_buffer_text(&out, text);
    const char *copy = out.failed ? NULL : spry_arena_copy(r->memory, spry_buffer_view(&out));
    spry_buffer_deinit(&out);
    return copy;
}

static spry_status read_text(const char **out, const reader *r, const json_t *entry, const char *key)
{
    char sentence[200];
    const json_t *value = json_object_get(entry, key);
    if (!value || json_is_null(value))
        return SPRY_OK;
    *out = expand(r, value);
    snprintf(sentence, sizeof sentence, "\"%s\" must be a text, and its ${variables} must be set", key);
    return *out ? SPRY_OK : wrong(r, sentence);
}

/* A list of texts after the first `n_before`, which the caller fills. */
static spry_status read_list(const char ***out, size_t n_before, const reader *r, const json_t *entry, const char *key)
{
    const json_t *list = json_object_get(entry, key), *item;
    size_t i, count = json_array_size(list);
    char sentence[200];
    *out = count > ITEMS_MAX ? NULL : spry_arena_alloc(r->memory, n_before + count + 1, sizeof **out);
    bool fine = *out && (!list || json_is_array(list));
    json_array_foreach(list, i, item) fine = fine && ((*out)[n_before + i] = expand(r, item));
    snprintf(sentence, sizeof sentence, "\"%s\" must be a list of at most %d texts, whose ${variables} are set", key,
             ITEMS_MAX);
    return fine ? SPRY_OK : wrong(r, sentence);
}

/* An object of texts as "NAME", `between`, "VALUE". */
static spry_status read_pairs(const char *const **out, const reader *r, const json_t *entry, const char *key,
                              const char *between)
{
    json_t *object = json_object_get(entry, key), *value;
    size_t count = 0, most = json_object_size(object);
    const char *name, **list = most > ITEMS_MAX ? NULL : spry_arena_alloc(r->memory, most + 1, sizeof *list);
    char sentence[200];
    bool fine = list && (!object || json_is_object(object));
    json_object_foreach(object, name, value)
    {
        const char *text = fine ? expand(r, value) : NULL;
        spry_buffer pair;
        spry_buffer_init(&pair, FILE_BYTES);
        spry_buffer_format(&pair, "%s%s%s", name, between, text ? text : "");
        fine = text && !strpbrk(name, "=:\r\n") && !strpbrk(text, "\r\n") && !pair.failed;
        list[count++] = fine ? spry_arena_copy(r->memory, spry_buffer_view(&pair)) : NULL;
        spry_buffer_deinit(&pair);
        fine = fine && list[count - 1];
        if (!fine)
            break;
    }
    snprintf(sentence, sizeof sentence, "\"%s\" must be an object of texts of one line, whose ${variables} are set",
             key);
    *out = list;
    return fine ? SPRY_OK : wrong(r, sentence);
}

/* ---- the sandbox ------------------------------------------------------------------------------------------------- */

/* Files that programs which use the network read. */
static const char *const of_network[] = {
    "/etc/resolv.conf", "/etc/hosts", "/etc/nsswitch.conf", "/etc/gai.conf", "/etc/ssl/certs", "/etc/pki", NULL};
static const char *const of_all[] = {
    "/etc/ssl/openssl.cnf", "/etc/localtime", "/etc/mime.types", "/dev/zero", "/dev/random", NULL};

typedef struct paths {
    const char **list;
    size_t count, most;
} paths;

static void add_path(paths *p, const char *path)
{
    if (path && p->count < p->most)
        p->list[p->count++] = path;
}

static void add_paths(paths *p, const char *const *list)
{
    for (; list && *list; list++)
        add_path(p, *list);
}

/* What an argument names: a folder may be changed, a file be read. */
static void add_argument(paths *readable, paths *writable, const reader *r, const char *argument)
{
    static const char packages[] = "/node_modules/";
    char *path = argument[0] == '/' ? realpath(argument, NULL) : NULL;
    char *inside = path ? strstr(path, packages) : NULL;
    bool is_folder = path && spry_path_is_folder(path);
    if (inside)
        inside[sizeof packages - 2] = 0;
    if (path)
        add_path(is_folder && !inside ? writable : readable, spry_arena_copy(r->memory, spry_view_of(path)));
    free(path);
}

/* What a program needs of its installation, such as that of a virtual environment: the folder that its bin is in,
 * unless that is the user's own. */
static void add_installation(paths *readable, const reader *r, const char *program)
{
    const char *home = spry_environment_setting("HOME");
    spry_view folder = spry_view_of(program);
    for (size_t i = 0; i < 2; i++) {
        while (folder.size && folder.data[--folder.size] != '/') {
        }
        if (i == 0 && !spry_view_ends(folder, SPRY_VIEW("/bin")) && !spry_view_ends(folder, SPRY_VIEW("/shims")))
            return;
    }
    spry_view rest = folder;
    bool is_own = home && spry_view_starts(folder, spry_view_of(home));
    if (is_own)
        rest = (spry_view){folder.data + strlen(home), folder.size - strlen(home)};
    if (folder.size && !(is_own && (rest.size == 0 || spry_view_is(rest, "/.local"))))
        add_path(readable, spry_arena_copy(r->memory, folder));
}

static void add_program(paths *readable, paths *writable, const reader *r, const char *name)
{
    char path[SPRY_CHILD_PATH];
    if (!spry_child_find(path, name))
        return;
    char *whole = realpath(path, NULL);
    add_installation(readable, r, path);
    if (whole)
        add_installation(readable, r, whole);
    if (whole && !spry_path_is_folder(whole))
        add_argument(readable, writable, r, whole);
    free(whole);
}

static spry_status make_sandbox(spry_mcp_entry *out, const reader *r, const json_t *entry)
{
    enum { MOST = 4 * ITEMS_MAX };
    const char **own_readable, **own_writable;
    paths readable = {spry_arena_alloc(r->memory, MOST + 1, sizeof(char *)), 0, MOST},
          writable = {spry_arena_alloc(r->memory, MOST + 1, sizeof(char *)), 0, MOST};
    if (!readable.list || !writable.list)
        return spry_fail_memory(r->error, "the servers of --mcp", MOST);
    spry_status status = read_list(&own_readable, 0, r, entry, "read");
    if (status == SPRY_OK)
        status = read_list(&own_writable, 0, r, entry, "write");
    if (status != SPRY_OK)
        return status;
    add_paths(&readable, spry_sandbox_programs);
    add_paths(&readable, of_all);
    add_paths(&readable, own_readable);
    add_paths(&writable, own_writable);
    add_path(&writable, out->folder);
    out->network = json_is_true(json_object_get(entry, "network"));
    if (out->network)
        add_paths(&readable, of_network);
    add_program(&readable, &writable, r, out->arguments[0]);
    for (size_t i = 1; out->arguments[i]; i++)
        add_argument(&readable, &writable, r, out->arguments[i]);
    out->readable = readable.list;
    out->writable = writable.list;
    return SPRY_OK;
}

/* ---- an entry ---------------------------------------------------------------------------------------------------- */

static bool has_scheme(const char *url, const char *scheme)
{
    return strncasecmp(url, scheme, strlen(scheme)) == 0;
}

/* Without TLS only to this machine: headers may have keys. */
static spry_status check_url(const reader *r, const char *url)
{
    char *host = NULL, *scheme = NULL;
    spry_http_init();
    CURLU *parsed = curl_url();
    bool fine = parsed && curl_url_set(parsed, CURLUPART_URL, url, 0) == CURLUE_OK &&
                curl_url_get(parsed, CURLUPART_HOST, &host, 0) == CURLUE_OK &&
                curl_url_get(parsed, CURLUPART_SCHEME, &scheme, 0) == CURLUE_OK &&
                (has_scheme(scheme, "https") ||
                 (has_scheme(scheme, "http") &&
                  (strcmp(host, "127.0.0.1") == 0 || strcmp(host, "[::1]") == 0 || strcmp(host, "localhost") == 0)));
    curl_free(host);
    curl_free(scheme);
    curl_url_cleanup(parsed);
    return fine ? SPRY_OK
                : wrong(r, "\"url\" must be https://, or http:// with the host 127.0.0.1, [::1] or localhost");
}

static spry_status read_program(spry_mcp_entry *out, const reader *r, const json_t *entry)
{
    const char **arguments;
    const json_t *sandbox = json_object_get(entry, "sandbox");
    spry_status status = read_list(&arguments, 1, r, entry, "args");
    if (status == SPRY_OK)
        status = read_text(&arguments[0], r, entry, "command");
    if (status == SPRY_OK)
        status = read_text(&out->folder, r, entry, "cwd");
    if (status == SPRY_OK)
        status = read_pairs(&out->variables, r, entry, "env", "=");
    if (status != SPRY_OK)
        return status;
    out->arguments = arguments;
    return json_is_false(sandbox) ? SPRY_OK : make_sandbox(out, r, entry);
}

static void name_unknown(const reader *r, json_t *entry)
{
    static const char *const known[] = {"command", "args",  "env",     "cwd",     "url",     "headers", "type",
                                        "read",    "write", "network", "sandbox", "timeout", "disabled"};
    const char *key;
    json_t *value;
    json_object_foreach(entry, key, value)
    {
        bool found = false;
        char sentence[300];
        for (size_t i = 0; i < SPRY_COUNT(known); i++)
            found = found || strcmp(key, known[i]) == 0;
        snprintf(sentence, sizeof sentence, "mcp: server \"%.60s\": \"%.60s\" is not known and has no effect", r->name,
                 key);
        if (!found)
            r->log(r->user, sentence);
    }
}

/* Names are part of the names of tools. */
static const char *clean_name(const reader *r, const char *name)
{
    char *clean = strlen(name) <= NAME_MAX_BYTES ? spry_arena_copy(r->memory, spry_view_of(name)) : NULL;
    for (char *at = clean; at && *at; at++)
        if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-", *at))
            *at = '_';
    return clean && *clean ? clean : NULL;
}

static spry_status read_entry(spry_mcp_entry *out, const reader *r, json_t *entry)
{
    const char *type = json_string_value(json_object_get(entry, "type"));
    const json_t *seconds = json_object_get(entry, "timeout");
    bool program = json_is_string(json_object_get(entry, "command"));
    if (program == json_is_string(json_object_get(entry, "url")))
        return wrong(r, "it must be an object with a text \"command\" or a text \"url\"");
    if (!(out->name = clean_name(r, r->name)))
        return wrong(r, "its name must have 1 to 32 bytes");
    if (type && strcmp(type, "sse") == 0)
        return wrong(r, "the older transport \"sse\" is not supported; give the address of its streamable HTTP, often "
                        "/mcp in place of /sse");
    if (seconds &&
        (!json_is_integer(seconds) || json_integer_value(seconds) < 1 || json_integer_value(seconds) > 86400))
        return wrong(r, "\"timeout\" must be a whole number of seconds, from 1 to 86400");
    out->seconds = seconds ? (uint32_t)json_integer_value(seconds) : CALL_S;
    name_unknown(r, entry);
    if (program)
        return read_program(out, r, entry);
    spry_status status = read_text(&out->url, r, entry, "url");
    if (status == SPRY_OK)
        status = check_url(r, out->url);
    return status == SPRY_OK ? read_pairs(&out->headers, r, entry, "headers", ": ") : status;
}

/* ---- the file ---------------------------------------------------------------------------------------------------- */

static spry_status read_servers(spry_mcp_file *out, reader *r, json_t *servers)
{
    json_t *entry;
    if (!json_is_object(servers) || json_object_size(servers) > SERVERS_MAX)
        return spry_fail(r->error, SPRY_ERR_INPUT, "%s: it must have an object \"mcpServers\" with at most %d servers",
                         r->path, SERVERS_MAX);
    out->entries = spry_arena_alloc(r->memory, json_object_size(servers) + 1, sizeof *out->entries);
    if (!out->entries)
        return spry_fail_memory(r->error, "the servers of --mcp", SERVERS_MAX);
    json_object_foreach(servers, r->name, entry)
    {
        if (json_is_true(json_object_get(entry, "disabled")))
            continue;
        spry_mcp_entry *own = &out->entries[out->count];
        spry_status status = read_entry(own, r, entry);
        for (size_t i = 0; i < out->count && status == SPRY_OK; i++)
            if (strcmp(out->entries[i].name, own->name) == 0)
                status = wrong(r, "another server has this name, where letters, digits, _ and - count");
        if (status != SPRY_OK)
            return status;
        out->count++;
    }
    return SPRY_OK;
}

spry_status spry_mcp_file_read(spry_mcp_file *out, const char *path, void (*log)(void *user, const char *sentence),
                               void *user, spry_error *error)
{
    reader r = {.path = path, .name = "", .memory = &out->memory, .log = log, .user = user, .error = error};
    json_t *root = NULL;
    spry_buffer text;
    *out = (spry_mcp_file){0};
    spry_arena_init(&out->memory);
    spry_buffer_init(&text, FILE_BYTES);
    spry_status status = spry_file_read(&text, path, error);
    if (status == SPRY_OK) {
        status = spry_json_read(&root, spry_buffer_view(&text), SPRY_JSON_NO_ZERO, 0, error);
        if (status != SPRY_OK)
            (void)spry_fail_prefix(error, status, path);
    }
    json_t *servers = json_object_get(root, "mcpServers");
    if (status == SPRY_OK)
        status = read_servers(out, &r, servers ? servers : json_object_get(root, "servers"));
    json_decref(root);
    spry_buffer_deinit(&text);
    if (status != SPRY_OK)
        spry_mcp_file_deinit(out);
    return status;
}

void spry_mcp_file_deinit(spry_mcp_file *file)
{
    spry_arena_deinit(&file->memory);
    *file = (spry_mcp_file){0};
}
