/* Models, loaded on first request, shared by all users, and unloaded least recently used first when memory is needed. A
 * name is looked up only in the models folder: it never leaves that folder by "..", an absolute path or a link. */
#ifndef SPRY_POOL_MODEL_POOL_H
#define SPRY_POOL_MODEL_POOL_H

#include "base/log.h"
#include "spry.h"

typedef struct spry_model_pool spry_model_pool;

/* A model without a file in the folder: linked into the program, or named on the command line. */
typedef struct spry_pool_entry {
    const char *name;
    const char *alias; /* NULL, or a second name that is accepted but never shown */
    const char *path;  /* or */
    const void *data;
    size_t size;
    const char *drafter; /* NULL, or the name of the entry that drafts for it */
    bool pinned;
} spry_pool_entry;

/* Pointers are borrowed until the pool is destroyed; the list itself is copied. */
typedef struct spry_pool_options {
    const char *models_dir; /* NULL: only the entries */
    const spry_pool_entry *entries;
    size_t n_entries;
    size_t max_bytes;           /* limit for all loaded models; 0: three quarters of the memory */
    double keep_alive_s;        /* a model without users is unloaded after this time; negative: never */
    spry_engine_options engine; /* for every model; with at least as many sessions as jobs can run */
    spry_jobs_options sched;    /* for every model */
    spry_log log;
} spry_pool_options;

/* A loaded model, referenced by its users. */
typedef struct spry_pooled {
    const char *name;
    spry_engine *engine;
} spry_pooled;

spry_status spry_model_pool_create(spry_model_pool **out, const spry_pool_options *options, spry_error *error);
void spry_model_pool_destroy(spry_model_pool *pool); /* all models must be released */

/* Loads the model unless it is loaded; NULL: the first entry. Concurrent requests for one model wait for one load.
 * SPRY_ERR_FILE: no model of that name. SPRY_ERR_MEMORY: it can never fit, with the figures. SPRY_ERR_BUSY: it fits
 * once other models are released. */
spry_status spry_model_pool_acquire(spry_model_pool *pool, const spry_pooled **out, const char *name,
                                    spry_error *error);
void spry_model_pool_release(spry_model_pool *pool, const spry_pooled *model);

/* Unloads a model; never loads one. SPRY_ERR_BUSY: it is unloaded later, when it has no users and is not pinned, or, if
 * it is being loaded, not at all. */
spry_status spry_model_pool_unload(spry_model_pool *pool, const char *name, spry_error *error);
/* A pinned model is never unloaded, neither for others nor when idle. Pinning loads nothing. */
spry_status spry_model_pool_pin(spry_model_pool *pool, const char *name, bool pin, spry_error *error);

/* The idle time after which this model is unloaded, instead of keep_alive_s, until then; negative: never. */
void spry_model_pool_keep(spry_model_pool *pool, const spry_pooled *model, double seconds);

typedef enum spry_pool_state { SPRY_POOL_ON_DISK, SPRY_POOL_LOADING, SPRY_POOL_LOADED } spry_pool_state;

typedef struct spry_pool_info {
    char name[128];
    char path[1024]; /* empty for bundled ones */
    spry_pool_state state;
    size_t file_bytes, loaded_bytes; /* measured */
    size_t estimated_bytes;          /* before loading */
    int64_t modified;                /* seconds since 1970 */
    uint32_t users;
    bool pinned;
    double load_ms, idle_s; /* of loaded ones */
    double expires_s;       /* until it is unloaded; negative: not scheduled */
    spry_jobs_figures work; /* of loaded ones */
} spry_pool_info;

/* Calls `visit` for every model until it returns false. */
void spry_model_pool_each(spry_model_pool *pool, bool (*visit)(void *context, const spry_pool_info *info),
                          void *context);

#endif
