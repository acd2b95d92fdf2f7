/* Engines with small windows and pools, and logits kept as copies, for tests of what is reused and what comes of it.
 * Include after cmocka.h. */
#ifndef SPRY_TESTS_SEQUENCE_SCENE_H
#define SPRY_TESTS_SEQUENCE_SCENE_H

#include <stdlib.h>
#include <string.h>

#include "engine/engine_state.h"
#include "support/engine_fixture.h"

enum { SCENE_SPANS = 8 };

typedef struct logits {
    float of[FIXTURE_VOCAB];
} logits;

typedef struct fragments {
    spry_span spans[SCENE_SPANS];
    size_t n_spans, repair;
} fragments;

/* `pages`: of KV memory, 0 for plenty. */
static inline spry_engine *scene_engine(const char *model, uint32_t context, uint32_t chunk, size_t pages)
{
    spry_engine_options options;
    spry_engine_options_default(&options);
    options.threads = 1;
    options.sessions = 8;
    options.context = context;
    options.chunk = chunk;
    options.kv_bytes = 4 << 20; /* plenty for a fixture, and quick to make */
    spry_engine *engine = fixture_open(model, &options);
    spry_kv_figures figures;
    spry_engine_kv_figures(engine, &figures);
    if (!pages)
        return engine;
    options.kv_bytes = pages * figures.page_bytes;
    spry_engine_close(engine);
    return fixture_open(model, &options);
}

static inline logits scene_eval(spry_session *session, const int32_t *ids, size_t count, const fragments *f)
{
    static const fragments none;
    spry_error error = {0};
    const float *out;
    logits copy;
    size_t held;
    f = f ? f : &none;
    if (spry_session_eval_spans(session, &out, ids, count, f->spans, f->n_spans, f->repair, &error))
        fail_msg("%s", error.message);
    memcpy(copy.of, out, sizeof copy.of);
    assert_memory_equal(spry_session_tokens(session, &held), ids, count * sizeof *ids);
    assert_int_equal(held, count);
    return copy;
}

/* The same on an engine that has computed nothing before. */
static inline logits scene_cold(const char *model, uint32_t context, bool slide, size_t keep, const int32_t *ids,
                                size_t count, const fragments *f)
{
    spry_engine *engine = scene_engine(model, context, 32, 0);
    spry_session *session = fixture_session(engine);
    spry_session_set_slide(session, slide, keep);
    logits out = scene_eval(session, ids, count, f);
    spry_session_destroy(session);
    spry_engine_close(engine);
    return out;
}

static inline void scene_same(const logits *a, const logits *b)
{
    assert_memory_equal(a, b, sizeof *a);
}

/* Tokens of prompts that were found, since the engine was opened. */
static inline size_t scene_hits(spry_engine *engine)
{
    spry_kv_figures figures;
    spry_engine_kv_figures(engine, &figures);
    return (size_t)figures.hit_tokens;
}

/* No session is left: nothing may be in use, and what is cached can all go. */
static inline void scene_close_engine(spry_engine *engine)
{
    assert_int_equal(engine->n_sessions, 0);
    assert_true(spry_kv_cache_make_room(&engine->cache, engine->pool.n_pages));
    for (uint32_t i = 0; i < engine->pool.turns.end; i++)
        assert_int_equal(engine->pool.turns.references[i], 0);
    spry_engine_close(engine);
}

#endif
