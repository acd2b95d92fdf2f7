/* Rows of pictures in prompts: the same bits as tokens with these embeddings, found again by content and only so, in
 * any chunks, beside others, from disk, while a conversation slides, with drafts and under a grammar. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/compiler.h"
#include "model/picture.h"
#include "support/device_rows.h"
#include "support/hostile.h"
#include "support/scratch.h"
#include "support/sequence_scene.h"

enum { PAGE = SPRY_PAGE_TOKENS, AT = 2 * PAGE, MOST = 300, SECRET = 7 };

typedef struct prompt_of_test {
    int32_t ids[MOST];
    size_t count;
    spry_placed pictures[4];
    size_t n_pictures;
} prompt_of_test;

/* A picture whose rows are the embeddings of these tokens. */
static spry_picture *picture_of(const spry_engine *engine, const int32_t *ids, uint32_t n_rows, uint64_t hash)
{
    const spry_weight *w = &engine->model->weights.embedding;
    spry_picture *picture;
    assert_int_equal(spry_picture_create(&picture, (spry_kv_key){hash, SECRET}, n_rows, (uint32_t)w->n_in, 0, NULL),
                     SPRY_OK);
    for (uint32_t row = 0; row < n_rows; row++)
        engine->ops->decode[w->type](picture->values + row * w->n_in, w->data + (size_t)ids[row] * w->row_bytes,
                                     w->n_in);
    return picture;
}

static void put(prompt_of_test *p, size_t at, spry_picture *picture)
{
    p->pictures[p->n_pictures++] = (spry_placed){at, picture};
    for (uint32_t i = 0; i < picture->n_rows; i++)
        p->ids[at + i] = SECRET;
}

static void drop(const prompt_of_test *p)
{
    for (size_t i = 0; i < p->n_pictures; i++)
        spry_picture_unref(p->pictures[i].picture);
}

/* The logits after a prompt, in steps of at most `rows`. *reused: tokens that were not computed. */
static logits compute(spry_session *session, const prompt_of_test *p, size_t rows, size_t *reused)
{
    spry_sequence *s = &session->sequence;
    spry_device *device = session->engine->device;
    spry_found found;
    spry_error error = {0};
    const spry_prompt prompt = {.ids = p->ids,
                                .count = p->count,
                                .compute_from = p->count - 1,
                                .pictures = p->pictures,
                                .n_pictures = p->n_pictures};
    logits out;
    if (spry_sequence_begin(s, &found, &prompt, &error))
        fail_msg("%s", error.message);
    while (spry_sequence_pending(s)) {
        spry_segment segments[16];
        size_t n, done = 0;
        if (spry_sequence_fill(s, segments, &n, 16, rows, p->count - 1, 1, &error) ||
            step_run(device, segments, n, &error))
            fail_msg("%s", error.message);
        assert_true(n > 0);
        for (size_t i = 0; i < n; i++)
            done += segments[i].n_rows;
        spry_sequence_computed(s, done, 0);
    }
    memcpy(out.of, step_logits(device, 0, 1), sizeof out.of);
    if (reused)
        *reused = found.reused;
    return out;
}

static logits compute_alone(spry_engine *engine, const prompt_of_test *p, size_t rows, size_t *reused)
{
    spry_session *session = fixture_session(engine);
    logits out = compute(session, p, rows, reused);
    spry_session_destroy(session);
    return out;
}

/* Whole pages of rows that equal embeddings are computed like the tokens. */
static void test_rows_equal_tokens(void **state)
{
    (void)state;
    static const size_t steps[] = {1, 7, 64};
    prompt_of_test tokens = {.count = 150};
    fixture_ids(tokens.ids, tokens.count, 5);
    spry_engine *engine = scene_engine("qwen3", 256, 64, 0);
    logits plain = compute_alone(engine, &tokens, 64, NULL);
    prompt_of_test with = tokens;
    put(&with, AT, picture_of(engine, tokens.ids + AT, PAGE, 1));
    for (size_t i = 0; i < SPRY_COUNT(steps); i++) {
        logits got = compute_alone(engine, &with, steps[i], NULL);
        scene_same(&plain, &got);
        assert_true(spry_kv_cache_make_room(&engine->cache, engine->pool.n_pages));
    }
    drop(&with);
    scene_close_engine(engine);
}

/* A prompt with two pictures of odd sizes. */
static void make_odd(prompt_of_test *p, const spry_engine *engine, uint64_t hash)
{
    int32_t other[MOST];
    *p = (prompt_of_test){.count = 200};
    fixture_ids(p->ids, p->count, 6);
    fixture_ids(other, MOST, (uint32_t)hash);
    put(p, 21, picture_of(engine, other, 45, hash));
    put(p, 100, picture_of(engine, other + 50, 9, hash + 1000));
}

static void test_found_by_content(void **state)
{
    (void)state;
    prompt_of_test p, other;
    size_t reused;
    spry_engine *engine = scene_engine("llama", 256, 64, 0);
    make_odd(&p, engine, 3);
    make_odd(&other, engine, 4);
    logits cold = compute_alone(engine, &p, 64, &reused), warm;
    assert_int_equal(reused, 0);
    warm = compute_alone(engine, &p, 64, &reused);
    scene_same(&cold, &warm);
    assert_int_equal(reused, p.count - 1);
    logits third = compute_alone(engine, &other, 64, &reused);
    assert_int_equal(reused, 21); /* the text before the first picture */
    assert_memory_not_equal(&third, &cold, sizeof third);

    /* The second picture alone differs; then the text after it. */
    prompt_of_test mixed = p;
    mixed.pictures[1] = other.pictures[1];
    compute_alone(engine, &mixed, 64, &reused);
    assert_int_equal(reused, 100);
    mixed = p;
    mixed.ids[199]++;
    compute_alone(engine, &mixed, 64, &reused);
    assert_int_equal(reused, 199);

    /* The placeholders without the picture. */
    mixed = p;
    mixed.n_pictures = 0;
    compute_alone(engine, &mixed, 64, &reused);
    assert_int_equal(reused, 21);
    drop(&p);
    drop(&other);
    scene_close_engine(engine);
}

/* Pages of a picture of which one is gone are all computed again. */
static void test_two_way(void **state)
{
    (void)state;
    spry_engine *engine = scene_engine("gemma3", 256, 64, 0);
    prompt_of_test p;
    size_t reused;
    make_odd(&p, engine, 9);
    logits causal = compute_alone(engine, &p, 64, NULL);
    for (size_t i = 0; i < 2; i++) {
        spry_picture *picture = spry_picture_ref(p.pictures[i].picture);
        picture->two_way = true;
        picture->hash.high++;
        spry_picture_unref(picture);
    }
    logits cold = compute_alone(engine, &p, 64, NULL), warm;
    assert_memory_not_equal(&cold, &causal, sizeof cold);
    warm = compute_alone(engine, &p, 64, &reused);
    assert_int_equal(reused, p.count - 1);
    scene_same(&cold, &warm);
    assert_true(spry_kv_cache_make_room(&engine->cache, engine->pool.n_pages));
    warm = compute_alone(engine, &p, 47, &reused); /* each picture waits for a step with room for it */
    assert_int_equal(reused, 0);
    scene_same(&cold, &warm);
    drop(&p);
    scene_close_engine(engine);
}

static void test_disk(void **state)
{
    (void)state;
    scratch folder;
    spry_engine_options options;
    prompt_of_test p = {0};
    logits cold = {{0}};
    scratch_init(&folder);
    for (int i = 0; i < 2; i++) {
        spry_engine_options_default(&options);
        options.threads = 1;
        options.context = 256;
        options.cache_dir = folder.folder;
        size_t reused;
        spry_engine *engine = fixture_open("llama", &options);
        make_odd(&p, engine, 8);
        logits got = compute_alone(engine, &p, 64, &reused);
        if (i) { /* text before a picture whose page is not full is not on disk, so it is computed */
            scene_same(&cold, &got);
            spry_kv_figures figures;
            spry_engine_kv_figures(engine, &figures);
            assert_int_equal(figures.restored_tokens % PAGE, 45 % PAGE + 9);
            assert_true(reused >= 45 + 9 + PAGE);
        }
        cold = got;
        drop(&p);
        spry_engine_close(engine);
    }
    scratch_deinit(&folder);
}

/* A conversation of several windows, at once and in parts: a picture leaves whole. */
static void test_slides(void **state)
{
    (void)state;
    static const size_t lengths[] = {90, 130, 170, 240, 300};
    spry_engine *engine = scene_engine("llama", 128, 64, 0);
    spry_session *parts = fixture_session(engine);
    spry_session_set_slide(parts, true, 10);
    prompt_of_test all = {.count = MOST};
    fixture_ids(all.ids, MOST, 12);
    put(&all, 5, picture_of(engine, all.ids + 5, 20, 1));
    put(&all, 60, picture_of(engine, all.ids + 60, 40, 2));
    put(&all, 120, picture_of(engine, all.ids + 120, 37, 3));
    put(&all, 205, picture_of(engine, all.ids + 205, 60, 4));
    for (size_t i = 0; i < SPRY_COUNT(lengths); i++) {
        prompt_of_test p = all;
        p.count = lengths[i];
        while (p.n_pictures && p.pictures[p.n_pictures - 1].at + p.pictures[p.n_pictures - 1].picture->n_rows > p.count)
            p.n_pictures--;
        logits some = compute(parts, &p, 17, NULL);
        spry_engine *fresh = scene_engine("llama", 128, 64, 0);
        spry_session *whole = fixture_session(fresh);
        spry_session_set_slide(whole, true, 10);
        logits cold = compute(whole, &p, 64, NULL);
        scene_same(&cold, &some);
        const spry_sequence *s = &whole->sequence;
        for (size_t k = 0; k < s->n_pictures; k++) { /* kept where it was, moved with its text, or gone */
            const spry_held_picture *held = &s->pictures[k];
            size_t at = (size_t)held->position;
            if (held->position < 0)
                continue;
            assert_true(at == held->placed.at || at + s->n_dropped == held->placed.at);
            assert_int_equal(spry_kv_table_find(&s->table, at)->start, at);
        }
        spry_session_destroy(whole);
        scene_close_engine(fresh);
    }
    assert_true(parts->sequence.n_dropped > 100);
    assert_int_equal(parts->sequence.pictures[0].position, 5); /* in the kept head */
    assert_int_equal(parts->sequence.pictures[1].position, SPRY_SLID_OUT);
    spry_session_destroy(parts);
    drop(&all);
    scene_close_engine(engine);
}

typedef struct answer_of_test {
    int32_t ids[64];
    size_t n;
} answer_of_test;

static bool take(void *user, spry_logprob_entry token, const spry_logprob_entry *top, size_t n_top)
{
    answer_of_test *a = user;
    (void)top;
    (void)n_top;
    a->ids[a->n++] = token.id;
    return true;
}

static spry_request request_of(const prompt_of_test *p, answer_of_test *a)
{
    spry_request request;
    spry_request_default(&request);
    request.prompt = p->ids;
    request.n_prompt = p->count;
    request.pictures = p->pictures;
    request.n_pictures = p->n_pictures;
    request.max_tokens = 40;
    request.ignore_end = true;
    request.sampling.temperature = 0;
    request.on_token = take;
    request.user = a;
    return request;
}

/* Alone, with and without drafts, beside other jobs, warm. */
static void test_answers(void **state)
{
    (void)state;
    spry_error error = {0};
    spry_engine *engine = scene_engine("llama", 256, 32, 0);
    prompt_of_test p;
    make_odd(&p, engine, 21);
    answer_of_test first = {.n = 0}, again = {.n = 0}, many[3] = {{.n = 0}};
    spry_request request = request_of(&p, &first);
    spry_session *s = fixture_session(engine);
    spry_result result;
    request.speculation = SPRY_DRAFT_NONE;
    if (spry_session_generate(s, &result, &request, &error))
        fail_msg("%s", error.message);
    request = request_of(&p, &again);
    request.speculation = SPRY_DRAFT_LOOKUP;
    assert_int_equal(spry_session_generate(s, &result, &request, &error), SPRY_OK);
    assert_int_equal(result.reused_tokens, p.count - 1);
    assert_int_equal(first.n, 40);
    assert_memory_equal(&first, &again, sizeof first);
    spry_session_destroy(s);
    spry_job *jobs[3];
    for (size_t i = 0; i < 3; i++) {
        request = request_of(&p, &many[i]);
        assert_int_equal(spry_job_create_answer(&jobs[i], engine, &request, NULL, &error), SPRY_OK);
        assert_int_equal(spry_job_submit(jobs[i], &error), SPRY_OK);
    }
    drop(&p); /* the jobs have their own references */
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(spry_job_wait(jobs[i], -1, &error), SPRY_OK);
        assert_memory_equal(&first, &many[i], sizeof first);
        spry_job_free(jobs[i]);
    }
    assert_int_equal(spry_engine_close(engine), SPRY_OK);
}

/* An answer, and the number of tokens of another one when it got its first. */
typedef struct answer_beside {
    answer_of_test own;
    size_t *other, other_then;
} answer_beside;

static bool take_beside(void *user, spry_logprob_entry token, const spry_logprob_entry *top, size_t n_top)
{
    answer_beside *a = user;
    if (!a->own.n)
        a->other_then = *a->other;
    return take(&a->own, token, top, n_top);
}

/* Counts tokens, and submits a job at the first. */
typedef struct answer_before {
    size_t n;
    spry_job *next;
} answer_before;

static bool take_before(void *user, spry_logprob_entry token, const spry_logprob_entry *top, size_t n_top)
{
    answer_before *a = user;
    (void)token;
    (void)top;
    (void)n_top;
    if (!a->n++)
        assert_int_equal(spry_job_submit(a->next, NULL), SPRY_OK);
    return true;
}

/* A picture with more rows than a chunk, all of which see each other, beside an answer that leaves one row a step to
 * prompts: it is computed at once and not when the answer has ended. */
static void test_whole_beside_answers(void **state)
{
    (void)state;
    enum { LONG = 400, ROWS = 16 };
    spry_error error = {0};
    spry_engine_options options;
    spry_engine_options_default(&options);
    options.threads = 1;
    options.chunk = 8;
    options.sessions = 2;
    options.context = 512;
    spry_engine *engine = fixture_open("gemma3-vl", &options);
    assert_int_equal(engine->picture_rows, ROWS);
    spry_jobs_options jobs;
    spry_jobs_options_default(&jobs);
    jobs.max_stall_ms = 0;
    assert_int_equal(spry_engine_set_jobs(engine, &jobs, &error), SPRY_OK);
    prompt_of_test text = {.count = 2}, seen = {.count = ROWS + 3};
    fixture_ids(text.ids, text.count, 3);
    fixture_ids(seen.ids, seen.count, 4);
    put(&seen, 1, picture_of(engine, seen.ids, ROWS, 5));
    spry_picture *picture = spry_picture_ref(seen.pictures[0].picture);
    picture->two_way = true;
    spry_picture_unref(picture);
    answer_before before = {.n = 0};
    answer_beside beside = {.other = &before.n};
    spry_request first = request_of(&text, NULL), second = request_of(&seen, NULL);
    first.max_tokens = LONG;
    first.on_token = take_before;
    first.user = &before;
    second.max_tokens = 4;
    second.on_token = take_beside;
    second.user = &beside;
    spry_job *both[2];
    assert_int_equal(spry_job_create_answer(&both[0], engine, &first, NULL, &error), SPRY_OK);
    assert_int_equal(spry_job_create_answer(&both[1], engine, &second, NULL, &error), SPRY_OK);
    before.next = both[1];
    assert_int_equal(spry_job_submit(both[0], &error), SPRY_OK);
    for (size_t i = 0; i < 2; i++)
        if (spry_job_wait(both[i], -1, &error))
            fail_msg("%s", error.message);
    for (size_t i = 0; i < 2; i++)
        spry_job_free(both[i]);
    assert_int_equal(before.n, LONG);
    assert_int_equal(beside.own.n, 4);
    assert_true(beside.other_then < LONG);
    drop(&seen);
    assert_int_equal(spry_engine_close(engine), SPRY_OK);
}

static void test_refusals(void **state)
{
    (void)state;
    spry_error error = {0};
    spry_engine *engine = scene_engine("llama", 256, 32, 0);
    spry_session *s = fixture_session(engine);
    prompt_of_test p;
    answer_of_test a = {.n = 0};
    spry_result result;
    make_odd(&p, engine, 30);
    spry_picture *bad;
    assert_int_equal(spry_picture_create(&bad, (spry_kv_key){1, 1}, 4, 48, 0, NULL), SPRY_OK);
    spry_request request = request_of(&p, &a);
    spry_placed placed[] = {{10, bad}};
    request.pictures = placed;
    request.n_pictures = 1;
    hostile_expect(spry_session_generate(s, &result, &request, &error), &error, SPRY_ERR_INPUT, "48 floats");
    spry_picture_unref(bad);
    placed[0].picture = p.pictures[0].picture;
    placed[0].at = 180;
    hostile_expect(spry_session_generate(s, &result, &request, &error), &error, SPRY_ERR_INPUT,
                   "45 rows from token 180");
    const spry_placed twice[] = {{10, p.pictures[0].picture}, {54, p.pictures[0].picture}};
    request.pictures = twice;
    request.n_pictures = 2;
    hostile_expect(spry_session_generate(s, &result, &request, &error), &error, SPRY_ERR_INPUT, "out of order");
    assert_int_equal(spry_picture_create(&bad, (spry_kv_key){1, 1}, UINT32_MAX, UINT32_MAX, UINT32_MAX, &error),
                     SPRY_ERR_MEMORY);
    spry_session_destroy(s);
    drop(&p);
    scene_close_engine(engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows_equal_tokens),
        cmocka_unit_test(test_found_by_content),
        cmocka_unit_test(test_two_way),
        cmocka_unit_test(test_disk),
        cmocka_unit_test(test_slides),
        cmocka_unit_test(test_answers),
        cmocka_unit_test(test_whole_beside_answers),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
