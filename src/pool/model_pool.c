/* There is one slot for each model ever requested. A slot's state changes under the lock; slow operations (opening,
 * closing) run without it, in a state for which other threads wait. Bytes are reserved before a model is opened, so
 * that two concurrent loads cannot exceed the limit. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/meter.h"
#include "base/number.h"
#include "platform/clock.h"
#include "platform/memory.h"
#include "platform/model_names.h"
#include "platform/threads.h"
#include "pool/model_load.h"
#include "spry_pictures.h"
#include "spry_serve.h"

typedef enum slot_state { SLOT_EMPTY, SLOT_LOADING, SLOT_LOADED, SLOT_LEAVING } slot_state;

typedef struct slot {
    spry_pooled pooled; /* the public part */
    struct slot *next;
    char name[SPRY_MODEL_NAME_MAX + 1], path[SPRY_MODEL_PATH_MAX + 1];
    const spry_pool_entry *entry; /* NULL: the model is from the folder */
    spry_loaded_model loaded;
    slot_state state;
    bool pinned;
    uint32_t users, watchers; /* watchers read figures; the model is unloaded only after they are done */
    size_t reserved;          /* bytes counted against the limit */
    size_t estimated, measured;
    double keep_s;    /* seconds without users before it is unloaded; negative: never */
    uint64_t used_ns; /* time of the last release */
    double load_ms;
    uint64_t n_loads;   /* finished loads, successful or not */
    spry_error failure; /* error of the last load; status SPRY_OK: none */
} slot;

struct spry_model_pool {
    spry_pool_options options;
    spry_engine_options engine;
    spry_jobs_options jobs;
    spry_log log;
    spry_pool_entry *entries; /* a copy; the strings are borrowed */
    char models_dir[SPRY_MODEL_PATH_MAX + 1];
    size_t max_bytes;
    pthread_mutex_t lock;
    pthread_cond_t changed; /* signalled when a slot's state changes */
    pthread_cond_t wake;    /* wakes the sweeper */
    pthread_t sweeper;
    slot *slots;
    bool stopping;
};

static const double gb = 1e9;

/* ---- slots ------------------------------------------------------------------------------------------------------ */

static spry_model_place place_of_entry(const spry_pool_entry *entry)
{
    return (spry_model_place){entry->data ? entry->name : entry->path, entry->data, entry->size};
}

static spry_model_place place_of(const slot *s)
{
    return s->entry ? place_of_entry(s->entry) : (spry_model_place){.path = s->path};
}

static const spry_pool_entry *find_entry(const spry_model_pool *pool, const char *name)
{
    for (size_t i = 0; i < pool->options.n_entries; i++) {
        const spry_pool_entry *entry = &pool->entries[i];
        if (strcmp(entry->name, name) == 0 || (entry->alias && strcmp(entry->alias, name) == 0))
            return entry;
    }
    return NULL;
}

static slot *add_slot(spry_model_pool *pool, const char *name, const spry_pool_entry *entry)
{
    slot *s = calloc(1, sizeof *s);
    if (!s)
        return NULL;
    snprintf(s->name, sizeof s->name, "%s", name);
    s->entry = entry;
    s->pinned = entry && entry->pinned;
    s->pooled.name = s->name;
    s->next = pool->slots;
    return pool->slots = s;
}

static slot *find_slot(const spry_model_pool *pool, const char *name)
{
    slot *s = pool->slots;
    while (s && strcmp(s->name, name) != 0)
        s = s->next;
    return s;
}

/* The slot of a name, created if new. The folder is searched unless the model is loaded. */
static spry_status find_model(spry_model_pool *pool, slot **out, const char *name, spry_error *error)
{
    char called[SPRY_MODEL_NAME_MAX + 1], path[SPRY_MODEL_PATH_MAX + 1] = "";
    const spry_pool_entry *entry = name ? find_entry(pool, name) : pool->entries;
    if (!name && !pool->options.n_entries)
        return spry_fail(error, SPRY_ERR_FILE, "no model was named, and there is none to use then");
    *out = name ? find_slot(pool, name) : NULL;
    if (*out && (*out)->state != SLOT_EMPTY)
        return SPRY_OK;
    if (!entry) {
        const char *folder = pool->models_dir[0] ? pool->models_dir : NULL;
        spry_status status = spry_model_name_find(called, path, folder, name, error);
        if (status)
            return status;
        entry = find_entry(pool, called);
        name = called;
    }
    name = entry ? entry->name : name;
    slot *s = find_slot(pool, name);
    if (!s)
        s = add_slot(pool, name, entry);
    if (!s)
        return spry_fail_memory(error, "a model's place", sizeof *s);
    if (!entry && s->state == SLOT_EMPTY)
        snprintf(s->path, sizeof s->path, "%s", path);
    *out = s;
    return SPRY_OK;
}

static void set_state(spry_model_pool *pool, slot *s, slot_state state)
{
    s->state = state;
    pthread_cond_broadcast(&pool->changed);
    pthread_cond_signal(&pool->wake);
}

/* ---- unloading --------------------------------------------------------------------------------------------------- */

/* Unloads a model. Called with the lock held, which is released while the model is closed. */
static void unload(spry_model_pool *pool, slot *s, const char *why)
{
    set_state(pool, s, SLOT_LEAVING);
    while (s->watchers)
        pthread_cond_wait(&pool->changed, &pool->lock);
    pthread_mutex_unlock(&pool->lock);
    spry_loaded_model_close(&s->loaded);
    spry_log_write(&pool->log, SPRY_LOG_INFO, "%s: let go, %s", s->name, why);
    pthread_mutex_lock(&pool->lock);
    s->reserved = 0;
    set_state(pool, s, SLOT_EMPTY);
}

static bool can_go(const slot *s)
{
    return s->state == SLOT_LOADED && !s->users && !s->pinned;
}

static size_t reserved_bytes(const spry_model_pool *pool)
{
    size_t bytes = 0;
    for (const slot *s = pool->slots; s; s = s->next)
        if (!spry_checked_add(&bytes, bytes, s->reserved))
            return SIZE_MAX;
    return bytes;
}

/* True if the limits allow another model of this size. A model may need more than estimated, so more than the limit may
 * be reserved already. */
static bool has_room(const spry_model_pool *pool, size_t bytes)
{
    size_t reserved = reserved_bytes(pool), count = 0, most = pool->options.max_models;
    for (const slot *s = pool->slots; s; s = s->next)
        count += s->reserved > 0;
    return reserved <= pool->max_bytes && bytes <= pool->max_bytes - reserved && (!most || count < most);
}

/* The least recently used model without users; NULL: all models are in use. */
static slot *least_recent(const spry_model_pool *pool)
{
    slot *oldest = NULL;
    for (slot *s = pool->slots; s; s = s->next)
        if (can_go(s) && (!oldest || s->used_ns < oldest->used_ns))
            oldest = s;
    return oldest;
}

static bool any_leaving(const spry_model_pool *pool)
{
    for (const slot *s = pool->slots; s; s = s->next)
        if (s->state == SLOT_LEAVING)
            return true;
    return false;
}

/* Reserves bytes for a model and unloads others if needed. Called with the lock held, which is released meanwhile. */
static spry_status reserve(spry_model_pool *pool, slot *s, size_t bytes, spry_error *error)
{
    if (bytes > pool->max_bytes)
        return spry_fail(error, SPRY_ERR_MEMORY, "%s: needs %.3f GB, but models may take %.3f GB in all", s->name,
                         (double)bytes / gb, (double)pool->max_bytes / gb);
    while (!has_room(pool, bytes)) {
        slot *oldest = least_recent(pool);
        if (oldest)
            unload(pool, oldest, "to make room");
        else if (any_leaving(pool))
            pthread_cond_wait(&pool->changed, &pool->lock);
        else
            return spry_fail(error, SPRY_ERR_BUSY,
                             "%s: needs %.3f GB, but models in use or pinned take %.3f of %.3f GB or are as many as "
                             "may be loaded; try again later",
                             s->name, (double)bytes / gb, (double)reserved_bytes(pool) / gb,
                             (double)pool->max_bytes / gb);
    }
    s->reserved = bytes;
    return SPRY_OK;
}

/* ---- loading ----------------------------------------------------------------------------------------------------- */

/* The location of a model's drafter; false: it has none. */
static bool drafter_of(const spry_model_pool *pool, const slot *s, spry_model_place *place)
{
    const spry_pool_entry *entry = s->entry && s->entry->drafter ? find_entry(pool, s->entry->drafter) : NULL;
    if (entry)
        *place = place_of_entry(entry);
    return entry;
}

/* Estimates, opens and measures. Called with the lock held, which is released during slow operations. */
static spry_status load(spry_model_pool *pool, slot *s, spry_error *error)
{
    const spry_model_place model = place_of(s);
    spry_model_place drafter;
    bool drafted = drafter_of(pool, s, &drafter);
    spry_engine_options engine = pool->engine;
    if (s->entry != pool->entries) /* adapters and a tower are made for one model, the first */
        engine.lora = engine.mmproj = NULL;
    uint64_t start = spry_clock_ns();
    size_t bytes = 0;
    pthread_mutex_unlock(&pool->lock);
    spry_status status = spry_loaded_model_estimate(&bytes, &model, drafted ? &drafter : NULL, &engine, error);
    pthread_mutex_lock(&pool->lock);
    s->estimated = bytes;
    if (!status)
        status = reserve(pool, s, bytes, error);
    if (status)
        return status;
    pthread_mutex_unlock(&pool->lock);
    status = spry_loaded_model_open(&s->loaded, &model, drafted ? &drafter : NULL, &engine, &pool->jobs, error);
    if (!status && (status = spry_loaded_model_measure(&bytes, &s->loaded, error)))
        spry_loaded_model_close(&s->loaded);
    pthread_mutex_lock(&pool->lock);
    s->reserved = status ? 0 : bytes;
    s->measured = bytes;
    s->load_ms = (double)(spry_clock_ns() - start) / 1e6;
    return status;
}

/* Loads the model of an empty slot. Called with the lock held. */
static spry_status fill_slot(spry_model_pool *pool, slot *s)
{
    set_state(pool, s, SLOT_LOADING);
    spry_error error = {0};
    spry_meter_pause();
    spry_status status = load(pool, s, &error);
    spry_meter_resume();
    s->failure = error;
    s->n_loads++;
    if (!status) {
        s->pooled.engine = s->loaded.engine;
        s->keep_s = pool->options.keep_alive_s;
        s->used_ns = spry_clock_ns();
        spry_log_write(&pool->log, SPRY_LOG_INFO, "%s: loaded in %.0f ms, takes %.3f GB", s->name, s->load_ms,
                       (double)s->measured / gb);
    }
    set_state(pool, s, status ? SLOT_EMPTY : SLOT_LOADED);
    return status;
}

spry_status spry_model_pool_acquire(spry_model_pool *pool, const spry_pooled **out, const char *name, spry_error *error)
{
    slot *s;
    *out = NULL;
    pthread_mutex_lock(&pool->lock);
    spry_status status = find_model(pool, &s, name, error);
    while (!status && s->state != SLOT_LOADED) {
        uint64_t n_loads = s->n_loads;
        if (s->state == SLOT_EMPTY)
            status = fill_slot(pool, s);
        else
            pthread_cond_wait(&pool->changed, &pool->lock);
        if (s->state == SLOT_EMPTY && s->n_loads != n_loads && s->failure.status) {
            status = s->failure.status; /* the failure of the loading thread is reported to all waiting ones */
            if (error)
                *error = s->failure;
        }
    }
    if (!status) {
        s->users++;
        *out = &s->pooled;
    }
    pthread_mutex_unlock(&pool->lock);
    return status;
}

static void release(spry_model_pool *pool, const spry_pooled *model, bool used)
{
    if (!model)
        return;
    pthread_mutex_lock(&pool->lock);
    slot *s = find_slot(pool, model->name);
    s->users--;
    if (used)
        s->used_ns = spry_clock_ns();
    pthread_cond_signal(&pool->wake);
    pthread_mutex_unlock(&pool->lock);
}

void spry_model_pool_release(spry_model_pool *pool, const spry_pooled *model)
{
    release(pool, model, true);
}

void spry_model_pool_release_unused(spry_model_pool *pool, const spry_pooled *model)
{
    release(pool, model, false);
}

spry_status spry_model_pool_unload(spry_model_pool *pool, const char *name, spry_error *error)
{
    slot *s;
    pthread_mutex_lock(&pool->lock);
    spry_status status = find_model(pool, &s, name, error);
    if (!status && s->state == SLOT_LOADED)
        s->keep_s = 0; /* if it cannot be unloaded now, the sweeper thread does it later */
    if (!status && can_go(s))
        unload(pool, s, "as asked");
    else if (!status && s->state == SLOT_LOADED)
        status = spry_fail(error, SPRY_ERR_BUSY, "%s: %s", s->name, s->users ? "it is in use" : "it is pinned");
    else if (!status && s->state == SLOT_LOADING)
        status = spry_fail(error, SPRY_ERR_BUSY, "%s: it is being loaded", s->name);
    pthread_mutex_unlock(&pool->lock);
    return status;
}

spry_status spry_model_pool_pin(spry_model_pool *pool, const char *name, bool pin, spry_error *error)
{
    slot *s;
    pthread_mutex_lock(&pool->lock);
    spry_status status = find_model(pool, &s, name, error);
    if (!status) {
        s->pinned = pin;
        pthread_cond_signal(&pool->wake);
    }
    pthread_mutex_unlock(&pool->lock);
    return status;
}

void spry_model_pool_keep(spry_model_pool *pool, const spry_pooled *model, double seconds)
{
    pthread_mutex_lock(&pool->lock);
    find_slot(pool, model->name)->keep_s = seconds;
    pthread_mutex_unlock(&pool->lock);
}

bool spry_model_pool_kv(spry_model_pool *pool, const char *name, spry_kv_figures *figures)
{
    pthread_mutex_lock(&pool->lock);
    slot *s = find_slot(pool, name);
    bool loaded = s && s->state == SLOT_LOADED;
    if (loaded) {
        s->watchers++;
        pthread_mutex_unlock(&pool->lock);
        spry_engine_kv_figures(s->pooled.engine, figures);
        pthread_mutex_lock(&pool->lock);
        s->watchers--;
        pthread_cond_broadcast(&pool->changed);
    }
    pthread_mutex_unlock(&pool->lock);
    return loaded;
}

/* ---- expiry of unused models ------------------------------------------------------------------------------------- */

static bool can_expire(const slot *s)
{
    return can_go(s) && s->keep_s >= 0;
}

/* Nanoseconds until a model expires. */
static int64_t time_left(const slot *s)
{
    double keep = s->keep_s < 1e9 ? s->keep_s : 1e9;
    return (int64_t)(keep * 1e9) - (int64_t)(spry_clock_ns() - s->used_ns);
}

/* The model that expires first; NULL: none expires. */
static slot *first_to_expire(const spry_model_pool *pool)
{
    slot *first = NULL;
    for (slot *s = pool->slots; s; s = s->next)
        if (can_expire(s) && (!first || time_left(s) < time_left(first)))
            first = s;
    return first;
}

/* The sweeper thread: sleeps until the first model expires, or without limit when there is none, and unloads it. */
static void *sweep(void *argument)
{
    spry_model_pool *pool = argument;
    pthread_mutex_lock(&pool->lock);
    while (!pool->stopping) {
        slot *first = first_to_expire(pool);
        int64_t left = first ? time_left(first) : 0;
        if (!first) {
            pthread_cond_wait(&pool->wake, &pool->lock);
        } else if (left > 0) {
            spry_background_wait(&pool->wake, &pool->lock, (uint64_t)left);
        } else {
            unload(pool, first, "because it was idle");
        }
    }
    pthread_mutex_unlock(&pool->lock);
    return NULL;
}

/* ---- reports ----------------------------------------------------------------------------------------------------- */

typedef struct telling {
    const spry_model_pool *pool;
    spry_pool_info *infos;
    size_t count, capacity;
} telling;

static spry_pool_info *add_info(telling *t)
{
    if (t->count == t->capacity) {
        size_t capacity = t->capacity * 2 + 16;
        spry_pool_info *grown = realloc(t->infos, capacity * sizeof *grown);
        if (!grown)
            return NULL;
        t->infos = grown;
        t->capacity = capacity;
    }
    t->infos[t->count] = (spry_pool_info){.size = offsetof(spry_pool_info, reserved), .expires_s = -1};
    return &t->infos[t->count++];
}

static void tell_state(spry_pool_info *info, const slot *s)
{
    static const spry_pool_state states[] = {[SLOT_EMPTY] = SPRY_POOL_ON_DISK,
                                             [SLOT_LOADING] = SPRY_POOL_LOADING,
                                             [SLOT_LOADED] = SPRY_POOL_LOADED,
                                             [SLOT_LEAVING] = SPRY_POOL_ON_DISK};
    info->state = states[s->state];
    info->estimated_bytes = s->estimated;
    info->pinned = s->pinned;
    info->users = s->users;
    if (s->state != SLOT_LOADED)
        return;
    info->loaded_bytes = s->measured;
    info->load_ms = s->load_ms;
    info->idle_s = s->users ? 0 : (double)(spry_clock_ns() - s->used_ns) / 1e9;
    info->expires_s = can_expire(s) ? (double)time_left(s) / 1e9 : -1;
    spry_engine_jobs_figures(s->pooled.engine, &info->work);
    spry_engine_info engine = {.size = sizeof engine};
    spry_engine_describe(s->pooled.engine, &engine);
    info->context = engine.context;
    info->sees = spry_engine_sees(s->pooled.engine);
}

/* Reports a model in the folder, unless it is an entry, which was reported before. */
static void visit_file(void *context, const char *called, const char *path)
{
    telling *t = context;
    spry_pool_info *info = find_entry(t->pool, called) ? NULL : add_info(t);
    if (!info)
        return;
    snprintf(info->name, sizeof info->name, "%s", called);
    snprintf(info->path, sizeof info->path, "%s", path);
}

static void tell_entry(telling *t, const spry_pool_entry *entry)
{
    spry_pool_info *info = add_info(t);
    if (!info)
        return;
    snprintf(info->name, sizeof info->name, "%s", entry->name);
    snprintf(info->path, sizeof info->path, "%s", entry->data ? "" : entry->path);
    info->file_bytes = entry->size;
    info->pinned = entry->pinned;
}

void spry_model_pool_each(spry_model_pool *pool, bool (*visit)(void *context, const spry_pool_info *info),
                          void *context)
{
    telling t = {.pool = pool};
    for (size_t i = 0; i < pool->options.n_entries; i++)
        tell_entry(&t, &pool->entries[i]);
    spry_model_names_each(pool->models_dir[0] ? pool->models_dir : NULL, visit_file, &t);
    for (size_t i = 0; i < t.count; i++)
        if (t.infos[i].path[0])
            spry_model_file_facts(t.infos[i].path, &t.infos[i].file_bytes, &t.infos[i].modified);
    pthread_mutex_lock(&pool->lock);
    for (size_t i = 0; i < t.count; i++) {
        const slot *s = find_slot(pool, t.infos[i].name);
        if (s)
            tell_state(&t.infos[i], s);
    }
    pthread_mutex_unlock(&pool->lock);
    for (size_t i = 0; i < t.count && visit(context, &t.infos[i]); i++)
        ;
    free(t.infos);
}

/* ---- creation and destruction ------------------------------------------------------------------------------------ */

static spry_status check_entries(const spry_pool_options *o, spry_error *error)
{
    for (size_t i = 0; i < o->n_entries; i++) {
        const spry_pool_entry *e = &o->entries[i];
        bool drafter = !e->drafter;
        if (!e->name || !e->name[0] || strlen(e->name) > SPRY_MODEL_NAME_MAX || (!e->path && !e->data))
            return spry_fail(error, SPRY_ERR_INPUT, "model %zu of the list has no name, or nowhere to come from",
                             i + 1);
        if (!spry_sized_zero(e->reserved, sizeof e->reserved))
            return spry_fail(error, SPRY_ERR_INPUT, "spry_pool_entry.reserved of model %zu is not zero", i + 1);
        for (size_t k = 0; k < o->n_entries; k++) {
            if (k < i && strcmp(o->entries[k].name, e->name) == 0)
                return spry_fail(error, SPRY_ERR_INPUT, "two models are called '%s'", e->name);
            drafter = drafter || (k != i && strcmp(o->entries[k].name, e->drafter) == 0);
        }
        if (!drafter)
            return spry_fail(error, SPRY_ERR_INPUT, "%s: its drafter '%s' is not one of the other models", e->name,
                             e->drafter);
    }
    if (o->models_dir && strlen(o->models_dir) > SPRY_MODEL_PATH_MAX)
        return spry_fail(error, SPRY_ERR_INPUT, "the models folder's path is longer than %d bytes",
                         SPRY_MODEL_PATH_MAX);
    return SPRY_OK;
}

static void init_locks(spry_model_pool *pool)
{
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->changed, NULL);
    spry_background_condition(&pool->wake);
}

static void free_all(spry_model_pool *pool)
{
    for (slot *s = pool->slots, *next; s; s = next) {
        next = s->next;
        spry_loaded_model_close(&s->loaded);
        free(s);
    }
    pthread_cond_destroy(&pool->wake);
    pthread_cond_destroy(&pool->changed);
    pthread_mutex_destroy(&pool->lock);
    free(pool->entries);
    free(pool);
}

void spry_pool_options_default_sized(spry_pool_options *options, size_t size)
{
    const spry_pool_options own = {.keep_alive_s = -1};
    spry_sized_default(options, size, &own, sizeof own);
}

/* Reads the pool's options and copies the options for engines and jobs. */
static spry_status read_options(spry_model_pool *pool, const spry_pool_options *theirs, spry_error *error)
{
    spry_pool_options *o = &pool->options;
    spry_pool_options_default(o);
    spry_engine_options_default(&pool->engine);
    spry_jobs_options_default(&pool->jobs);
    spry_status status = spry_sized_read(o, sizeof *o, theirs, "spry_pool_options", error);
    if (!status)
        status = spry_sized_read(&pool->engine, sizeof pool->engine, o->engine, "spry_engine_options", error);
    if (!status)
        status = spry_sized_read(&pool->jobs, sizeof pool->jobs, o->jobs, "spry_jobs_options", error);
    if (!status)
        status = check_entries(o, error);
    if (status)
        return status;
    pool->log = (spry_log){pool->engine.log, pool->engine.log_user};
    if (pool->engine.sessions < pool->jobs.max_running)
        pool->engine.sessions = pool->jobs.max_running;
    pool->max_bytes = o->max_bytes ? o->max_bytes : spry_memory_total() / 4 * 3;
    if (o->models_dir)
        snprintf(pool->models_dir, sizeof pool->models_dir, "%s", o->models_dir);
    pool->entries = calloc(o->n_entries ? o->n_entries : 1, sizeof *pool->entries);
    if (!pool->entries)
        return spry_fail_memory(error, "a model pool", o->n_entries * sizeof *pool->entries);
    if (o->n_entries)
        memcpy(pool->entries, o->entries, o->n_entries * sizeof *pool->entries);
    return SPRY_OK;
}

spry_status spry_model_pool_create(spry_model_pool **out, const spry_pool_options *options, spry_error *error)
{
    *out = NULL;
    spry_model_pool *pool = calloc(1, sizeof *pool);
    if (!pool)
        return spry_fail_memory(error, "a model pool", sizeof *pool);
    spry_status status = read_options(pool, options, error);
    if (status) {
        free(pool->entries);
        free(pool);
        return status;
    }
    init_locks(pool);
    status = spry_background_start(&pool->sweeper, sweep, pool, "the model pool", error);
    if (status)
        free_all(pool);
    else
        *out = pool;
    return status;
}

void spry_model_pool_destroy(spry_model_pool *pool)
{
    if (!pool)
        return;
    pthread_mutex_lock(&pool->lock);
    pool->stopping = true;
    pthread_cond_signal(&pool->wake);
    pthread_mutex_unlock(&pool->lock);
    pthread_join(pool->sweeper, NULL);
    free_all(pool);
}
