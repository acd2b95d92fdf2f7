/* Sessions: a sequence, and calls that run as jobs on the engine's driver. */
#include <stdlib.h>
#include <string.h>

#include "engine/engine_state.h"
#include "sched/driver.h"
#include "spry_serve.h"

/* ---- life -------------------------------------------------------------------------------------------------------- */

spry_status spry_session_make(spry_session **out, spry_engine *engine, spry_error *error)
{
    *out = NULL;
    spry_session *s = calloc(1, sizeof *s);
    if (!s)
        return spry_fail_memory(error, "a session", sizeof *s);
    s->engine = engine;
    spry_page_source source;
    spry_status status = spry_engine_page_source(engine, &source, NULL, 0, NULL, error);
    if (!status)
        status = spry_sequence_init(&s->sequence, &engine->cache, source.root, engine->context, error);
    if (!status)
        spry_session_restart(s, &source);
    s->sequence.unshared = engine->model->config.bidirectional;
    s->sequence.fixed = s->sequence.unshared || engine->model->weights.positions.data ||
                        engine->model->config.arch->delta; /* a state runs through all of the text */
    s->sequence.span_pages = engine->span_pages;
    s->sequence.span_start = engine->start_token;
    spry_draft_cost_init(&s->cost, &engine->steps);
    if (status)
        spry_session_unmake(s);
    else
        *out = s;
    return status;
}

void spry_session_unmake(spry_session *s)
{
    spry_sequence_deinit(&s->sequence);
    spry_prompt_lookup_destroy(s->lookup);
    free(s->logits);
    free(s);
}

spry_status spry_session_create(spry_session **out, spry_engine *engine, spry_error *error)
{
    spry_driver *d = engine->driver;
    *out = NULL;
    pthread_mutex_lock(&d->lock);
    bool room = engine->n_sessions < engine->sessions;
    engine->n_sessions += room;
    pthread_mutex_unlock(&d->lock);
    if (!room)
        return spry_fail(error, SPRY_ERR_INPUT, "the engine was opened for %u sessions, all of them are in use",
                         engine->sessions);
    spry_status status = spry_session_make(out, engine, error);
    if (status) {
        pthread_mutex_lock(&d->lock);
        engine->n_sessions--;
        pthread_mutex_unlock(&d->lock);
    }
    return status;
}

static void destroy(spry_session *s)
{
    spry_engine *engine = s->engine;
    spry_driver *d = engine->driver;
    spry_driver_enter(d);
    spry_session_unmake(s);
    pthread_mutex_lock(&d->lock);
    engine->n_sessions--;
    pthread_mutex_unlock(&d->lock);
    spry_driver_leave(d);
}

void spry_session_destroy(spry_session *s)
{
    if (!s)
        return;
    spry_driver *d = s->engine->driver;
    bool in_callback = spry_driver_is_owner(d);
    pthread_mutex_lock(&d->lock);
    atomic_store(&s->cancelled, true);
    if (s->job)
        atomic_store(s->job->cancelled, true);
    pthread_cond_broadcast(&d->changed);
    s->orphan = in_callback && s->in_use;
    bool orphan = s->orphan;
    while (!orphan && s->in_use)
        pthread_cond_wait(&d->changed, &d->lock);
    pthread_mutex_unlock(&d->lock);
    if (!orphan)
        destroy(s);
}

spry_status spry_session_join(spry_session *s, spry_job *job, spry_error *error)
{
    spry_driver *d = s->engine->driver;
    pthread_mutex_lock(&d->lock);
    bool in_use = s->in_use;
    if (!in_use) {
        s->in_use = true;
        s->job = job;
        if (job)
            job->root = s->sequence.root;
        atomic_store(&s->cancelled, false);
    }
    pthread_mutex_unlock(&d->lock);
    return in_use ? spry_fail(error, SPRY_ERR_BUSY, "the session is in use by another call or job") : SPRY_OK;
}

void spry_session_leave(spry_session *s)
{
    spry_driver *d = s->engine->driver;
    pthread_mutex_lock(&d->lock);
    bool orphan = s->orphan;
    s->in_use = false;
    s->job = NULL;
    pthread_cond_broadcast(&d->changed);
    pthread_mutex_unlock(&d->lock);
    if (orphan)
        destroy(s);
}

/* ---- settings ---------------------------------------------------------------------------------------------------- */

spry_status spry_engine_page_source(spry_engine *e, spry_page_source *source, const void *salt, size_t salt_size,
                                    const char *lora, spry_error *error)
{
    spry_status status = SPRY_OK;
    pthread_mutex_lock(&e->making);
    source->adapters = e->adapters;
    pthread_mutex_unlock(&e->making);
    if (lora)
        status = spry_adapters_choose(&source->adapters, &e->model->adapters, lora, error);
    source->salted = spry_kv_key_root(e->fingerprint, salt, salt_size);
    source->root = spry_adapters_root(source->salted, &e->model->adapters, &source->adapters);
    return status;
}

void spry_session_restart(spry_session *s, const spry_page_source *source)
{
    spry_sequence_truncate(&s->sequence, s->sequence.n_dropped);
    s->sequence.n_tokens = s->sequence.n_dropped = s->sequence.slid_at = 0;
    s->sequence.root = source->root;
    s->sequence.adapters = source->adapters;
    s->salted = source->salted;
}

/* Restarts a session that no job uses. */
static spry_status restart(spry_session *s, const spry_page_source *source, spry_error *error)
{
    spry_status status = spry_session_join(s, NULL, error);
    if (status)
        return status;
    spry_driver_enter(s->engine->driver);
    spry_session_restart(s, source);
    spry_driver_leave(s->engine->driver);
    spry_session_leave(s);
    return SPRY_OK;
}

spry_status spry_session_set_lora(spry_session *s, const char *lora, spry_error *error)
{
    spry_page_source source;
    spry_engine *e = s->engine;
    spry_status status = spry_engine_page_source(e, &source, NULL, 0, lora, error);
    source.salted = s->salted;
    source.root = spry_adapters_root(s->salted, &e->model->adapters, &source.adapters);
    return status ? status : restart(s, &source, error);
}

spry_status spry_session_set_salt(spry_session *s, const void *salt, size_t size)
{
    spry_page_source source = {.salted = spry_kv_key_root(s->engine->fingerprint, salt, size),
                               .adapters = s->sequence.adapters};
    source.root = spry_adapters_root(source.salted, &s->engine->model->adapters, &source.adapters);
    return restart(s, &source, NULL);
}

spry_status spry_session_set_slide(spry_session *s, bool slide, size_t keep)
{
    spry_driver *d = s->engine->driver;
    pthread_mutex_lock(&d->lock);
    bool in_use = s->in_use;
    if (!in_use) {
        s->sequence.slides = slide;
        s->sequence.keep = keep;
    }
    pthread_mutex_unlock(&d->lock);
    return in_use ? SPRY_ERR_BUSY : SPRY_OK;
}

bool spry_session_slides(const spry_session *s)
{
    spry_driver *d = s->engine->driver;
    pthread_mutex_lock(&d->lock);
    bool slides = s->sequence.slides;
    pthread_mutex_unlock(&d->lock);
    return slides;
}

spry_status spry_session_pin(spry_session *s, size_t *tokens, bool pin)
{
    spry_status status = spry_session_join(s, NULL, NULL);
    *tokens = 0;
    if (status)
        return status;
    spry_driver_enter(s->engine->driver);
    *tokens = spry_kv_cache_pin(&s->engine->cache, &s->sequence.table, pin);
    spry_driver_leave(s->engine->driver);
    spry_session_leave(s);
    return SPRY_OK;
}

void spry_session_cancel(spry_session *s)
{
    atomic_store(&s->cancelled, true);
}

const int32_t *spry_session_tokens(const spry_session *s, size_t *count)
{
    spry_driver *d = s->engine->driver;
    pthread_mutex_lock(&d->lock);
    bool in_use = s->in_use;
    *count = in_use ? 0 : s->sequence.n_tokens;
    pthread_mutex_unlock(&d->lock);
    return in_use ? NULL : s->sequence.tokens;
}

spry_status spry_engine_check_ids(const spry_engine *e, const int32_t *ids, size_t count, bool slides,
                                  spry_error *error)
{
    uint32_t n_vocab = e->model->config.n_vocab;
    if (!count)
        return spry_fail(error, SPRY_ERR_INPUT, "an empty prompt has no next token");
    if (count > e->context && !slides)
        return spry_fail(error, SPRY_ERR_CONTEXT, "the prompt has %zu tokens, the context holds %u", count, e->context);
    for (size_t i = 0; i < count; i++)
        if (ids[i] < 0 || (uint32_t)ids[i] >= n_vocab)
            return spry_fail(error, SPRY_ERR_INPUT, "token id %d is outside the vocabulary of %u", ids[i], n_vocab);
    return SPRY_OK;
}

/* ---- calls ------------------------------------------------------------------------------------------------------- */

spry_status spry_session_run(spry_session *s, spry_job *job, spry_error *error)
{
    spry_status status = spry_session_join(s, job, error);
    if (status)
        return status;
    status = spry_driver_run(s->engine->driver, job, error);
    spry_session_leave(s);
    return status;
}

spry_status spry_session_likeliest(spry_session *s, int32_t *token, double *logprob, const int32_t *ids, size_t count,
                                   bool append, spry_error *error)
{
    spry_job job;
    spry_sampling greedy;
    spry_draw draw = {.settings = &greedy, .wants_logprob = logprob};
    const spry_prompt prompt = {.ids = ids, .count = count, .compute_from = append ? 0 : count - 1};
    spry_sampling_default(&greedy);
    greedy.temperature = 0;
    spry_job_init_reading(&job, s->engine, &prompt, SPRY_WANT_LAST, s);
    job.reading.append = append;
    job.reading.draw = &draw;
    spry_status status = spry_session_run(s, &job, error);
    *token = draw.token;
    if (logprob)
        *logprob = (double)draw.logprob;
    return status;
}

/* Runs a reading that returns the last row's logits. */
static spry_status run_for_logits(spry_session *s, const float **logits, spry_job *job, spry_error *error)
{
    size_t n_vocab = s->engine->model->config.n_vocab;
    spry_status status = spry_session_join(s, job, error);
    if (status)
        return status;
    if (!s->logits)
        s->logits = calloc(n_vocab, sizeof *s->logits);
    *logits = job->reading.logits = s->logits;
    status = s->logits ? spry_driver_run(s->engine->driver, job, error)
                       : spry_fail_memory(error, "logits", n_vocab * sizeof *s->logits);
    spry_session_leave(s);
    return status;
}

spry_status spry_session_eval_spans(spry_session *s, const float **logits, const int32_t *ids, size_t count,
                                    const spry_span *spans, size_t n_spans, size_t repair, spry_error *error)
{
    spry_job job;
    const spry_prompt prompt = {.ids = ids,
                                .count = count,
                                .compute_from = count - (count > 0),
                                .spans = spans,
                                .n_spans = n_spans,
                                .repair = repair};
    spry_status status = spry_engine_check_ids(s->engine, ids, count, spry_session_slides(s), error);
    spry_job_init_reading(&job, s->engine, &prompt, SPRY_WANT_LAST, s);
    if (!status)
        status = run_for_logits(s, logits, &job, error);
    if (status)
        *logits = NULL;
    return status;
}

spry_status spry_session_eval(spry_session *s, const float **logits, const int32_t *ids, size_t count,
                              spry_error *error)
{
    return spry_session_eval_spans(s, logits, ids, count, NULL, 0, 0, error);
}

spry_status spry_session_eval_from(spry_session *s, const int32_t *ids, size_t count, size_t first,
                                   bool (*row)(void *user, size_t index, const float *logits), void *user,
                                   spry_error *error)
{
    spry_job job;
    const spry_prompt prompt = {.ids = ids, .count = count, .compute_from = first};
    spry_status status = spry_engine_check_ids(s->engine, ids, count, spry_session_slides(s), error);
    if (!status && first >= count)
        status = spry_fail(error, SPRY_ERR_INPUT, "there are no rows from %zu on in a list of %zu ids", first, count);
    if (status)
        return status;
    spry_job_init_reading(&job, s->engine, &prompt, SPRY_WANT_ALL, s);
    job.reading.on_row = row;
    job.reading.user = user;
    return spry_session_run(s, &job, error);
}

spry_status spry_session_eval_rows(spry_session *s, const int32_t *ids, size_t count,
                                   bool (*row)(void *user, size_t index, const float *logits), void *user,
                                   spry_error *error)
{
    return spry_session_eval_from(s, ids, count, 0, row, user, error);
}

spry_status spry_session_embed(spry_session *s, float *out, const int32_t *ids, size_t count, spry_error *error)
{
    spry_job job;
    size_t width = s->engine->model->config.n_embd;
    const spry_prompt prompt = {.ids = ids, .count = count};
    spry_status status = spry_embed_check(s->engine, ids, count, error);
    if (status)
        return status;
    spry_job_init_reading(&job, s->engine, &prompt, SPRY_WANT_HIDDEN, s);
    job.embedding = out;
    job.reading.sum = calloc(width, sizeof *job.reading.sum);
    if (!job.reading.sum)
        return spry_fail_memory(error, "an embedding", width * sizeof *job.reading.sum);
    status = spry_session_run(s, &job, error);
    free(job.reading.sum);
    return status;
}

spry_status spry_session_generate(spry_session *s, spry_result *result, const spry_request *request, spry_error *error)
{
    spry_job job;
    spry_request own;
    spry_status status = spry_request_read(&own, request, error);
    spry_result_init(result, status ? 0 : own.n_prompt);
    if (status)
        return status;
    status = spry_job_init_answer(&job, s->engine, &own, s, spry_session_slides(s), error);
    if (!status)
        status = spry_session_run(s, &job, error);
    *result = job.result;
    spry_job_deinit(&job);
    return status;
}
