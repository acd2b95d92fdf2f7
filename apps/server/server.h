/* What every part of the server shares: the models, what is going on, what happened, and how it was set up.
 *
 * Threads. Each connection has one, which reads a request, renders and tokenises it, hands jobs to the model's
 * scheduler and writes the answer. The scheduler's thread only appends to the answer's channel; it never waits for a
 * client. */
#ifndef SPRY_SERVER_SERVER_H
#define SPRY_SERVER_SERVER_H

#include <stdatomic.h>

#include "platform/energy.h"
#include "pool/model_pool.h"
#include "server/http/access_keys.h"
#include "server/status/registry.h"

typedef struct spry_serve_settings {
    const char *host;
    uint32_t port;
    const char *key_file;
    const char *tls_cert, *tls_key; /* PEM files, both or none */
    const char *cors;               /* an origin that pages may ask from, or "*"; NULL: none */
    bool insecure;                  /* beyond this machine without a key */
    bool allow_pull;                /* requests may bring models into the models folder */
    bool allow_pin;                 /* requests may keep models in memory */
    size_t max_body;                /* bytes of a request */
    size_t max_head;                /* bytes of its head */
    uint32_t connections;           /* at once */
    uint32_t idle_s;                /* a connection on which nothing happens */
    uint32_t answer_s;              /* the longest an answer may take; 0: any time */
    uint32_t grace_s;               /* for answers under way when the server is told to end */
    spry_speculation speculation;
    bool verbose;
} spry_serve_settings;

typedef struct spry_server {
    const spry_serve_settings *settings;
    spry_model_pool *pool;
    struct spry_server_models *models; /* what the pool borrows */
    spry_trace *trace;                 /* NULL: nobody wants one */
    atomic_bool trace_told;            /* that it cannot be written any more */
    spry_energy *meter;
    spry_access_keys keys;
    spry_registry registry;
    const char *models_folder; /* NULL: there is none */
    size_t pool_bytes;         /* that models may take */
    uint32_t answers_max;      /* of one model, under way or waiting */
    uint64_t started_ns;
    atomic_uint open_exchanges; /* requests being answered */
    atomic_ullong numbers;      /* of requests */
    atomic_bool ending;         /* no new work is taken */
    bool loopback;              /* only this machine can reach it */
} spry_server;

#endif
