/* The server's state for its operators: counters, requests, the machine, and the audit log. */
#ifndef SPRY_SERVER_STATUS_STATUS_H
#define SPRY_SERVER_STATUS_STATUS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "platform/energy.h"
#include "platform/machine_state.h"
#include "spry.h"
#include "spry_serve.h"

enum { SPRY_HISTOGRAM_BUCKETS = 15 };

typedef struct spry_histogram {
    uint64_t buckets[SPRY_HISTOGRAM_BUCKETS + 1]; /* the last one: above every limit */
    uint64_t count;
    double sum; /* seconds */
} spry_histogram;

/* The upper limits of the buckets, in seconds, ascending. */
extern const double spry_histogram_limits[SPRY_HISTOGRAM_BUCKETS];

void spry_histogram_add(spry_histogram *histogram, double seconds);
void spry_histogram_merge(spry_histogram *into, const spry_histogram *from);

/* ---- counters of a model ----------------------------------------------------------------------------------------- */

/* Counters of one model since the server started, or of one request that is about to be added to them. */

typedef struct spry_model_counts {
    uint64_t requests, failed, cancelled;
    uint64_t prompt_us, decode_us; /* time of computing prompts and of decoding answers */
    uint64_t longest;              /* prompt and answer together, in tokens */
    uint64_t prompt_tokens, cached_tokens, span_tokens, generated_tokens, drafted_tokens, accepted_tokens;
    uint64_t pictures, picture_tokens,
        picture_us;             /* pictures of prompts, their tokens, time of decoding and encoding */
    uint64_t first_call_tokens; /* until the first tool call of an answer was complete */
    uint64_t tried_at[SPRY_DRAFT_MOST], accepted_at[SPRY_DRAFT_MOST]; /* draft tokens, by position in their step */
    uint64_t draft_lengths[SPRY_DRAFT_MOST + 1];                      /* steps, by number of draft tokens */
    /* Answers with drafts, by the median and the 95th percentile of refused tokens a step. */
    uint64_t refused_p50[SPRY_DRAFT_MOST + 1], refused_p95[SPRY_DRAFT_MOST + 1];
    spry_histogram first_token, between_tokens, queue, first_call;
} spry_model_counts;

/* Adds the drafts of one answer. */
void spry_model_counts_add_drafts(spry_model_counts *counts, const spry_draft_report *drafts);

/* Steps with draft tokens. */
uint64_t spry_model_counts_drafts(const spry_model_counts *counts);

void spry_model_counts_merge(spry_model_counts *into, const spry_model_counts *from);

/* A counter as /metrics shows it. One with several values has a label whose value is the index, counted from
 * `first_label`. */
typedef struct spry_counter_field {
    const char *name, *help;
    size_t offset, n_values; /* uint64_t in spry_model_counts */
    const char *label;       /* NULL: one value */
    unsigned first_label;
} spry_counter_field;

typedef struct spry_histogram_field {
    const char *name, *help;
    size_t offset; /* a spry_histogram in spry_model_counts */
} spry_histogram_field;

enum { SPRY_COUNTER_FIELDS = 20, SPRY_HISTOGRAM_FIELDS = 4 };

extern const spry_counter_field spry_counter_fields[SPRY_COUNTER_FIELDS];
extern const spry_histogram_field spry_histogram_fields[SPRY_HISTOGRAM_FIELDS];

const uint64_t *spry_model_counts_values(const spry_model_counts *counts, const spry_counter_field *field);
const spry_histogram *spry_model_counts_histogram(const spry_model_counts *counts, const spry_histogram_field *field);

/* ---- requests and models ----------------------------------------------------------------------------------------- */

/* The registry of live status: requests that wait, run or ended recently, counters of every model since the server
 * started, KV memory and throughput of every model. /metrics, /slots, /watch and /props are made from it.
 *
 * The thread of a request adds and removes it and adds its counters; the scheduler's thread writes progress, through
 * atomics where it belongs to one request and under the lock where it belongs to a model. */

enum { SPRY_REGISTRY_MODELS = 64, SPRY_REGISTRY_ENDED = 64, SPRY_REGISTRY_ID = 64, SPRY_REGISTRY_NAME = 128 };

/* The last second is divided into this many slots. */
enum { SPRY_REGISTRY_SLOTS = 8 };

/* ---- one request ------------------------------------------------------------------------------------------------- */

typedef enum spry_phase {
    SPRY_PHASE_QUEUE,
    SPRY_PHASE_PREFILL,
    SPRY_PHASE_DECODE,
    SPRY_PHASE_DONE, /* this phase and the next ones: the request has ended */
    SPRY_PHASE_CANCELLED,
    SPRY_PHASE_FAILED
} spry_phase;

const char *spry_phase_name(int phase);

/* One answer. The request owns the memory until it has ended. */
typedef struct spry_request_status {
    char id[SPRY_REGISTRY_ID], model[SPRY_REGISTRY_NAME];
    char ignored[SPRY_REGISTRY_NAME]; /* parts of the request that nothing uses; cut where the list is longer */
    const char *key;                  /* the access key of the request, by address; NULL: the server has no keys */
    uint64_t began_ns, submitted_ns, ended_ns;
    size_t prompt_tokens;
    double parts_ms[SPRY_PART_COUNT];         /* up to its submission; once it has ended, all of them */
    spry_result result;                       /* valid once it has ended */
    atomic_int phase;                         /* a spry_phase */
    atomic_ullong started_ns;                 /* when the model's thread took it from the queue; 0: not yet */
    atomic_ullong first_ns;                   /* when its first text came; 0: not yet */
    atomic_size_t pieces;                     /* pieces of text, of which nearly all are one token */
    struct spry_request_status *next, **link; /* private */
} spry_request_status;

/* ---- one model --------------------------------------------------------------------------------------------------- */

typedef struct spry_model_record {
    char name[SPRY_REGISTRY_NAME];
    spry_model_counts counts;
    spry_kv_figures kv; /* figures at time kv_ns */
    uint64_t kv_ns;
    uint32_t pieces[SPRY_REGISTRY_SLOTS]; /* pieces of text in each slot of the last second */
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
    spry_request_status *first, **end;              /* requests that have not ended, in the order they came */
    spry_request_status ended[SPRY_REGISTRY_ENDED]; /* a ring of copies */
    size_t n_ended;                                 /* since the start */
    pthread_mutex_t energy_lock;                    /* guards the next two members */
    uint64_t energy_ns;                             /* when energy was read; 0: never */
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

/* Calls `visit` for each request of one key, first for requests that ended at or after `since_ns`. The lock is held. */
void spry_registry_requests(spry_registry *registry, const char *key, uint64_t since_ns,
                            void (*visit)(void *context, const spry_request_status *request), void *context);

/* How many answers of a model wait and run. */
void spry_registry_load(spry_registry *registry, const char *model, size_t *waiting, size_t *running);

/* Every model, models of the pool first; the caller frees *models. False when memory is short. */
bool spry_registry_models(spry_registry *registry, spry_model_status **models, size_t *count, spry_model_pool *pool);

/* Energy of the machine since the server started. Reading a meter takes milliseconds, so it is read at most once a
 * second. */
void spry_registry_energy(spry_registry *registry, spry_joules *used, spry_energy *meter);

/* ---- the machine ------------------------------------------------------------------------------------------------- */

/* The machine's state, read at most once a second however many clients ask for it. Thread-safe. */

typedef struct spry_machine_watch {
    pthread_mutex_t lock;
    uint64_t now_ns, turn_ns;                /* time of `now`; when `earlier` became `before` */
    spry_machine_state now, earlier, before; /* `before` is half a minute to a minute older than `now` */
} spry_machine_watch;

void spry_machine_watch_init(spry_machine_watch *watch);
void spry_machine_watch_deinit(spry_machine_watch *watch);

/* *before: an earlier state, for differences of counters. */
void spry_machine_watch_read(spry_machine_watch *watch, spry_machine_state *before, spry_machine_state *now);

/* ---- the audit log ----------------------------------------------------------------------------------------------- */

/* The audit log: one line of JSON for every request that has ended, without prompts, answers or keys. Any thread. */

/* The log's facts about one request; filled while it is served. */
typedef struct spry_audit_facts {
    char method[16], path[128];       /* cut where they are longer */
    char address[48];                 /* address of the client */
    char model[128];                  /* the model that answered; "": none was used */
    size_t prompt, cached, generated; /* tokens; `cached`: of the prompt */
    bool whole;                       /* the reply was sent completely */
} spry_audit_facts;

typedef struct spry_audit_log {
    int file;           /* -1: none */
    atomic_bool failed; /* a line could not be written; one warning was printed */
} spry_audit_log;

/* `path` NULL: none; "-": standard error. Lines are appended; a new file can be read by its owner only. */
spry_status spry_audit_log_open(spry_audit_log *log, const char *path, spry_error *error);
void spry_audit_log_close(spry_audit_log *log);

struct spry_exchange;

/* Writes the line of a request that has ended. */
void spry_audit_log_write(spry_audit_log *log, const struct spry_exchange *exchange);

/* Prints a line about it for people, where the server runs on a terminal: time, status, path, model, tokens. Files of
 * the page and other requests that need no key are shown when they fail. */
void spry_request_show(const struct spry_exchange *exchange);

#endif
