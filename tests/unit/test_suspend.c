/* Answers that are suspended, at whatever moment, and resumed: no token of them changes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "platform/clock.h"
#include "support/fixed_costs.h"
#include "support/job_clients.h"

enum { KINDS = 6 };

static const char pattern[] = "(one|two) and (three hundred|four thousand) (things ){20,40}";

/* The kinds of requests that differ in what they have to keep. */
static void make(client *c, size_t kind)
{
    ask(c, 100, 7, 60);
    spry_request *r = &c->job.request;
    switch (kind) {
    case 1:
        r->sampling.temperature = 1;
        r->sampling.seed = 5;
        r->sampling.repeat_penalty = 1.2f;
        break;
    case 2: /* a fragment up to the prompt's end, whose last page is computed in place */
        c->spans[0] = (spry_span){10, 100};
        r->spans = c->spans;
        r->n_spans = 1;
        break;
    case 3: /* tokens are forced */
        r->constraint = SPRY_REGEX;
        r->constraint_text = pattern;
        r->on_token = NULL;
        r->ignore_end = false;
        break;
    case 4:
        r->speculation = SPRY_DRAFT_LOOKUP;
        r->max_tokens = 200;
        break;
    case 5: /* past the context */
        c->job.slide = true;
        c->job.keep = 40;
        r->max_tokens = 450;
        break;
    default: break;
    }
}

/* When it is suspended, and whether others take its pages meanwhile. */
typedef struct plan {
    uint32_t seed, often; /* one time in this many */
    bool evict;
} plan;

static bool now(plan *p)
{
    p->seed = p->seed * 1664525u + 1013904223u;
    return (p->seed >> 10) % p->often == 0;
}

static void suspend_and_resume(spry_engine *e, spry_generation *g, const plan *p)
{
    spry_error error = {0};
    spry_generation_suspend(g);
    assert_int_equal(g->sequence->table.n_tokens, 0);
    if (p->evict)
        assert_true(spry_kv_cache_make_room(&e->cache, e->pool.n_pages)); /* it holds none itself */
    if (spry_generation_resume(g, &error))
        fail_msg("%s", error.message);
}

/* The answer, in steps of varying sizes. Returns how often it was suspended. */
static size_t run(spry_engine *e, client *c, plan *p)
{
    spry_session *session = fixture_session(e);
    atomic_bool cancelled = false;
    spry_laps laps;
    spry_laps_begin(&laps, NULL, 0, spry_clock_ns());
    spry_generation g = {.request = &c->job.request, .result = &c->job.result, .cancelled = &cancelled, .laps = &laps};
    spry_error error = {0};
    size_t times = 0;
    spry_session_set_slide(session, c->job.slide, c->job.keep);
    assert_int_equal(spry_engine_make_matcher(e, &g.matcher, &c->job.request, &error), SPRY_OK);
    assert_int_equal(spry_session_prepare(session, &g, true, &error), SPRY_OK);
    assert_int_equal(spry_generation_begin(&g, &error), SPRY_OK);
    while (!spry_generation_done(&g)) {
        spry_segment segments[SPRY_STEP_SEGMENTS];
        size_t n, rows = 0;
        if (now(p)) {
            suspend_and_resume(e, &g, p);
            times++;
        }
        if (spry_generation_next(&g, segments, &n, SPRY_STEP_SEGMENTS, 1 + p->seed % 64, 16, 0, &error))
            fail_msg("%s", error.message);
        if (!spry_generation_done(&g) && now(p)) { /* the rows are forgotten */
            suspend_and_resume(e, &g, p);
            times++;
            continue;
        }
        for (size_t i = 0; i < n; i++)
            rows += segments[i].n_rows;
        if (!rows)
            continue;
        spry_draw *draws[SPRY_DRAFT_MOST + 1];
        const spry_device_step step = {segments, n, draws, spry_generation_draws(&g, draws, 0), NULL};
        assert_int_equal(spry_device_submit(e->device, &step, &error), SPRY_OK);
        assert_int_equal(spry_device_wait(e->device, &error), SPRY_OK);
        assert_int_equal(spry_generation_on_step_done(&g, rows, &error), SPRY_OK);
    }
    spry_generation_end(&g);
    spry_matcher_destroy(g.matcher);
    spry_session_destroy(session);
    return times;
}

static void test_suspended(void **state)
{
    (void)state;
    size_t times = 0;
    client *all = clients_new(2);
    for (size_t kind = 0; kind < KINDS; kind++) {
        make(&all[0], kind);
        answer_alone("llama", &all[1], &all[0]);
        for (uint32_t round = 0; round < 4; round++) {
            spry_engine *engine = open_engine("llama", 1, round < 2 ? 0 : 16);
            bool evict = round % 2, costly = evict || kind == 5; /* all is computed again each time */
            plan p = {.seed = 31 * round + (uint32_t)kind, .often = costly ? 60 : 4, .evict = evict};
            make(&all[0], kind);
            times += run(engine, &all[0], &p);
            assert_int_equal(all[0].job.result.finish, all[1].job.result.finish);
            assert_int_equal(all[0].job.result.generated_tokens, all[1].job.result.generated_tokens);
            assert_memory_equal(all[0].ids, all[1].ids, sizeof all[0].ids);
            assert_int_equal(all[0].size, all[1].size);
            assert_memory_equal(all[0].text, all[1].text, all[0].size);
            expect_no_page_held(engine);
            spry_engine_close(engine);
        }
    }
    assert_true(times > 100);
    free(all);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_suspended)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
