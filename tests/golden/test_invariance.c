/* Warm equals cold: for every architecture, kernel set and KV type the logits of a prompt have the same bits whether it
 * is computed at once or in chunks, by one thread or three, alone or beside others, found in memory or read back from
 * disk.
 *
 * test_invariance [TABLE [MODEL]] runs less of it, for a machine that is slow because it is emulated. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <ftw.h>
#include <unistd.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/compiler.h"
#include "golden/golden_models.h"
#include "support/device_rows.h"
#include "support/sequence_scene.h"

enum { FIRST = 100, SECOND = 70, SHARED = 50, THIRD = 40 };

static const char *const kv_types[] = {"f32", "f16", "q8_0", "q4_0"};
static const char *only_cpu, *only_model; /* NULL: all */
static size_t n_checked;

typedef struct setting {
    const char *model, *cpu, *kv;
    const char *cache_dir;
} setting;

/* NULL when the model's heads, or its kind of attention, do not fit the KV type. */
static spry_engine *open_engine(const setting *s, uint32_t chunk, uint32_t threads)
{
    spry_error error = {0};
    spry_engine *engine;
    spry_engine_options options;
    spry_engine_options_default(&options);
    options.threads = threads;
    options.chunk = chunk;
    options.sessions = 3;
    options.context = 256;
    options.kv_bytes = 4 << 20;
    options.kv_type = s->kv;
    options.cpu = s->cpu;
    options.cache_dir = s->cache_dir;
    spry_status status = spry_engine_open(&engine, s->model, &options, &error);
    bool refused = status == SPRY_ERR_UNSUPPORTED &&
                   (strstr(error.message, "head size") || strstr(error.message, "is for keys and values of attention"));
    if (status && !refused)
        fail_msg("%s", error.message);
    return engine;
}

/* Three prompts; the second begins as the first does and leaves it in the middle of a page. */
typedef struct prompts {
    int32_t ids[3][FIRST];
    size_t counts[3];
    logits cold[3];
} prompts;

static void make_prompts(prompts *p)
{
    *p = (prompts){.counts = {FIRST, SECOND, THIRD}};
    for (uint32_t i = 0; i < 3; i++)
        fixture_ids(p->ids[i], p->counts[i], 50 + i);
    memcpy(p->ids[1], p->ids[0], SHARED * sizeof **p->ids);
}

static void check(const setting *s, const prompts *p, size_t i, const logits *got, const char *what)
{
    if (memcmp(got, &p->cold[i], sizeof *got))
        fail_msg("%s, %s, kv %s: %s changed bits of prompt %zu", s->model, s->cpu, s->kv, what, i);
}

static void eval_all(const setting *s, prompts *p, spry_engine *engine, const char *what)
{
    spry_session *session = fixture_session(engine);
    for (size_t i = 0; i < 3; i++) {
        logits got = scene_eval(session, p->ids[i], p->counts[i], NULL);
        check(s, p, i, &got, what);
    }
    spry_session_destroy(session);
}

/* Each prompt on an engine that knows nothing: the measure of everything else. */
static bool cold(const setting *s, prompts *p)
{
    spry_engine *engine = open_engine(s, 256, 1);
    for (size_t i = 0; engine && i < 3; i++) {
        spry_session *session = fixture_session(engine);
        p->cold[i] = scene_eval(session, p->ids[i], p->counts[i], NULL);
        spry_session_destroy(session);
        assert_true(spry_kv_cache_make_room(&engine->cache, engine->pool.n_pages));
    }
    spry_engine_close(engine);
    return engine != NULL;
}

/* In chunks, by several threads; then all again, warm, in another session. */
static void chunks_threads_and_cache(const setting *s, prompts *p)
{
    static const struct {
        uint32_t chunk, threads;
    } ways[] = {{1, 1}, {7, 2}, {32, 3}};
    for (size_t i = 0; i < SPRY_COUNT(ways); i++) {
        spry_engine *engine = open_engine(s, ways[i].chunk, ways[i].threads);
        eval_all(s, p, engine, "the chunk size or the number of threads");
        size_t before = scene_hits(engine);
        eval_all(s, p, engine, "the cache");
        assert_int_equal(scene_hits(engine) - before, FIRST + SECOND + THIRD - 3);
        spry_engine_close(engine);
    }
}

/* All three at once, a few rows of each a step. */
static void company(const setting *s, prompts *p)
{
    spry_engine *engine = open_engine(s, 32, 2);
    spry_session *sessions[3];
    spry_found found;
    size_t left = 3;
    for (size_t i = 0; i < 3; i++) {
        const spry_prompt prompt = {.ids = p->ids[i], .count = p->counts[i], .compute_from = p->counts[i] - 1};
        sessions[i] = fixture_session(engine);
        assert_int_equal(spry_sequence_begin(&sessions[i]->sequence, &found, &prompt, NULL), SPRY_OK);
    }
    for (size_t step = 0; left; step++) {
        spry_segment segments[16];
        size_t n = 0, rows[3] = {0}, row = 0;
        for (size_t i = 0; i < 3; i++) {
            size_t more, most = 1 + (step * 5 + i * 3) % 9;
            assert_int_equal(
                spry_sequence_fill(&sessions[i]->sequence, segments + n, &more, 4, most, p->counts[i] - 1, 1, NULL),
                SPRY_OK);
            for (; more--; n++)
                rows[i] += segments[n].n_rows;
        }
        assert_int_equal(step_run(engine->device, segments, n, NULL), SPRY_OK);
        for (size_t i = 0; i < 3; i++) {
            spry_sequence_computed(&sessions[i]->sequence, rows[i], 0);
            if (rows[i] && !spry_sequence_pending(&sessions[i]->sequence)) {
                logits got;
                memcpy(got.of, step_logits(engine->device, row++, 1), sizeof got.of);
                check(s, p, i, &got, "company in the step");
                left--;
            }
        }
    }
    for (size_t i = 0; i < 3; i++)
        spry_session_destroy(sessions[i]);
    scene_close_engine(engine);
}

/* Written by one engine, read back by the next. All settings share a folder: none may find another's pages. */
static void disk(const setting *s, prompts *p)
{
    spry_kv_figures figures;
    spry_engine *engine = open_engine(s, 64, 1);
    eval_all(s, p, engine, "writing to disk");
    spry_engine_kv_figures(engine, &figures);
    assert_int_equal(figures.restored_tokens, 0);
    spry_engine_close(engine);
    engine = open_engine(s, 7, 2);
    eval_all(s, p, engine, "the disk");
    spry_engine_kv_figures(engine, &figures);
    assert_true(figures.restored_tokens >= FIRST / SPRY_PAGE_TOKENS * SPRY_PAGE_TOKENS);
    assert_int_equal(figures.disk_bad_pages, 0);
    spry_engine_close(engine);
}

static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *at)
{
    (void)info;
    (void)kind;
    (void)at;
    return remove(path);
}

/* Every model and every KV type that fits it. */
static void check_models(const char *cpu, const char *folder)
{
    prompts *p = calloc(1, sizeof *p);
    assert_non_null(p);
    make_prompts(p);
    char model[512];
    for (size_t i = 0; golden_models[i]; i++)
        for (size_t k = 0; k < SPRY_COUNT(kv_types); k++) {
            const setting s = {model, cpu, kv_types[k], NULL}, kept = {model, cpu, kv_types[k], folder};
            if (only_model && strcmp(only_model, golden_models[i]) != 0)
                continue;
            if (!golden_folder(model, golden_models[i]) || !cold(&s, p))
                continue;
            n_checked++;
            chunks_threads_and_cache(&s, p);
            company(&s, p);
            disk(&kept, p);
        }
    free(p);
}

/* Every kernel set this machine has. */
static void test_nothing_changes_bits(void **state)
{
    (void)state;
    char names[128], *rest = names, folder[] = "/tmp/spry-test-XXXXXX";
    assert_non_null(mkdtemp(folder));
    snprintf(names, sizeof names, "%s", only_cpu ? only_cpu : spry_ops_names());
    for (char *name; (name = strsep(&rest, ", "));)
        if (*name)
            check_models(name, folder);
    assert_true(n_checked > 0);
    assert_int_equal(nftw(folder, remove_one, 8, FTW_DEPTH | FTW_PHYS), 0);
}

int main(int argc, char **argv)
{
    only_cpu = argc > 1 ? argv[1] : NULL;
    only_model = argc > 2 ? argv[2] : NULL;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nothing_changes_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
