/* Models, loaded when they are first asked for, shared by everybody, and let go least recently used first when they
 * would not fit. A name is looked for in the models folder and nowhere else: it never leaves that folder, neither by
 * "..", nor an absolute path, nor a link. */
#ifndef SPRY_POOL_MODEL_POOL_H
#define SPRY_POOL_MODEL_POOL_H

#include "base/log.h"
#include "spry.h"

typedef struct spry_model_pool spry_model_pool;

/* A model that can be had without a file of the folder: those linked into the program, or named on the command line. */
typedef struct spry_pool_entry {
    const char *name;
    const char *alias; /* NULL, or a second name that is understood and shown nowhere */
    const char *path;  /* or */
    const void *data;
    size_t size;
    const char *drafter; /* NULL, or the name of the entry that drafts for it */
    bool pinned;
} spry_pool_entry;

/* What it points to is borrowed until the pool is destroyed; the list itself is copied. */
typedef struct spry_pool_options {
    const char *models_dir; /* NULL: only the entries */
    const spry_pool_entry *entries;
    size_t n_entries;
    size_t max_bytes;           /* of everything the loaded models need; 0: three quarters of the memory */
    double keep_alive_s;        /* a model that nobody uses for so long is let go; negative: never */
    spry_engine_options engine; /* for every model; with at least as many sessions as jobs can run */
    spry_jobs_options sched;    /* the same */
    spry_log log;
} spry_pool_options;

/* A loaded model, held by whoever acquired it. */
typedef struct spry_pooled {
    const char *name;
    spry_engine *engine;
} spry_pooled;

spry_status spry_model_pool_create(spry_model_pool **out, const spry_pool_options *options, spry_error *error);
void spry_model_pool_destroy(spry_model_pool *pool); /* nothing may be held any more */

/* Loads the model unless it is there; NULL: the first entry. Two who ask for the same model at once wait for one
 * loading. SPRY_ERR_FILE: there is none of that name. SPRY_ERR_MEMORY: it can never fit, with the figures.
 * SPRY_ERR_BUSY: it would, once others that are in use are let go of. */
spry_status spry_model_pool_acquire(spry_model_pool *pool, const spry_pooled **out, const char *name,
                                    spry_error *error);
void spry_model_pool_release(spry_model_pool *pool, const spry_pooled *model);

/* Lets a model go. Nothing is loaded for that. SPRY_ERR_BUSY: it goes once nobody uses it and it is not pinned, or, if
 * it is being loaded, not at all. */
spry_status spry_model_pool_unload(spry_model_pool *pool, const char *name, spry_error *error);
/* A pinned model is let go neither for others nor for being idle. Pinning loads nothing. */
spry_status spry_model_pool_pin(spry_model_pool *pool, const char *name, bool pin, spry_error *error);

/* How long a model that is held is kept once nobody uses it, in place of keep_alive_s, until it is let go; negative:
 * for good. */
void spry_model_pool_keep(spry_model_pool *pool, const spry_pooled *model, double seconds);

typedef enum spry_pool_state { SPRY_POOL_ON_DISK, SPRY_POOL_LOADING, SPRY_POOL_LOADED } spry_pool_state;

typedef struct spry_pool_info {
    char name[128];
    char path[1024]; /* empty for bundled ones */
    spry_pool_state state;
    size_t file_bytes, loaded_bytes; /* what it takes, measured */
    size_t estimated_bytes;          /* before it was loaded */
    int64_t modified;                /* seconds since 1970 */
    uint32_t users;
    bool pinned;
    double load_ms, idle_s; /* of loaded ones */
    double expires_s;       /* until it is let go; negative: it is not, as things stand */
    spry_jobs_figures work; /* of loaded ones */
} spry_pool_info;

/* Calls for every model there is; false from `visit` ends it. */
void spry_model_pool_each(spry_model_pool *pool, bool (*visit)(void *context, const spry_pool_info *info),
                          void *context);

#endif
