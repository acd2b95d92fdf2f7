/* Embeddings: the same bits however a text is cut up, and what a plain computation from the pass's rows gives. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "engine/engine_state.h"
#include "sched/job.h"
#include "support/device_rows.h"
#include "support/engine_fixture.h"
#include "support/hostile.h"

enum { COUNT = 200, WIDTH = 64 }; /* the fixtures' width */

static const char *const models[] = {"llama", "gemma2", "qwen3-moe", "mistral-swa"};

static spry_engine_options options(uint32_t chunk, uint32_t threads)
{
    spry_engine_options o;
    spry_engine_options_default(&o);
    o.chunk = chunk;
    o.threads = threads;
    o.sessions = 2;
    return o;
}

static void embed(spry_session *session, float *out, const int32_t *ids, size_t count)
{
    spry_error error = {0};
    if (spry_session_embed(session, out, ids, count, &error))
        fail_msg("%s", error.message);
}

/* Adds the hidden states after ids [first, count). */
static void add_part(spry_session *session, double *sum, const int32_t *ids, size_t count, size_t first)
{
    spry_job job;
    const spry_prompt prompt = {.ids = ids, .count = count, .compute_from = first};
    spry_job_init_reading(&job, session->engine, &prompt, SPRY_WANT_HIDDEN, session);
    job.reading.sum = sum;
    assert_int_equal(spry_session_run(session, &job, NULL), SPRY_OK);
}

/* On an engine of its own. */
static void embed_once(float *out, const char *model, const spry_engine_options *o, const int32_t *ids, size_t count)
{
    spry_engine *engine = fixture_open(model, o);
    spry_session *session = fixture_session(engine);
    embed(session, out, ids, count);
    spry_session_destroy(session);
    spry_engine_close(engine);
}

static void chunks_and_threads_change_no_bit(void **state)
{
    (void)state;
    static const struct {
        uint32_t chunk, threads;
    } ways[] = {{1, 1}, {7, 1}, {64, 2}, {512, 3}};
    int32_t ids[COUNT];
    fixture_ids(ids, COUNT, 11);
    for (size_t m = 0; m < SPRY_COUNT(models); m++) {
        float first[WIDTH], other[WIDTH];
        spry_engine_options o = options(199, 1);
        embed_once(first, models[m], &o, ids, COUNT);
        for (size_t i = 0; i < SPRY_COUNT(ways); i++) {
            o = options(ways[i].chunk, ways[i].threads);
            embed_once(other, models[m], &o, ids, COUNT);
            assert_memory_equal(first, other, sizeof first);
        }
    }
}

/* Nor does what was computed before, by whomever, nor being computed in parts on sessions that come and go. */
static void company_and_parts_change_no_bit(void **state)
{
    (void)state;
    int32_t ids[COUNT], others[COUNT];
    fixture_ids(ids, COUNT, 12);
    fixture_ids(others, COUNT, 13);
    for (size_t m = 0; m < SPRY_COUNT(models); m++) {
        float alone[WIDTH], now[WIDTH];
        double sum[WIDTH] = {0};
        const float *logits;
        spry_engine_options o = options(64, 1);
        embed_once(alone, models[m], &o, ids, COUNT);
        spry_engine *engine = fixture_open(models[m], &o);
        spry_session *other = fixture_session(engine), *session = fixture_session(engine);
        embed(other, now, others, COUNT);
        assert_memory_not_equal(alone, now, sizeof alone);
        assert_int_equal(spry_session_eval(session, &logits, ids, COUNT / 2, NULL), SPRY_OK);
        for (size_t again = 0; again < 2; again++) {
            embed(session, now, ids, COUNT);
            assert_memory_equal(alone, now, sizeof alone);
        }
        for (size_t begin = 0, size = 1, end; begin < COUNT; begin = end, size = size % 60 + 7) {
            end = begin + size < COUNT ? begin + size : COUNT;
            spry_session_destroy(session);
            session = fixture_session(engine);
            add_part(session, sum, ids, end, begin);
        }
        assert_int_equal(spry_pooling_finish(&engine->model->pooling, now, sum, COUNT, WIDTH, NULL), SPRY_OK);
        assert_memory_equal(alone, now, sizeof alone);
        spry_session_destroy(session);
        spry_session_destroy(other);
        spry_engine_close(engine);
    }
}

/* Rows that are computed only because others need them are not counted. */
static void what_is_before_a_part_is_not_in_it(void **state)
{
    (void)state;
    int32_t ids[COUNT];
    fixture_ids(ids, COUNT, 18);
    for (uint32_t chunk = 1; chunk < COUNT; chunk += 66) {
        spry_engine_options o = options(chunk, 1);
        double sums[2][WIDTH] = {{0}};
        for (size_t warm = 0; warm < 2; warm++) {
            const float *logits;
            spry_engine *engine = fixture_open("llama", &o);
            spry_session *session = fixture_session(engine);
            if (warm)
                assert_int_equal(spry_session_eval(session, &logits, ids, 100, NULL), SPRY_OK);
            add_part(session, sums[warm], ids, COUNT, 100);
            spry_session_destroy(session);
            spry_engine_close(engine);
        }
        assert_memory_equal(sums[0], sums[1], sizeof sums[0]);
    }
}

/* ---- against a plain computation --------------------------------------------------------------------------------- */

/* Hidden state times output matrix; the bound allows any order of summing the products, and of the softcap. */
static void expect_logits(const spry_engine *engine, const float *hidden, const float *logits)
{
    const spry_weight *w = &engine->model->weights.output;
    double softcap = (double)engine->model->config.final_softcap;
    for (uint32_t id = 0; id < FIXTURE_VOCAB; id++) {
        float row[WIDTH];
        double product = 0, size = 0;
        engine->ops->decode[w->type](row, w->data + id * w->row_bytes, WIDTH);
        for (size_t i = 0; i < WIDTH; i++) {
            product += (double)row[i] * (double)hidden[i];
            size += fabs((double)row[i] * (double)hidden[i]);
        }
        if (softcap > 0)
            product = softcap * tanh(product / softcap);
        double bound = (size * WIDTH + softcap) * FLT_EPSILON;
        if (fabs(product - (double)logits[id]) > bound)
            fail_msg("logit %u is %g, not %g (bound %g)", id, (double)logits[id], product, bound);
    }
}

typedef struct kept_rows {
    float hidden[COUNT][WIDTH];
    spry_engine *engine;
    size_t count;
} kept_rows;

static bool compare_row(void *user, size_t index, const float *logits)
{
    kept_rows *kept = user;
    assert_int_equal(index, kept->count++);
    expect_logits(kept->engine, kept->hidden[index], logits);
    return true;
}

static void rows_make_the_logits_and_the_mean(void **state)
{
    (void)state;
    static const char *const floats[] = {"llama", "gemma2"}; /* f32 from end to end */
    int32_t ids[COUNT];
    fixture_ids(ids, COUNT, 14);
    for (size_t m = 0; m < SPRY_COUNT(floats); m++) {
        spry_engine_options o = options(COUNT, 1);
        kept_rows *kept = calloc(1, sizeof *kept);
        assert_non_null(kept);
        kept->engine = fixture_open(floats[m], &o);
        spry_engine_info info;
        spry_engine_describe(kept->engine, &info);
        assert_int_equal(info.embedding, WIDTH);
        spry_session *session = fixture_session(kept->engine);
        float out[WIDTH];
        double mean[WIDTH] = {0}, square = 0;
        embed(session, out, ids, COUNT); /* in one step, whose rows are still there */
        for (size_t i = 0; i < COUNT; i++)
            memcpy(kept->hidden[i], step_hidden(kept->engine->device, i, 1), sizeof kept->hidden[i]);
        assert_int_equal(spry_session_eval_rows(session, ids, COUNT, compare_row, kept, NULL), SPRY_OK);
        assert_int_equal(kept->count, COUNT);
        for (size_t k = 0; k < WIDTH; k++) {
            for (size_t i = 0; i < COUNT; i++)
                mean[k] += (double)kept->hidden[i][k] / COUNT;
            square += mean[k] * mean[k];
        }
        double length = 0;
        for (size_t k = 0; k < WIDTH; k++) {
            double wanted = mean[k] / sqrt(square), bound = fabs(wanted) * FLT_EPSILON + COUNT * DBL_EPSILON;
            assert_true(fabs(wanted - (double)out[k]) <= bound);
            length += (double)out[k] * (double)out[k];
        }
        assert_true(fabs(length - 1) <= 2 * FLT_EPSILON);
        spry_session_destroy(session);
        spry_engine_close(kept->engine);
        free(kept);
    }
}

static void every_table_agrees(void **state)
{
    (void)state;
    static const char *const tables[] = {"avx2", "avx512bw", "avxvnni", "avx512", "avx512bf16",
                                         "amx",  "neon",     "dotprod", "i8mm",   "bf16"};
    int32_t ids[COUNT];
    fixture_ids(ids, COUNT, 15);
    for (size_t m = 0; m < SPRY_COUNT(models); m++) {
        float plain[WIDTH], fast[WIDTH];
        spry_engine_options o = options(64, 1);
        o.kv_type = "f32"; /* nothing rounds but sums */
        o.cpu = "ref";
        embed_once(plain, models[m], &o, ids, COUNT);
        for (size_t t = 0; t < SPRY_COUNT(tables); t++) {
            const spry_ops *ops;
            if (spry_ops_get(&ops, tables[t], NULL))
                continue; /* not on this machine */
            o.cpu = tables[t];
            embed_once(fast, models[m], &o, ids, COUNT);
            float bound = 3 * WIDTH * FLT_EPSILON; /* layers, and terms of a sum */
            if (ops->matmul[SPRY_BF16].bf16)       /* layers, and products whose inputs are rounded */
                bound += 3 * 7 * 0x1p-9f;
            for (size_t k = 0; k < WIDTH; k++)
                if (fabsf(plain[k] - fast[k]) > bound)
                    fail_msg("%s, %s: number %zu is %g, not %g", models[m], tables[t], k, (double)fast[k],
                             (double)plain[k]);
        }
    }
}

/* ---- the pass ---------------------------------------------------------------------------------------------------- */

/* A step that gives hidden states of one sequence and logits of another. */
static void wants_do_not_disturb_each_other(void **state)
{
    (void)state;
    enum { ROWS = 20, WANTED = 5 };
    int32_t ids[2 * ROWS];
    fixture_ids(ids, 2 * ROWS, 16);
    spry_engine_options o = options(64, 1);
    spry_engine *e = fixture_open("llama", &o);
    spry_kv_table tables[2];
    float hidden[ROWS][WIDTH], *logits = calloc(WANTED, FIXTURE_VOCAB * sizeof *logits);
    assert_non_null(logits);
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(spry_kv_table_init(&tables[i], ROWS, NULL), SPRY_OK);
        assert_int_equal(spry_kv_table_extend(&tables[i], &e->pool, ROWS, NULL), SPRY_OK);
    }
    const spry_segment all[] = {{&tables[1], ids + ROWS, 0, WANTED, SPRY_WANT_ALL, {{0}}, 0, NULL, 0},
                                {&tables[0], ids, 0, ROWS, SPRY_WANT_HIDDEN, {{0}}, 0, NULL, 0},
                                {&tables[1], ids + ROWS + WANTED, WANTED, 3, SPRY_WANT_NOTHING, {{0}}, 0, NULL, 0}};
    assert_int_equal(step_run(e->device, &all[0], 1, NULL), SPRY_OK);
    memcpy(logits, step_logits(e->device, 0, WANTED), WANTED * FIXTURE_VOCAB * sizeof *logits);
    assert_int_equal(step_run(e->device, &all[1], 1, NULL), SPRY_OK);
    memcpy(hidden, step_hidden(e->device, 0, ROWS), sizeof hidden);
    for (size_t first = 0; first < 2; first++) { /* in either order */
        const spry_segment list[] = {all[first], all[1 - first], all[2]};
        assert_int_equal(step_run(e->device, list, 3, NULL), SPRY_OK);
        assert_memory_equal(step_logits(e->device, 0, WANTED), logits, WANTED * FIXTURE_VOCAB * sizeof *logits);
        assert_memory_equal(step_hidden(e->device, 0, ROWS), hidden, sizeof hidden);
    }
    for (size_t i = 0; i < 2; i++)
        spry_kv_table_deinit(&tables[i], &e->pool);
    free(logits);
    spry_engine_close(e);
}

static void what_cannot_be_embedded(void **state)
{
    (void)state;
    int32_t ids[FIXTURE_CONTEXT + 1];
    fixture_ids(ids, SPRY_COUNT(ids), 17);
    spry_engine *engine = fixture_open("llama", NULL);
    spry_session *session = fixture_session(engine);
    spry_error error = {0};
    float out[WIDTH];
    double sum[2] = {0, 0};
    const spry_pooling plain = {.kind = SPRY_POOL_MEAN, .normalise = true, .width = 2};
    spry_session_set_slide(session, true, 0); /* does not help */
    hostile_expect(spry_session_embed(session, out, ids, 0, &error), &error, SPRY_ERR_INPUT, "empty");
    hostile_expect(spry_session_embed(session, out, ids, FIXTURE_CONTEXT + 1, &error), &error, SPRY_ERR_CONTEXT,
                   "513|512");
    embed(session, out, ids, FIXTURE_CONTEXT);
    ids[9] = FIXTURE_VOCAB;
    hostile_expect(spry_session_embed(session, out, ids, 10, &error), &error, SPRY_ERR_INPUT, "512|vocabulary");
    ids[9] = -1;
    hostile_expect(spry_session_embed(session, out, ids, 10, &error), &error, SPRY_ERR_INPUT, "-1|vocabulary");
    assert_int_equal(spry_pooling_finish(&plain, out, sum, 1, 2, &error), SPRY_OK);
    assert_true(out[0] == 0 && out[1] == 0);
    sum[1] = NAN;
    hostile_expect(spry_pooling_finish(&plain, out, sum, 1, 2, &error), &error, SPRY_ERR_UNSUPPORTED, "finite");
    spry_session_destroy(session);
    spry_engine_close(engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chunks_and_threads_change_no_bit),
        cmocka_unit_test(company_and_parts_change_no_bit),
        cmocka_unit_test(what_is_before_a_part_is_not_in_it),
        cmocka_unit_test(rows_make_the_logits_and_the_mean),
        cmocka_unit_test(every_table_agrees),
        cmocka_unit_test(wants_do_not_disturb_each_other),
        cmocka_unit_test(what_cannot_be_embedded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
