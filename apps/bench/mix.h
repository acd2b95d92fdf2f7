/* Workloads of `spry bench --mix`: requests with prompts and answers of drawn lengths, or replayed from a file, which
 * several clients send one after another. The same requests go to a model in this process and to a server. */
#ifndef SPRY_APPS_BENCH_MIX_H
#define SPRY_APPS_BENCH_MIX_H

#include <jansson.h>
#include <pthread.h>

#include "base/buffer.h"
#include "base/error.h"
#include "spry.h"

#define SPRY_MIX_FORMAT "spry-mix-1"

enum {
    SPRY_MIX_CHOICES_MAX = 16, /* lengths of one distribution; system prompts */
    SPRY_MIX_TOKENS_MAX = 1 << 20,
    SPRY_MIX_NAME = 48,
};

/* ---- mix_requests.c ---------------------------------------------------------------------------------------------- */

/* A length in tokens, or a system prompt, and how often it is drawn relative to the others. */
typedef struct spry_mix_choice {
    uint32_t tokens;
    double weight;
    char name[SPRY_MIX_NAME]; /* the system prompt's name */
    const char *text; /* a replayed system prompt, borrowed from the line that had it first; NULL: it is made up */
} spry_mix_choice;

typedef struct spry_mix_choices {
    spry_mix_choice list[SPRY_MIX_CHOICES_MAX];
    size_t count;
} spry_mix_choices;

typedef struct spry_mix_request {
    json_t *messages;       /* NULL: made of the lengths; owned */
    json_t *tools;          /* NULL: none; owned */
    uint32_t prompt_tokens; /* including the system prompt */
    uint32_t answer_tokens;
    size_t system; /* index, or SPRY_MIX_CHOICES_MAX: none */
    size_t line;   /* the file's line, from 1; 0: none */
} spry_mix_request;

/* A workload: what it is drawn or replayed from, and its requests. */
typedef struct spry_mix {
    char name[SPRY_MIX_NAME];
    spry_mix_choices prompts, answers, systems;
    spry_mix_request *lines; /* lines of a file that is replayed; NULL: lengths are drawn */
    size_t n_lines, lines_room;
    spry_mix_request *list; /* the requests */
    size_t count;
    uint32_t longest; /* prompt and answer of the longest request made of lengths */
    double scale;
    uint64_t seed, run;
    bool agent;     /* the session of bench_agent.c */
    bool agreement; /* its answers are compared with those without the cache */
} spry_mix;

/* Reads a named mix, else a file: one JSON object with distributions, or JSON lines. Then draws the lengths of `count`
 * requests (0: as many as the file has, or 16), multiplied by `scale`. The same seed gives the same lengths.
 * Deinitialise also on failure. */
spry_status spry_mix_init(spry_mix *mix, const char *name_or_path, size_t count, double scale, uint64_t seed,
                          spry_error *error);
void spry_mix_deinit(spry_mix *mix);

/* Writes the messages of all requests, with the engine's tokenizer and template, and checks that every request fits its
 * context. `run` makes the text differ from that of other runs, so that a server has none of it cached. */
spry_status spry_mix_write(spry_mix *mix, spry_engine *engine, uint64_t run, spry_error *error);

/* The tokens of a prompt, as a server makes it of messages and tools (NULL: none); the caller deinitialises it also on
 * failure. */
spry_status spry_mix_prompt(spry_chat_prompt *prompt, spry_engine *engine, const json_t *messages, const json_t *tools,
                            spry_error *error);

/* A length times `scale`, at least 1. */
uint32_t spry_mix_scaled(uint32_t tokens, double scale);

/* The first `tokens` tokens of a text, or all, as a text that the caller frees. */
spry_status spry_mix_cut(char **out, spry_engine *engine, spry_view text, size_t tokens, spry_error *error);

/* ---- bench_agent.c: the session of --agent ----------------------------------------------------------------------- */

/* Plans the requests of the session, as spry_mix_init; writes their messages, as spry_mix_write. */
spry_status spry_mix_agent_init(spry_mix *mix, double scale, uint64_t seed, spry_error *error);
spry_status spry_mix_agent_write(spry_mix *mix, spry_engine *engine, spry_error *error);

/* Adds the sums of the session, and the second session's, to the report of a run. */
void spry_mix_agent_sums(json_t *run);

/* ---- mix_run.c: clients ------------------------------------------------------------------------------------------ */

/* One answer, as a client sees it. */
typedef struct spry_mix_answer {
    uint64_t began_ns, last_ns;
    double ttft_ms, total_ms; /* ttft_ms 0: no token came */
    size_t prompt_tokens, answer_tokens;
    size_t hit_tokens; /* cached tokens of the prompt */
    bool hits_known;   /* a server need not tell */
    size_t events;     /* pieces of text */
    double *gaps_ms;   /* [n_gaps]: between two pieces; owned */
    size_t n_gaps, gap_room;
    /* Of predictions: compared with those without the cache, with the same most probable token, with the same bits; sum
     * of their divergences. */
    size_t compared, same, identical;
    double divergence;
    bool failed; /* memory was short */
    bool done;
} spry_mix_answer;

/* Call when a piece of an answer arrives. */
void spry_mix_answer_event(spry_mix_answer *answer);

/* bench_agent.c. Compares the predictions of an answer that `session` holds after a prompt of `n_prompt` tokens,
 * computed with what was cached, with those of the same tokens where nothing is. `salt`: another one in each call on an
 * engine. */
spry_status spry_mix_agreement(spry_mix_answer *answer, spry_session *session, spry_engine *engine, size_t n_prompt,
                               uint64_t salt, spry_error *error);

/* ---- mix_server.c: servers --------------------------------------------------------------------------------------- */

typedef struct spry_mix_server {
    char url[1024];  /* without a slash at its end, and without /v1 */
    const char *api; /* "openai" or "ollama" */
    char *model;
    const char *key;
    pthread_mutex_t lock; /* guards `plain` */
    bool plain;           /* requests go without "ignore_eos" */
} spry_mix_server;

/* Asks the server at `url` which interface and which models it has. `model` NULL: its first. `key` NULL: none.
 * Deinitialise also on failure. */
spry_status spry_mix_server_init(spry_mix_server *server, const char *url, const char *model, const char *key,
                                 spry_error *error);
void spry_mix_server_deinit(spry_mix_server *server);

/* Sends a request and waits for its answer; may be called by several threads at once. `server`: a spry_mix_server. */
spry_status spry_mix_server_ask(void *server, spry_mix_answer *answer, const spry_mix_request *request,
                                spry_error *error);

#endif
