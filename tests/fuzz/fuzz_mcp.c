/* Any bytes as what an MCP server sends: tools, results and sentences, or a clean failure. The first byte says how the
 * bytes are divided into reads; 0: they are the file that names the servers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <sys/resource.h>

#include "support/scratch.h"

#define spry_mcp_stdio_open real_stdio_open
#include "mcp/mcp_stdio.c"
#undef spry_mcp_stdio_open

#include "base/utf8.h"
#include "mcp/mcp.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
spry_status __wrap_spry_mcp_stdio_open(spry_mcp_link **out, const spry_mcp_entry *entry, const spry_mcp_events *events,
                                       spry_error *error);

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static spry_view rest; /* what the server has still to say */
static size_t step;
static scratch place;

static void leave(void)
{
    scratch_deinit(&place);
}

static void ignore(void *user, const char *sentence)
{
    (void)user;
    if (!spry_utf8_valid(spry_view_of(sentence)) && strlen(sentence) < 100)
        abort(); /* only sentences that were cut may end within a letter */
}

/* A request is answered by what comes next: the link reads on until there is a reply. */
static spry_status read_reply(spry_mcp_link *link, json_t **reply, const json_t *message, json_int_t id,
                              uint64_t until_ns, spry_error *error)
{
    stdio_link *s = (stdio_link *)link;
    pending own = {.id = id};
    (void)message, (void)until_ns;
    if (!id)
        return SPRY_OK;
    pthread_mutex_lock(&lock);
    s->waiting = &own;
    while (rest.size && !own.reply && !own.too_long) {
        size_t n = rest.size < step ? rest.size : step;
        take_bytes(s, (spry_view){rest.data, n});
        rest = (spry_view){rest.data + n, rest.size - n};
    }
    s->waiting = NULL;
    pthread_mutex_unlock(&lock);
    if (!own.reply)
        return spry_fail(error, SPRY_ERR_FILE, "it has ended");
    *reply = own.reply;
    return SPRY_OK;
}

static void stop_nothing(spry_mcp_link *link)
{
    (void)link;
}

static void free_link(spry_mcp_link *link)
{
    stdio_link *s = (stdio_link *)link;
    spry_buffer_deinit(&s->line);
    close(s->process.input);
    pthread_cond_destroy(&s->changed);
    pthread_mutex_destroy(&s->lock);
    pthread_mutex_destroy(&s->writing);
    free(s);
}

/* The link of a program without the program. */
spry_status __wrap_spry_mcp_stdio_open(spry_mcp_link **out, const spry_mcp_entry *entry, const spry_mcp_events *events,
                                       spry_error *error)
{
    static const spry_mcp_link_ops fed = {read_reply, stop_nothing, free_link};
    stdio_link *s = calloc(1, sizeof *s);
    if (!s)
        return spry_fail_memory(error, "a link", sizeof *s);
    s->base = (spry_mcp_link){&fed, entry, *events};
    s->process.input = open("/dev/null", O_WRONLY | O_CLOEXEC);
    s->ended = s->process.input < 0;
    pthread_mutex_init(&s->lock, NULL);
    pthread_mutex_init(&s->writing, NULL);
    pthread_cond_init(&s->changed, NULL);
    spry_buffer_init(&s->line, SPRY_MCP_MESSAGE_MAX);
    *out = &s->base;
    return SPRY_OK;
}

static void call(spry_mcp *mcp, const char *tool)
{
    spry_buffer text;
    spry_error error;
    bool failed;
    spry_buffer_init(&text, SPRY_MCP_MESSAGE_MAX);
    if (spry_mcp_call(&text, &failed, mcp, tool, NULL, &error) == SPRY_OK && !spry_utf8_valid(spry_buffer_view(&text)))
        abort();
    spry_buffer_deinit(&text);
}

static void converse(void)
{
    static const char servers[] = "{\"mcpServers\": {\"s\": {\"command\": \"true\", \"sandbox\": false}}}";
    spry_mcp *mcp;
    spry_error error;
    const json_t *tool;
    size_t i;
    if (spry_mcp_open(&mcp, scratch_write(&place, "servers", servers, sizeof servers - 1), ignore, NULL, &error))
        abort();
    json_t *list = spry_mcp_servers(mcp), *tools = json_object_get(json_array_get(list, 0), "tools");
    json_array_foreach(tools, i, tool)
    {
        const char *name = json_string_value(json_object_get(tool, "name"));
        if (!json_is_object(json_object_get(tool, "parameters")))
            abort();
        if (i < 3 && spry_mcp_has(mcp, name)) /* the list may have changed since */
            call(mcp, name);
    }
    json_decref(spry_mcp_tools(mcp, "s"));
    json_decref(list);
    spry_mcp_close(mcp);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!place.folder[0]) {
        scratch_init(&place);
        atexit(leave);
    }
    if (size < 1)
        return 0;
    if (data[0]) {
        rest = (spry_view){(const char *)data + 1, size - 1};
        step = data[0] == 255 ? SIZE_MAX : data[0];
        converse();
        return 0;
    }
    spry_mcp_file file;
    spry_error error;
    const char *path = scratch_write(&place, "file", data + 1, size - 1);
    if (spry_mcp_file_read(&file, path, ignore, NULL, &error) == SPRY_OK)
        spry_mcp_file_deinit(&file);
    return 0;
}
