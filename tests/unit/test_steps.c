/* Sequences that step together: each gives the very logits it would give alone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "engine/engine_state.h"
#include "spry_tools.h"
#include "support/device_rows.h"
#include "support/hostile.h"
#include "support/must.h"

enum { PROMPT = 70, SEQUENCES = 5, STEPS = 40 };

static const char model_file[] = TEST_DATA "/models/qwen3/model-f32.gguf";

static spry_engine *open_engine(uint32_t sessions)
{
    spry_error error = {0};
    spry_engine *engine;
    spry_engine_options options;
    spry_engine_options_default(&options);
    options.context = 128;
    options.sessions = sessions;
    options.chunk = 32;
    options.threads = 2;
    must(spry_engine_open(&engine, model_file, &options, &error), &error);
    options.kv_bytes = engine->pool.page_bytes * sessions * (options.context / SPRY_PAGE_TOKENS); /* and no more */
    spry_engine_close(engine);
    must(spry_engine_open(&engine, model_file, &options, &error), &error);
    return engine;
}

static int32_t token_at(size_t sequence, size_t position)
{
    return (int32_t)((position < PROMPT ? position * 7 + 3 : position * 13 + sequence * 31) % 500);
}

static void prefill(spry_steps *steps)
{
    spry_error error = {0};
    int32_t ids[PROMPT];
    for (size_t i = 0; i < PROMPT; i++)
        ids[i] = token_at(0, i);
    for (size_t done = 0; done < PROMPT; done += 32) {
        size_t part = PROMPT - done < 32 ? PROMPT - done : 32;
        must(spry_steps_prefill(steps, ids + done, part, done + part == PROMPT, &error), &error);
    }
}

/* The logits a session of its own gives for sequence `s` after `steps` steps. */
static void check_alone(spry_engine *engine, const float *together, size_t s, size_t steps)
{
    spry_error error = {0};
    spry_session *session;
    const float *alone;
    int32_t ids[PROMPT + STEPS];
    size_t n = PROMPT + steps;
    for (size_t i = 0; i < n; i++)
        ids[i] = token_at(s, i);
    must(spry_session_create(&session, engine, &error), &error);
    must(spry_session_eval(session, &alone, ids, n, &error), &error);
    assert_memory_equal(together, alone, engine->model->config.n_vocab * sizeof *alone);
    spry_session_destroy(session);
}

static void step(spry_steps *steps, size_t position, size_t n)
{
    spry_error error = {0};
    int32_t ids[SEQUENCES];
    for (size_t s = 0; s < n; s++)
        ids[s] = token_at(s, position);
    must(spry_steps_decode(steps, ids, n, &error), &error);
}

static void together_is_as_alone(void **state)
{
    (void)state;
    spry_error error = {0};
    spry_engine *engine = open_engine(SEQUENCES), *other = open_engine(1);
    spry_steps *steps;
    must(spry_steps_create(&steps, engine, SEQUENCES, &error), &error);
    for (int again = 0; again < 2; again++) { /* the second time on used pages */
        prefill(steps);
        must(spry_steps_spread(steps, SEQUENCES, &error), &error);
        for (size_t i = 0; i < STEPS; i++) {
            step(steps, PROMPT + i, SEQUENCES);
            for (size_t s = 0; i % 13 == 0 && s < SEQUENCES; s++)
                check_alone(other, step_logits(engine->device, s, 1), s, i + 1);
        }
        spry_steps_truncate(steps, 0);
        assert_int_equal(engine->pool.n_free, engine->pool.n_pages);
    }
    spry_steps_destroy(steps);
    spry_engine_close(engine);
    spry_engine_close(other);
}

/* Cut back to the prompt the sequences go on as if nothing had been there. */
static void truncating_takes_back(void **state)
{
    (void)state;
    spry_error error = {0};
    spry_engine *engine = open_engine(2), *other = open_engine(1);
    spry_steps *steps;
    must(spry_steps_create(&steps, engine, 2, &error), &error);
    prefill(steps);
    must(spry_steps_spread(steps, 2, &error), &error);
    for (int again = 0; again < 3; again++) {
        spry_steps_truncate(steps, PROMPT);
        for (size_t i = 0; i < 10; i++)
            step(steps, PROMPT + i, 2);
        for (size_t s = 0; s < 2; s++)
            check_alone(other, step_logits(engine->device, s, 1), s, 10);
    }
    spry_steps_destroy(steps);
    assert_int_equal(engine->pool.n_free, engine->pool.n_pages);
    spry_engine_close(engine);
    spry_engine_close(other);
}

/* Each sequence has pages of its own: as many as sequences that have nothing in common. */
static void pages_are_not_shared(void **state)
{
    (void)state;
    spry_error error = {0};
    spry_engine *engine = open_engine(2);
    spry_steps *steps;
    must(spry_steps_create(&steps, engine, 3, &error), &error);
    prefill(steps);
    size_t of_one = engine->pool.n_pages - engine->pool.n_free;
    must(spry_steps_spread(steps, 2, &error), &error);
    assert_int_equal(engine->pool.n_pages - engine->pool.n_free, 2 * of_one);
    hostile_expect(spry_steps_spread(steps, 3, &error), &error, SPRY_ERR_CONTEXT, "full");
    spry_steps_destroy(steps);
    assert_int_equal(engine->pool.n_free, engine->pool.n_pages);
    hostile_expect(spry_steps_create(&steps, engine, SPRY_STEPS_MAX + 1, &error), &error, SPRY_ERR_INPUT, "more");
    spry_engine_close(engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(together_is_as_alone),
        cmocka_unit_test(truncating_takes_back),
        cmocka_unit_test(pages_are_not_shared),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
