/* Prompts of coding agents. Agents write what changes from session to session (folder, date, state of the repository)
 * into the middle of their instructions, and templates write tools after the instructions: a second session then finds
 * only the text before the first change in the cache.
 *
 * For agents that agents.json knows, these parts are moved into a system message directly after the first message of
 * the user. Everything before it, tools included, is then the same in all sessions, and is reused as a prefix, which is
 * exact. The new order depends on the request alone. */
#ifndef SPRY_SERVER_REQUEST_AGENTS_H
#define SPRY_SERVER_REQUEST_AGENTS_H

#include <jansson.h>

/* The table of agents; NULL when memory is short. */
json_t *spry_agents_open(void);

/* A conversation, with new references. `agent`: which one sent it, or NULL. */
typedef struct spry_agent_prompt {
    json_t *messages, *tools; /* tools: NULL: none */
    const char *agent;
} spry_agent_prompt;

/* `agents`: the table, or NULL; `client`: the user agent, or NULL; `tools`: NULL or a list. A conversation of another
 * client, or without a message of the user after its instructions, stays as it is. */
void spry_agent_prompt_init(spry_agent_prompt *prompt, const json_t *agents, const char *client, const json_t *messages,
                            const json_t *tools);
void spry_agent_prompt_deinit(spry_agent_prompt *prompt);

#endif
