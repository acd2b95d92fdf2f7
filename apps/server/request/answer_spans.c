#include "server/request/completion.h"

#include <pthread.h>
#include <stdlib.h>

#include "platform/threads.h"

enum { WAITING_MAX = 64, CHECK_MS = 100 };

typedef struct item {
    const spry_pooled *model;
    spry_view key;
    int32_t *ids;
    size_t count;
} item;

struct spry_answer_spans {
    spry_model_pool *pool;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    item items[WAITING_MAX]; /* a ring */
    size_t first, count;
    bool stopping;
};

static bool is_stopping(spry_answer_spans *s)
{
    pthread_mutex_lock(&s->lock);
    bool stopping = s->stopping;
    pthread_mutex_unlock(&s->lock);
    return stopping;
}

static void drop(spry_answer_spans *s, item *i)
{
    spry_model_pool_release(s->pool, i->model);
    free(i->ids);
}

/* A failure, of memory or of a queue that is full, only means that the fragment is computed when it is needed. */
static void compute(spry_answer_spans *s, const item *i)
{
    const spry_span whole = {0, i->count};
    spry_evaluation evaluation;
    spry_job_options options;
    spry_job *job = NULL;
    spry_evaluation_default(&evaluation);
    evaluation.ids = i->ids;
    evaluation.count = i->count;
    evaluation.spans = &whole;
    evaluation.n_spans = 1;
    evaluation.span_repair = 0;
    spry_job_options_default(&options);
    options.salt = i->key.data;
    options.salt_size = i->key.size;
    options.batch = 1;
    if (spry_job_create_evaluation(&job, i->model->engine, &evaluation, &options, NULL) != SPRY_OK)
        return;
    if (spry_job_submit(job, NULL) == SPRY_OK)
        while (spry_job_wait(job, CHECK_MS, NULL) != SPRY_OK)
            if (is_stopping(s))
                spry_job_cancel(job);
    spry_job_free(job);
}

static void *thread_main(void *argument)
{
    spry_answer_spans *s = argument;
    pthread_mutex_lock(&s->lock);
    while (!s->stopping) {
        if (!s->count) {
            pthread_cond_wait(&s->changed, &s->lock);
            continue;
        }
        item next = s->items[s->first];
        s->first = (s->first + 1) % WAITING_MAX;
        s->count--;
        pthread_mutex_unlock(&s->lock);
        compute(s, &next);
        drop(s, &next);
        pthread_mutex_lock(&s->lock);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

spry_status spry_answer_spans_create(spry_answer_spans **out, spry_model_pool *pool, spry_error *error)
{
    spry_answer_spans *s = calloc(1, sizeof *s);
    if (!s)
        return spry_fail_memory(error, "fragments of answers", sizeof *s);
    s->pool = pool;
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->changed, NULL);
    spry_status status = spry_background_start(&s->thread, thread_main, s, "fragments", error);
    if (status == SPRY_OK) {
        *out = s;
        return SPRY_OK;
    }
    pthread_cond_destroy(&s->changed);
    pthread_mutex_destroy(&s->lock);
    free(s);
    return status;
}

void spry_answer_spans_destroy(spry_answer_spans *s)
{
    if (!s)
        return;
    pthread_mutex_lock(&s->lock);
    s->stopping = true;
    pthread_cond_signal(&s->changed);
    pthread_mutex_unlock(&s->lock);
    pthread_join(s->thread, NULL);
    for (; s->count; s->count--, s->first = (s->first + 1) % WAITING_MAX)
        drop(s, &s->items[s->first]);
    pthread_cond_destroy(&s->changed);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

/* The ids that the text has as a part of a message; NULL when there are none. */
static int32_t *ids_of(size_t *count, const spry_engine *engine, spry_view text)
{
    int32_t *ids = malloc((text.size + 1) * sizeof *ids); /* a token is at least a byte */
    if (ids &&
        spry_engine_tokenize_part(engine, ids, text.size + 1, count, text.data, text.size, false, NULL) == SPRY_OK &&
        *count && *count <= text.size + 1)
        return ids;
    free(ids);
    return NULL;
}

void spry_answer_spans_add(spry_answer_spans *s, const spry_pooled *model, spry_view key, spry_view text)
{
    item new = {.key = key};
    new.ids = ids_of(&new.count, model->engine, text);
    if (!new.ids || spry_model_pool_acquire(s->pool, &new.model, model->name, NULL) != SPRY_OK) {
        free(new.ids);
        return;
    }
    pthread_mutex_lock(&s->lock);
    bool taken = s->count < WAITING_MAX && !s->stopping;
    if (taken)
        s->items[(s->first + s->count++) % WAITING_MAX] = new;
    pthread_cond_signal(&s->changed);
    pthread_mutex_unlock(&s->lock);
    if (!taken)
        drop(s, &new);
}
