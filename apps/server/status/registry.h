/* The registry of live status: requests that wait, run or ended recently, counters of every model since the server
 * started, KV memory and throughput of every model. /metrics, /slots, /watch and /props are made from it.
 *
 * The thread of a request adds and removes it and adds its counters; the scheduler's thread writes progress, through
 * atomics where it belongs to one request and under the lock where it belongs to a model. */
#ifndef SPRY_SERVER_REGISTRY_H
#define SPRY_SERVER_REGISTRY_H

#include <pthread.h>
#include <stdatomic.h>

#include "platform/energy.h"
#include "server/status/model_counts.h"
#include "spry_serve.h"

enum { SPRY_REGISTRY_MODELS = 64, SPRY_REGISTRY_ENDED = 64, SPRY_REGISTRY_ID = 64, SPRY_REGISTRY_NAME = 128 };

/* The last second is divided into this many slots. */
enum { SPRY_REGISTRY_SLOTS = 8 };

/* ---- one request ------------------------------------------------------------------------------------------------- */

typedef enum spry_phase {
    SPRY_PHASE_QUEUE,
    SPRY_PHASE_PREFILL,
    SPRY_PHASE_DECODE,
    SPRY_PHASE_DONE, /* from here on: ended */
    SPRY_PHASE_CANCELLED,
    SPRY_PHASE_FAILED
} spry_phase;

const char *spry_phase_name(int phase);

/* One answer. The request owns the memory until it has ended. */
typedef struct spry_request_status {
    char id[SPRY_REGISTRY_ID], model[SPRY_REGISTRY_NAME];
    const char *key; /* the access key of the request, by address; NULL: the server has no keys */
    uint64_t began_ns, submitted_ns, ended_ns;
    size_t prompt_tokens;
    double parts_ms[SPRY_PART_COUNT];         /* up to its submission; once it has ended, all of them */
    spry_result result;                       /* valid once it has ended */
    atomic_int phase;                         /* a spry_phase */
    atomic_ullong started_ns;                 /* when the model's thread took it from the queue; 0: not yet */
    atomic_ullong first_ns;                   /* when its first text came; 0: not yet */
    atomic_size_t pieces;                     /* of text, nearly all of them one token */
    struct spry_request_status *next, **link; /* private */
} spry_request_status;

/* ---- one model --------------------------------------------------------------------------------------------------- */

typedef struct spry_model_record {
    char name[SPRY_REGISTRY_NAME];
    spry_model_counts counts;
    spry_kv_figures kv; /* as of kv_ns */
    uint64_t kv_ns;
    uint32_t pieces[SPRY_REGISTRY_SLOTS]; /* of text, in each slot of the last second */
    uint64_t slot;                        /* number of the newest slot since the clock's start */
} spry_model_record;

/* A model at one moment. */
typedef struct spry_model_status {
    spry_pool_info pool; /* its state and memory, and its scheduler's figures */
    bool in_pool;        /* false: it was removed from the models folder, and only its counters remain */
    bool has_counts;     /* at least one request has reached it */
    spry_model_counts counts;
    spry_kv_figures kv; /* zero unless it is loaded */
    size_t waiting, running;
    double tokens_per_second; /* over about the last second */
} spry_model_status;

/* ---- the registry ------------------------------------------------------------------------------------------------ */

typedef struct spry_registry {
    pthread_mutex_t lock;
    spry_model_record models[SPRY_REGISTRY_MODELS];
    size_t n_models;
    spry_request_status *first, **end;              /* those that have not ended, in the order they came */
    spry_request_status ended[SPRY_REGISTRY_ENDED]; /* a ring of copies */
    size_t n_ended;                                 /* since the start */
    pthread_mutex_t energy_lock;                    /* of what follows */
    uint64_t energy_ns;                             /* when it was read; 0: never */
    spry_joules energy;
} spry_registry;

void spry_registry_init(spry_registry *registry);
void spry_registry_deinit(spry_registry *registry);

/* A request is about to be submitted. */
void spry_registry_begin(spry_registry *registry, spry_request_status *request);

/* A request has ended: `how` is done, cancelled or failed; `result` may be NULL. A copy remains for a while. */
void spry_registry_end(spry_registry *registry, spry_request_status *request, spry_phase how, const spry_result *result,
                       const double parts_ms[SPRY_PART_COUNT]);

/* Adds the counters of a request to its model's. */
void spry_registry_add_counts(spry_registry *registry, const char *model, const spry_model_counts *counts);

/* The model has made progress: adds pieces of text, and samples KV memory unless that was done less than a quarter of a
 * second ago; `force`: in any case. Any thread. */
void spry_registry_sample(spry_registry *registry, const char *model, spry_engine *engine, uint32_t pieces, bool force);

/* Calls `visit` for each request of one key, those that ended at or after `since_ns` first. The lock is held. */
void spry_registry_requests(spry_registry *registry, const char *key, uint64_t since_ns,
                            void (*visit)(void *context, const spry_request_status *request), void *context);

/* How many answers of a model wait and run. */
void spry_registry_load(spry_registry *registry, const char *model, size_t *waiting, size_t *running);

/* Every model, those of the pool first; the caller frees *models. False when memory is short. */
bool spry_registry_models(spry_registry *registry, spry_model_status **models, size_t *count, spry_model_pool *pool);

/* Energy of the machine since the server started. Reading a meter takes milliseconds, so it is read at most once a
 * second. */
void spry_registry_energy(spry_registry *registry, spry_joules *used, spry_energy *meter);

#endif
