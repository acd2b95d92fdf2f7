/* A session: a sequence, a sampler, and an engine whose device runs its steps. */
#include <stdlib.h>
#include <string.h>

#include "engine/engine_state.h"
#include "platform/clock.h"

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
    engine->n_sessions++;
    spry_kv_key root = spry_kv_key_root(engine->fingerprint, NULL, 0);
    spry_status status = spry_sequence_init(&s->sequence, &engine->cache, root, engine->context, error);
    if (!status)
        status = spry_sampler_create(&s->sampler, engine->ops, engine->model->config.n_vocab, error);
    if (!status)
        status = spry_verifier_init(&s->verifier, s->sampler, error);
    spry_draft_cost_init(&s->cost, &engine->steps);
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
    spry_sequence_deinit(&s->sequence);
    spry_prompt_lookup_destroy(s->lookup);
    spry_verifier_deinit(&s->verifier);
    spry_sampler_destroy(s->sampler);
    free(s);
}

void spry_session_set_salt(spry_session *s, const void *salt, size_t size)
{
    spry_sequence_truncate(&s->sequence, s->sequence.n_dropped);
    s->sequence.n_tokens = s->sequence.n_dropped = s->sequence.slid_at = 0;
    s->sequence.root = spry_kv_key_root(s->engine->fingerprint, salt, size);
}

void spry_session_set_slide(spry_session *s, bool slide, size_t keep)
{
    s->sequence.slides = slide;
    s->sequence.keep = keep;
}

size_t spry_session_pin(spry_session *s, bool pin)
{
    return spry_kv_cache_pin(&s->engine->cache, &s->sequence.table, pin);
}

void spry_session_cancel(spry_session *s)
{
    atomic_store(&s->cancelled, true);
}

const int32_t *spry_session_tokens(const spry_session *s, size_t *count)
{
    *count = s->sequence.n_tokens;
    return s->sequence.tokens;
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

/* One step of what is to be computed next; *rows says how many rows that were. */
static spry_status step(spry_session *s, size_t *rows, size_t want_from, spry_error *error)
{
    spry_engine *e = s->engine;
    spry_segment segments[SPRY_STEP_SEGMENTS];
    size_t n, max_logits = e->chunk < SPRY_MAX_LOGIT_ROWS ? e->chunk : SPRY_MAX_LOGIT_ROWS;
    spry_status status =
        spry_sequence_fill(&s->sequence, segments, &n, SPRY_STEP_SEGMENTS, e->chunk, want_from, max_logits, error);
    *rows = 0;
    for (size_t i = 0; !status && i < n; i++)
        *rows += segments[i].n_rows;
    uint64_t start = spry_clock_ns();
    if (!status)
        status = spry_device_run(e->device, segments, n, error);
    if (status) {
        spry_sequence_stop(&s->sequence);
        return status;
    }
    spry_engine_stepped(e, *rows, spry_clock_ns() - start);
    spry_sequence_computed(&s->sequence, *rows);
    return SPRY_OK;
}

spry_status spry_session_advance(spry_session *s, spry_found *found, const spry_prompt *prompt,
                                 const spry_progress *progress, spry_error *error)
{
    spry_status status = spry_engine_check_ids(s->engine, prompt->ids, prompt->count, s->sequence.slides, error);
    if (!status)
        status = spry_sequence_begin(&s->sequence, found, prompt, error);
    for (size_t left, rows; !status && (left = spry_sequence_pending(&s->sequence));) {
        size_t done = left < prompt->count ? prompt->count - left : 0;
        if (atomic_load(&s->cancelled) || (progress && !progress->report(progress->user, done, prompt->count))) {
            spry_sequence_stop(&s->sequence);
            return spry_fail(error, SPRY_ERR_CANCELLED, "cancelled after %zu of %zu prompt tokens", done,
                             prompt->count);
        }
        status = step(s, &rows, prompt->count - 1, error);
    }
    return status;
}

spry_status spry_session_extend(spry_session *s, const int32_t *ids, size_t count, spry_error *error)
{
    size_t rows;
    spry_status status = spry_sequence_append(&s->sequence, ids, count, error);
    return status ? status : step(s, &rows, s->sequence.n_tokens - 1, error);
}

spry_status spry_session_step(spry_session *s, int32_t id, spry_error *error)
{
    return spry_session_extend(s, &id, 1, error);
}

spry_status spry_session_eval_spans(spry_session *s, const float **logits, const int32_t *ids, size_t count,
                                    const spry_span *spans, size_t n_spans, size_t repair, spry_error *error)
{
    spry_found found;
    const spry_prompt prompt = {.ids = ids,
                                .count = count,
                                .compute_from = count - (count > 0),
                                .spans = spans,
                                .n_spans = n_spans,
                                .repair = repair};
    atomic_store(&s->cancelled, false);
    spry_status status = spry_session_advance(s, &found, &prompt, NULL, error);
    *logits = NULL;
    return status ? status : spry_device_logits(s->engine->device, logits, 0, 1, error);
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
    spry_found found;
    const spry_prompt prompt = {.ids = ids, .count = count, .compute_from = first};
    size_t next = first;
    spry_status status = spry_engine_check_ids(s->engine, ids, count, s->sequence.slides, error);
    if (!status && first >= count)
        status = spry_fail(error, SPRY_ERR_INPUT, "there are no rows from %zu on in a list of %zu ids", first, count);
    if (!status)
        status = spry_sequence_begin(&s->sequence, &found, &prompt, error);
    for (size_t rows; !status && spry_sequence_pending(&s->sequence);) {
        status = step(s, &rows, first, error);
        size_t done = count - spry_sequence_pending(&s->sequence);
        for (size_t i = 0; !status && next < done; i++, next++) {
            const float *logits;
            status = spry_device_logits(s->engine->device, &logits, i, 1, error);
            if (!status && !row(user, next, logits)) {
                spry_sequence_stop(&s->sequence);
                return spry_fail(error, SPRY_ERR_CANCELLED, "cancelled after %zu of %zu rows", next, count);
            }
        }
    }
    return status;
}

spry_status spry_session_eval_rows(spry_session *s, const int32_t *ids, size_t count,
                                   bool (*row)(void *user, size_t index, const float *logits), void *user,
                                   spry_error *error)
{
    return spry_session_eval_from(s, ids, count, 0, row, user, error);
}
