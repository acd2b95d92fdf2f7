/* Tools of other programs by the Model Context Protocol: the servers of a file in the usual `mcpServers` form are
 * started, or connected to, and their tools can be listed and called.
 *
 * Nothing of a server is trusted. One that is a program runs in a sandbox and is restarted when it ends; messages have
 * a maximum, and every wait has a limit. Each server has a thread of its own that starts it, so that opening does not
 * wait; listing and calling wait until it has started or failed. Any thread may list and call. */
#ifndef SPRY_MCP_MCP_H
#define SPRY_MCP_MCP_H

#include <jansson.h>

#include "base/buffer.h"
#include "base/error.h"

typedef struct spry_mcp spry_mcp;

/* `log` gets sentences about servers, from any thread. Fails where the file is wrong. */
spry_status spry_mcp_open(spry_mcp **out, const char *file, void (*log)(void *user, const char *sentence), void *user,
                          spry_error *error);

/* Ends all servers. NULL: none. */
void spry_mcp_close(spry_mcp *mcp);

/* [{"name", "state": "ready" or "failed", "error", "tools": [{"name", "description", "parameters"}]}]. The name of a
 * tool is SERVER__TOOL. NULL without `mcp`. */
json_t *spry_mcp_servers(spry_mcp *mcp);

/* The tools of one server, in the form of chat completions; NULL: there is no server of this name. A server that has
 * failed keeps the tools that it had. */
json_t *spry_mcp_tools(spry_mcp *mcp, const char *server);

/* Whether a tool has this name. */
bool spry_mcp_has(spry_mcp *mcp, const char *tool);

/* Calls a tool. *text is what it returned, or its own sentence about a failure (*failed). Other failures: no such tool,
 * a server that does not run, an answer that is late or too long; SPRY_ERR_CANCELLED: the request of this thread is
 * over (base/interrupt.h). */
spry_status spry_mcp_call(spry_buffer *text, bool *failed, spry_mcp *mcp, const char *tool, const json_t *arguments,
                          spry_error *error);

#endif
