/* What the files of MCP share: an entry of the file, and the link to a server. */
#ifndef SPRY_MCP_MCP_SERVER_H
#define SPRY_MCP_MCP_SERVER_H

#include <jansson.h>

#include "base/buffer.h"
#include "base/error.h"

/* A message, and so the result of a tool, has a maximum. */
enum { SPRY_MCP_MESSAGE_MAX = 4 << 20 };

/* ---- the file ---------------------------------------------------------------------------------------------------- */

/* Lists end with NULL. */
typedef struct spry_mcp_entry {
    const char *name;                              /* letters, digits, _ and - */
    const char *const *arguments;                  /* a program and its arguments; NULL: the server has an address */
    const char *const *variables;                  /* "NAME=VALUE" */
    const char *const *readable, *const *writable; /* what its sandbox allows; readable NULL: no sandbox */
    const char *folder;                            /* where it runs; NULL: where this program runs */
    bool network;                                  /* its sandbox allows the network */
    const char *url;
    const char *const *headers; /* "NAME: VALUE" */
    uint32_t seconds;           /* limit for a call */
} spry_mcp_entry;

typedef struct spry_mcp_file {
    spry_mcp_entry *entries;
    size_t count;
    spry_arena memory;
} spry_mcp_file;

/* Sentences about parts that are not used go to `log`. */
spry_status spry_mcp_file_read(spry_mcp_file *out, const char *path, void (*log)(void *user, const char *sentence),
                               void *user, spry_error *error);
void spry_mcp_file_deinit(spry_mcp_file *file);

/* ---- the link ---------------------------------------------------------------------------------------------------- */

/* How messages travel. All but `close` may be called from several threads. */
typedef struct spry_mcp_link spry_mcp_link;

typedef struct spry_mcp_events {
    void (*broken)(void *user, const char *why); /* the link is of no use any more; it must be closed */
    void (*list_changed)(void *user);            /* the server says that its tools are others now */
    void *user;
} spry_mcp_events;

typedef struct spry_mcp_link_ops {
    /* Sends a message. `id` not 0: waits for its reply, until `until_ns` of spry_clock_ns or the end of this thread's
     * request; the caller releases *reply. */
    spry_status (*exchange)(spry_mcp_link *link, json_t **reply, const json_t *message, json_int_t id,
                            uint64_t until_ns, spry_error *error);
    void (*stop)(spry_mcp_link *link);  /* all exchanges return soon */
    void (*close)(spry_mcp_link *link); /* after `stop` */
} spry_mcp_link_ops;

struct spry_mcp_link {
    const spry_mcp_link_ops *ops;
    const spry_mcp_entry *entry;
    spry_mcp_events events;
};

spry_status spry_mcp_stdio_open(spry_mcp_link **out, const spry_mcp_entry *entry, const spry_mcp_events *events,
                                spry_error *error);
spry_status spry_mcp_http_open(spry_mcp_link **out, const spry_mcp_entry *entry, const spry_mcp_events *events,
                               spry_error *error);

#endif
