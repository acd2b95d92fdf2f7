/* A session holds the tokens its pages were computed from. Asked for a prefix, it keeps what agrees and computes the
 * rest. */
#include <stdlib.h>
#include <string.h>

#include "engine/engine_state.h"

spry_status spry_session_create(spry_session **out, spry_engine *engine, spry_error *error)
{
    *out = NULL;
    if (engine->n_sessions == engine->sessions)
        return spry_fail(error, SPRY_ERR_INPUT, "the engine was opened for %u sessions, all of them are in use",
                         engine->sessions);
    spry_session *s = calloc(1, sizeof *s);
    if (!s)
        return spry_fail_memory(error, "a session", sizeof *s);
    s->engine = engine;
    s->tokens = calloc(engine->context, sizeof *s->tokens);
    engine->n_sessions++;
    spry_status status = s->tokens ? spry_kv_table_init(&s->table, engine->context, error)
                                   : spry_fail_memory(error, "a session", engine->context * sizeof *s->tokens);
    if (!status)
        status = spry_sampler_create(&s->sampler, engine->model->config.n_vocab, error);
    if (status)
        spry_session_destroy(s);
    else
        *out = s;
    return status;
}

void spry_session_destroy(spry_session *s)
{
    if (!s)
        return;
    s->engine->n_sessions--;
    spry_kv_table_deinit(&s->table, &s->engine->pool);
    spry_sampler_destroy(s->sampler);
    free(s->tokens);
    free(s);
}

void spry_session_cancel(spry_session *s)
{
    atomic_store(&s->cancelled, true);
}

const int32_t *spry_session_tokens(const spry_session *s, size_t *count)
{
    *count = s->n_tokens;
    return s->tokens;
}

static void forget_from(spry_session *s, size_t n_tokens)
{
    spry_kv_table_truncate(&s->table, &s->engine->pool, n_tokens);
    s->n_tokens = n_tokens;
}

static spry_status check_ids(const spry_session *s, const int32_t *ids, size_t count, spry_error *error)
{
    const spry_engine *e = s->engine;
    if (!count)
        return spry_fail(error, SPRY_ERR_INPUT, "an empty prompt has no next token");
    if (count > e->context)
        return spry_fail(error, SPRY_ERR_CONTEXT, "the prompt has %zu tokens, the context holds %u", count, e->context);
    for (size_t i = 0; i < count; i++)
        if (ids[i] < 0 || (uint32_t)ids[i] >= e->model->config.n_vocab)
            return spry_fail(error, SPRY_ERR_INPUT, "token id %d is outside the vocabulary of %u", ids[i],
                             e->model->config.n_vocab);
    return SPRY_OK;
}

/* One step of up to a chunk of rows. */
static spry_status step(spry_session *s, const int32_t *ids, size_t count, spry_want want, spry_error *error)
{
    spry_engine *e = s->engine;
    size_t before = s->n_tokens;
    spry_status status = spry_kv_table_extend(&s->table, &e->pool, count, error);
    if (status)
        return status;
    spry_segment segment = {&s->table, ids, (uint32_t)before, (uint32_t)count, want};
    status = spry_pass_step(e->pass, &segment, 1, error);
    if (status) {
        forget_from(s, before);
        return status;
    }
    memcpy(s->tokens + before, ids, count * sizeof *ids);
    s->n_tokens = before + count;
    return SPRY_OK;
}

spry_status spry_session_advance(spry_session *s, size_t *reused, const int32_t *ids, size_t count,
                                 const spry_progress *progress, spry_error *error)
{
    spry_status status = check_ids(s, ids, count, error);
    if (status)
        return status;
    size_t same = 0, chunk = s->engine->chunk;
    while (same < s->n_tokens && same < count && s->tokens[same] == ids[same])
        same++;
    if (same == count) /* the last row's logits are needed, so it is computed again */
        same--;
    forget_from(s, same);
    *reused = same;
    for (size_t done = same; !status && done < count;) {
        size_t part = count - done < chunk ? count - done : chunk;
        bool last = done + part == count;
        if (atomic_load(&s->cancelled) || (progress && !progress->report(progress->user, done, count)))
            return spry_fail(error, SPRY_ERR_CANCELLED, "cancelled after %zu of %zu prompt tokens", done, count);
        status = step(s, ids + done, part, last ? SPRY_WANT_LAST : SPRY_WANT_NOTHING, error);
        done += part;
    }
    return status;
}

spry_status spry_session_step(spry_session *s, int32_t id, spry_error *error)
{
    return step(s, &id, 1, SPRY_WANT_LAST, error);
}

spry_status spry_session_eval(spry_session *s, const float **logits, const int32_t *ids, size_t count,
                              spry_error *error)
{
    size_t reused;
    atomic_store(&s->cancelled, false);
    spry_status status = spry_session_advance(s, &reused, ids, count, NULL, error);
    *logits = status ? NULL : spry_pass_logits(s->engine->pass, 0);
    return status;
}

spry_status spry_session_eval_from(spry_session *s, const int32_t *ids, size_t count, size_t first,
                                   bool (*row)(void *user, size_t index, const float *logits), void *user,
                                   spry_error *error)
{
    spry_status status = check_ids(s, ids, count, error);
    size_t chunk = s->engine->chunk, most = chunk < SPRY_MAX_LOGIT_ROWS ? chunk : SPRY_MAX_LOGIT_ROWS, done = 0;
    if (!status && first >= count)
        status = spry_fail(error, SPRY_ERR_INPUT, "there are no rows from %zu on in a list of %zu ids", first, count);
    if (status)
        return status;
    while (done < s->n_tokens && done < first && s->tokens[done] == ids[done])
        done++;
    forget_from(s, done);
    while (!status && done < first) {
        size_t part = first - done < chunk ? first - done : chunk;
        status = step(s, ids + done, part, SPRY_WANT_NOTHING, error);
        done += part;
    }
    while (!status && done < count) {
        size_t part = count - done < most ? count - done : most;
        status = step(s, ids + done, part, SPRY_WANT_ALL, error);
        for (size_t i = 0; !status && i < part; i++)
            if (!row(user, done + i, spry_pass_logits(s->engine->pass, i)))
                return spry_fail(error, SPRY_ERR_CANCELLED, "cancelled after %zu of %zu rows", done + i, count);
        done += part;
    }
    return status;
}

spry_status spry_session_eval_rows(spry_session *s, const int32_t *ids, size_t count,
                                   bool (*row)(void *user, size_t index, const float *logits), void *user,
                                   spry_error *error)
{
    spry_status status = check_ids(s, ids, count, error);
    if (status)
        return status;
    forget_from(s, 0);
    return spry_session_eval_from(s, ids, count, 0, row, user, error);
}
