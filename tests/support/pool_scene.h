/* Pools of small real models. Include after cmocka.h. */
#ifndef SPRY_TESTS_POOL_SCENE_H
#define SPRY_TESTS_POOL_SCENE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/compiler.h"
#include "engine/engine_state.h"
#include "spry_serve.h"
#include "support/engine_fixture.h"
#include "support/hostile.h"
#include "support/scratch.h"

#define FOLDER TEST_DATA "/models"

static scratch place;
static atomic_uint n_loaded, n_let_go;

static inline void note_log(void *user, int level, const char *sentence)
{
    (void)user;
    (void)level;
    n_loaded += strstr(sentence, ": loaded in") != NULL;
    n_let_go += strstr(sentence, ": let go") != NULL;
}

/* Of the pool that is started next. */
static spry_engine_options engine_options;
static spry_jobs_options jobs_options;

static inline spry_pool_options plain_options(const char *folder)
{
    spry_pool_options o;
    spry_pool_options_default(&o);
    spry_engine_options_default(&engine_options);
    spry_jobs_options_default(&jobs_options);
    engine_options.threads = 1;
    engine_options.context = 256;
    engine_options.kv_bytes = (size_t)4 << 20;
    engine_options.log = note_log;
    jobs_options.max_running = 2;
    o.models_dir = folder;
    o.engine = &engine_options;
    o.jobs = &jobs_options;
    o.max_bytes = (size_t)1 << 30;
    n_loaded = n_let_go = 0;
    return o;
}

static inline spry_model_pool *start(const spry_pool_options *options)
{
    spry_model_pool *pool;
    spry_error error = {0};
    if (spry_model_pool_create(&pool, options, &error))
        fail_msg("%s", error.message);
    return pool;
}

static inline const spry_pooled *acquire(spry_model_pool *pool, const char *name)
{
    const spry_pooled *model;
    spry_error error = {0};
    if (spry_model_pool_acquire(pool, &model, name, &error))
        fail_msg("%s", error.message);
    return model;
}

static inline void use(spry_model_pool *pool, const char *name)
{
    spry_model_pool_release(pool, acquire(pool, name));
}

static inline void expect_refused(spry_model_pool *pool, const char *name, spry_status status, const char *words)
{
    const spry_pooled *model;
    spry_error error = {0};
    hostile_expect(spry_model_pool_acquire(pool, &model, name, &error), &error, status, words);
    assert_null(model);
}

/* ---- what a pool tells ------------------------------------------------------------------------------------------ */

typedef struct asked {
    const char *name;
    spry_pool_info info;
    size_t found, count, stop_at;
} asked;

static inline bool note_info(void *context, const spry_pool_info *info)
{
    asked *a = context;
    if (a->name && strcmp(info->name, a->name) == 0) {
        a->info = *info;
        a->found++;
    }
    return ++a->count != a->stop_at;
}

static inline spry_pool_info info_of(spry_model_pool *pool, const char *name)
{
    asked a = {.name = name};
    spry_model_pool_each(pool, note_info, &a);
    assert_int_equal(a.found, 1);
    return a.info;
}

static inline bool is_loaded(spry_model_pool *pool, const char *name)
{
    return info_of(pool, name).state == SPRY_POOL_LOADED;
}

static inline void nap(long ms)
{
    const struct timespec pause = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&pause, NULL);
}

typedef struct asker {
    spry_model_pool *pool;
    const char *name;
    spry_status status;
    spry_error error;
    const spry_pooled *model;
} asker;

static inline void *ask(void *argument)
{
    asker *a = argument;
    a->status = spry_model_pool_acquire(a->pool, &a->model, a->name, &a->error);
    return NULL;
}

static inline size_t bytes_of(const char *name)
{
    spry_pool_options options = plain_options(FOLDER);
    spry_model_pool *pool = start(&options);
    use(pool, name);
    size_t bytes = info_of(pool, name).loaded_bytes;
    spry_model_pool_destroy(pool);
    return bytes;
}

static inline int set_up(void **state)
{
    (void)state;
    scratch_init(&place);
    return 0;
}

static inline int tear_down(void **state)
{
    (void)state;
    scratch_deinit(&place);
    return 0;
}

#endif
