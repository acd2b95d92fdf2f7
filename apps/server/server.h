/* State that every part of the server shares.
 *
 * Threads. A worker thread of the HTTP server reads a request, renders and tokenises it, submits jobs to the model's
 * scheduler and writes the reply. The scheduler's thread only appends to the channel of a request; it never
 * waits for a client. */
#ifndef SPRY_SERVER_SERVER_H
#define SPRY_SERVER_SERVER_H

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "platform/energy.h"
#include "server/api/responses_store.h"
#include "server/http/access_keys.h"
#include "server/request/streams.h"
#include "server/status/status.h"
#include "spry_serve.h"

typedef struct spry_serve_settings {
    const char *host;
    uint32_t port;
    const char *key_file;
    const char *tls_cert, *tls_key; /* PEM files, both or none */
    const char *cors;               /* the origin whose pages may send requests, or "*"; NULL: none */
    bool insecure;                  /* reachable from other machines without keys */
    bool allow_pull;                /* /api/pull may download models */
    const char *like;               /* "llama-server": its details where they contradict OpenAI's; else OpenAI's */
    bool strict;                    /* refuse unknown fields and blocks of requests */
    bool any_model;                 /* a request for an unknown model uses the first one */
    const char *alias, *tags;       /* further names of the first model, and its tags; NULL: none */
    bool no_autoload;               /* only /models/load loads models */
    bool allow_pin;                 /* /models/pin is allowed */
    bool allow_chats;               /* /api/chats is allowed */
    const char *chats;              /* file of stored chats; NULL: the user's */
    const char *allow_fetch;        /* hosts that pictures are fetched from, with commas between them; NULL: none */
    const char *allow_tool;         /* addresses that /v1/tools/call may call, with commas between them; NULL: none */
    uint32_t tool_s;                /* seconds that such a call may take */
    const char *mcp;                /* file of MCP servers (mcp/mcp.h); NULL: none */
    size_t max_body;                /* limit for the body of a request, in bytes */
    size_t max_head;                /* limit for its head */
    size_t request_memory;          /* limit for what all requests take: bodies, values, texts, replies */
    uint32_t connections;           /* limit for open connections */
    uint32_t per_address;           /* limit for connections from one address; 0: half of all, on loopback none */
    uint32_t head_s;                /* a connection without a complete head is closed after this time */
    bool only_named;                /* none of the models folder, and not the bundled ones */
    const char *disable;            /* paths that are turned off, with commas between them; NULL: none */
    const char *defaults;           /* settings of requests that do not set them, as JSON; NULL: none */
    bool public_metrics;            /* /metrics needs no key */
    spry_key_rates rates;           /* rates of each key */
    const char *audit_log;          /* NULL: none */
    uint32_t idle_s;                /* an idle connection is closed after this time */
    uint32_t max_tokens;            /* limit for every answer; 0: none */
    float event_s;                  /* a stream without an event for this time gets one */
    uint32_t answer_s;              /* limit for the time of a request; 0: none */
    uint32_t grace_s;               /* time for unfinished requests when the server stops */
    size_t responses_bytes;         /* limit for stored responses */
    uint32_t responses_s;           /* seconds that responses are kept; 0: none is kept */
    spry_speculation speculation;
    bool draft_precise;
    uint32_t draft_most;     /* tokens for a step; 0: as many as pay */
    bool answer_spans;       /* answers become fragments unless the request has "answer_span": false */
    const char *agent_cache; /* "exact" or "off" */
    bool slide;              /* full contexts slide unless the request has "context_overflow" */
    uint32_t keep;           /* first tokens that a sliding context keeps */
    bool verbose;
} spry_serve_settings;

typedef struct spry_server {
    const spry_serve_settings *settings;
    spry_model_pool *pool;
    struct spry_server_models *models; /* the entries that the pool borrows */
    spry_trace *trace;                 /* NULL: none */
    atomic_bool trace_failed;          /* a warning about the trace file was printed */
    spry_energy *meter;
    spry_machine_watch machine;
    spry_access_keys keys;
    spry_key_limits limits;
    spry_audit_log audit;
    bool shows_requests; /* print one line per request on the terminal */
    spry_registry registry;
    atomic_bool cutting; /* --grace has passed: unfinished answers end now */
    spry_response_store responses;
    spry_kept_streams streams;
    json_t *defaults;     /* default fields of requests, as those of a derived model; NULL: none */
    json_t *agents;       /* agents.json; NULL: prompts of agents stay as they are */
    json_t *descriptions; /* of model files, by path: reading them takes long (ollama_models.c) */
    pthread_mutex_t descriptions_lock;
    struct spry_mcp *mcp; /* NULL: none */
    struct spry_speech_service *speech;
    struct spry_answer_spans *spans; /* NULL: none */
    const char *models_folder;       /* NULL: none */
    size_t pool_bytes;               /* limit for the memory of all loaded models */
    uint32_t models_max;             /* limit for the number of loaded models; 0: none */
    uint32_t slots;                  /* answers of one model that run at the same time */
    uint32_t answers_max;            /* maximum answers of one model, running and waiting */
    uint64_t started_ns;
    atomic_uint open_exchanges; /* requests without a complete reply */
    atomic_size_t memory;       /* bytes of --request-memory that requests use now */
    atomic_ullong numbers;      /* the number of the last request */
    atomic_bool ending;         /* the server is stopping: new requests are refused */
    bool loopback;              /* the server listens on a loopback address */
} spry_server;

/* Where the interfaces of OpenAI and of llama-server contradict each other, follow the latter. */
static inline bool spry_server_likes_llama(const spry_server *server)
{
    return strcmp(server->settings->like, "llama-server") == 0;
}

#endif
