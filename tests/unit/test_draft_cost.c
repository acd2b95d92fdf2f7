/* The choice of how much to draft, on simulated machines: what a step costs and how often drafts are right is known
 * here and not there, so what it chose can be compared with the best that could be chosen. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>

#include "base/compiler.h"
#include "draft/draft_cost.h"
#include "sampling/sampler.h"

typedef struct machine {
    double base_ns, row_ns; /* a step: the larger of reading weights and computing rows, and a little for each row */
    double compute_ns;      /* of a row */
    double draft_ns;        /* of a token */
    double noise;           /* times vary by this share */
    double spike;           /* probability of a step that takes five times as long */
    double growth;          /* of base_ns with every token */
    double busy;            /* times as long while another program runs, which comes and goes; 0: none does */
} machine;

/* Acceptance at a moment, given that all before it in the draft were accepted. */
typedef double acceptance_at(size_t token, uint32_t position);

typedef struct run {
    const machine *m;
    acceptance_at *acceptance;
    size_t other_rows;
    int fixed; /* -1: the model chooses; else the number of drafts in every step */
    uint64_t seed;
} run;

static double true_ns(const machine *m, size_t rows, size_t token)
{
    double reading = m->base_ns * (1 + m->growth * (double)token), computing = m->compute_ns * (double)rows;
    return (reading > computing ? reading : computing) + m->row_ns * (double)rows;
}

static double unit(spry_random *random)
{
    return spry_random_unit(random);
}

static double disturbed(const machine *m, double ns, spry_random *random)
{
    double factor = 1 + m->noise * (2 * unit(random) - 1);
    if (unit(random) < m->spike)
        factor *= 5;
    return ns * factor;
}

typedef struct simulation {
    spry_draft_steps steps;
    spry_draft_cost cost;
    spry_random random;
    size_t token;  /* of the sequence */
    size_t others; /* tokens of the other rows */
    size_t spell;  /* steps until the other program comes or goes */
    bool busy;
} simulation;

static void begin(simulation *s, uint64_t seed)
{
    *s = (simulation){0};
    spry_draft_steps_init(&s->steps);
    spry_draft_cost_init(&s->cost, &s->steps);
    spry_random_seed(&s->random, seed);
}

/* How many times as long this step takes because of another program, which runs for 1 to 64 steps, and pauses. */
static double pace(const machine *m, simulation *s)
{
    if (m->busy > 0 && !s->spell--) {
        s->spell = (size_t)(unit(&s->random) * 64);
        s->busy = !s->busy;
    }
    return s->busy ? m->busy : 1;
}

/* Runs until there are `last` tokens; the time that took, without the disturbances of the clock. */
static double advance(const run *r, simulation *s, size_t last)
{
    double total = 0;
    while (s->token < last) {
        uint32_t k = r->fixed >= 0 ? (uint32_t)r->fixed : spry_draft_cost_choose(&s->cost, r->other_rows, 99);
        uint32_t accepted = 0;
        while (accepted < k && unit(&s->random) < r->acceptance(s->token + accepted, accepted))
            accepted++;
        size_t rows = r->other_rows + 1 + k;
        double ns = true_ns(r->m, rows, s->token), slow = pace(r->m, s);
        spry_draft_steps_measure(&s->steps, rows, k == 0, (uint64_t)disturbed(r->m, ns * slow, &s->random));
        spry_draft_cost_learn(&s->cost, &(spry_draft_outcome){.other_rows = r->other_rows,
                                                              .drafted = k,
                                                              .accepted = accepted,
                                                              .draft_ns = (uint64_t)(r->m->draft_ns * slow * k)});
        total += ns + r->m->draft_ns * k;
        s->token += accepted + 1;
        s->others += r->other_rows;
    }
    return total;
}

/* Nanoseconds per token, with the tokens of the other rows. The measured costs stay in `cost`. */
static double simulate(const run *r, size_t tokens, spry_draft_cost *cost)
{
    simulation s;
    begin(&s, r->seed);
    double total = advance(r, &s, tokens);
    *cost = s.cost;
    return total / (double)(s.token + s.others);
}

/* How many times as fast as plain steps: as chosen, and with the best fixed number of drafts. */
static double speedup(const run *r, size_t tokens, spry_draft_cost *cost, double *best)
{
    spry_draft_cost other;
    run fixed = *r;
    double plain = 0;
    *best = 0;
    for (fixed.fixed = 0; fixed.fixed <= SPRY_DRAFT_MOST; fixed.fixed++) {
        double ns = simulate(&fixed, tokens, &other);
        if (fixed.fixed == 0)
            plain = ns;
        *best = fmax(*best, plain / ns);
    }
    return plain / simulate(r, tokens, cost);
}

/* ---- drafters ---------------------------------------------------------------------------------------------------- */

static const machine memory_bound = {.base_ns = 20e6, .row_ns = 0.2e6, .compute_ns = 0.5e6, .draft_ns = 1e6};
static const machine compute_bound = {.base_ns = 1e6, .row_ns = 0, .compute_ns = 20e6, .draft_ns = 1e6};

static double often(size_t token, uint32_t position)
{
    (void)token, (void)position;
    return 0.8;
}

static double half(size_t token, uint32_t position)
{
    (void)token, (void)position;
    return 0.5;
}

static double never(size_t token, uint32_t position)
{
    (void)token, (void)position;
    return 1.0 / 32000;
}

static double fading(size_t token, uint32_t position)
{
    (void)token;
    return 0.9 * pow(0.75, position);
}

static double collapsing(size_t token, uint32_t position)
{
    (void)position;
    return token >= 2000 && token < 4000 ? 0.02 : 0.8;
}

/* Copies of 60 tokens every 200. */
static double bursts(size_t token, uint32_t position)
{
    (void)position;
    return token % 200 < 60 ? 0.97 : 0.1;
}

/* ---- machines ---------------------------------------------------------------------------------------------------- */

enum { TOKENS = 2000, SEEDS = 5 };

/* Rows cost next to nothing and drafts are good: close to the best fixed number. */
static void test_memory_bound(void **state)
{
    (void)state;
    static acceptance_at *const kinds[] = {often, half, fading};
    for (size_t kind = 0; kind < SPRY_COUNT(kinds); kind++)
        for (uint64_t seed = 1; seed <= SEEDS; seed++) {
            run r = {.m = &memory_bound, .acceptance = kinds[kind], .fixed = -1, .seed = seed};
            spry_draft_cost cost;
            double best, got = speedup(&r, TOKENS, &cost, &best);
            assert_true(best > 1.5);
            assert_true(got > 0.93 * best); /* plain steps between drafts show what they cost */
            assert_true(fabs(spry_draft_speedup(&cost.figures) / got - 1) < 0.01);
        }
}

/* Every row costs as much as the first: even good drafts lose, and are left alone. */
static void test_compute_bound(void **state)
{
    (void)state;
    static acceptance_at *const kinds[] = {often, never};
    for (size_t kind = 0; kind < SPRY_COUNT(kinds); kind++)
        for (uint64_t seed = 1; seed <= SEEDS; seed++) {
            run r = {.m = &compute_bound, .acceptance = kinds[kind], .fixed = -1, .seed = seed};
            spry_draft_cost cost;
            double best, got = speedup(&r, TOKENS, &cost, &best);
            assert_true(best == 1);
            assert_true(got > 0.98);
            assert_true(cost.figures.lengths[0] > cost.figures.steps * 95 / 100);
        }
}

/* A drafter of random weights, cheap or dear, on a calm or a noisy machine: 3 % lost at most, trials included. */
static void test_random_drafter(void **state)
{
    (void)state;
    static const double draft_ns[] = {0, 1e6, 6e6, 40e6};
    static const double noises[] = {0, 0.3};
    for (size_t i = 0; i < SPRY_COUNT(draft_ns) * SPRY_COUNT(noises); i++)
        for (uint64_t seed = 1; seed <= SEEDS; seed++) {
            machine m = memory_bound;
            m.draft_ns = draft_ns[i / SPRY_COUNT(noises)];
            m.noise = noises[i % SPRY_COUNT(noises)];
            m.spike = m.noise > 0 ? 0.05 : 0;
            run r = {.m = &m, .acceptance = never, .fixed = -1, .seed = seed};
            spry_draft_cost cost;
            double best, got = speedup(&r, TOKENS, &cost, &best);
            assert_true(got >= 0.97);
            assert_true(cost.figures.drafted > 3); /* it did try */
        }
}

/* Acceptance collapses for 2000 tokens and comes back: off meanwhile, and on again after a
 * tenth of that time. */
static void test_collapse(void **state)
{
    (void)state;
    static const size_t ends[] = {2000, 2200, 4000, 4200, 6000};
    static const struct {
        double draft_ns, least[5];
    } cases[] = {{1e6, {2.6, 0.9, 0.99, 1.5, 2.6}}, {6e6, {1.4, 0.9, 0.99, 0.97, 1.3}}};
    for (size_t i = 0; i < SPRY_COUNT(cases); i++)
        for (uint64_t seed = 1; seed <= SEEDS; seed++) {
            machine m = memory_bound;
            m.draft_ns = cases[i].draft_ns;
            run r = {.m = &m, .acceptance = collapsing, .fixed = -1, .seed = seed}, plain = r;
            plain.fixed = 0;
            simulation s, without;
            begin(&s, seed);
            begin(&without, seed);
            for (size_t part = 0; part < SPRY_COUNT(ends); part++) {
                double taken = advance(&r, &s, ends[part]), plainly = advance(&plain, &without, s.token);
                assert_true(plainly / taken > cases[i].least[part]);
            }
        }
}

static void test_bursts(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        run r = {.m = &memory_bound, .acceptance = bursts, .fixed = -1, .seed = seed};
        spry_draft_cost cost;
        double best, got = speedup(&r, 2 * TOKENS, &cost, &best);
        assert_true(got > 1.1 && got > 0.92 * best);
    }
}

/* Times that vary by 30 %, steps five times as long now and then, a context that makes every step dearer. */
static void test_noise(void **state)
{
    (void)state;
    machine machines[3] = {memory_bound, memory_bound, memory_bound};
    machines[0].noise = 0.3;
    machines[1].noise = 0.2;
    machines[1].spike = 0.05;
    machines[2].growth = 1.0 / 2000;
    for (size_t i = 0; i < SPRY_COUNT(machines); i++)
        for (uint64_t seed = 1; seed <= SEEDS; seed++) {
            run r = {.m = &machines[i], .acceptance = often, .fixed = -1, .seed = seed};
            spry_draft_cost cost;
            double best, got = speedup(&r, TOKENS, &cost, &best);
            assert_true(got > 0.87 * best);
        }
}

/* Answers of 128 tokens in turns without drafts and with them, as `spry bench --draft` computes them. Returns how many
 * times as fast those with drafts were. */
static double answers_in_turns(const machine *m, acceptance_at *acceptance, uint64_t seed)
{
    enum { ANSWERS = 6, ANSWER = 128 };
    const run with = {.m = m, .acceptance = acceptance, .fixed = -1}, without = {.m = m, .acceptance = acceptance};
    double ns[2] = {0, 0};
    simulation s;
    begin(&s, seed);
    for (size_t i = 0; i < 2 * ANSWERS; i++) {
        size_t from = s.token;
        double taken = advance(i % 2 ? &with : &without, &s, from + ANSWER);
        ns[i % 2] += taken / (double)(s.token - from);
    }
    return ns[0] / ns[1];
}

/* Beside a program that comes and goes, whatever a row costs and however good the drafts are: no run loses more than
 * 3 %, and on average no machine loses 1.5 %; what good drafts gain stays. */
static void test_busy_neighbour(void **state)
{
    (void)state;
    static acceptance_at *const kinds[] = {often, half, fading, never};
    static const double row_shares[] = {0.02, 0.2, 0.5, 0.9}, draft_shares[] = {0, 0.15, 0.4};
    enum { RUNS = 20, CASES = 4 * 4 * 3 };
    double gains = 0;
    for (size_t i = 0; i < CASES; i++) {
        machine m = {.base_ns = 20e6, .row_ns = 20e6 * row_shares[i / 4 % 4], .noise = 0.1, .spike = 0.03, .busy = 2};
        m.draft_ns = draft_shares[i / 16] * (m.base_ns + m.row_ns);
        double sum = 0;
        for (uint64_t seed = 1; seed <= RUNS; seed++) {
            double faster = answers_in_turns(&m, kinds[i % 4], seed);
            assert_true(faster >= 0.97);
            sum += faster;
        }
        assert_true(sum / RUNS >= 0.985);
        gains += log(sum / RUNS);
    }
    assert_true(exp(gains / CASES) >= 1.18);
}

/* The more rows others have in the step, the fewer are drafted; never at a loss for all. */
static void test_batches(void **state)
{
    (void)state;
    static const size_t others[] = {0, 7, 15, 100};
    machine m = memory_bound;
    m.draft_ns = 5e3;
    double before = SPRY_DRAFT_MOST;
    for (size_t i = 0; i < SPRY_COUNT(others); i++) {
        run r = {.m = &m, .acceptance = often, .fixed = -1, .seed = 1, .other_rows = others[i]};
        spry_draft_cost cost;
        double best, got = speedup(&r, TOKENS, &cost, &best);
        double drafted = (double)cost.figures.drafted / (double)cost.figures.steps;
        assert_true(drafted < before);
        assert_true(got > 0.91 * best && got > 0.99);
        before = drafted;
    }
    assert_true(before < 0.2); /* a hundred rows wait for the arithmetic of each one more */
}

/* ---- the pieces -------------------------------------------------------------------------------------------------- */

static void test_step_cost(void **state)
{
    (void)state;
    spry_step_cost steps;
    spry_step_cost_init(&steps);
    assert_true(spry_step_cost_ns(&steps, 1) == 0);
    assert_int_equal(spry_step_cost_reach(&steps), 0);
    spry_step_cost_measure(&steps, 0, 77);
    assert_true(spry_step_cost_ns(&steps, 1) == 0);

    for (int i = 0; i < 8; i++)
        spry_step_cost_measure(&steps, 1, 1000);
    assert_true(spry_step_cost_ns(&steps, 1) == 1000);
    assert_int_equal(spry_step_cost_reach(&steps), 2);
    double guess = spry_step_cost_ns(&steps, 2);
    assert_true(guess > 1000 && guess < 2000); /* between free and as dear as the first */

    for (int i = 0; i < 8; i++)
        spry_step_cost_measure(&steps, 5, 1400);
    assert_true(fabs(spry_step_cost_ns(&steps, 3) - 1200) < 10);
    assert_true(fabs(spry_step_cost_ns(&steps, 9) - 1800) < 10);

    spry_step_cost_measure(&steps, 7, 160000); /* an interruption at the first measurement */
    assert_true(spry_step_cost_ns(&steps, 7) < 3200);
    spry_step_cost_measure(&steps, 5, 140000); /* and at a later one */
    assert_true(spry_step_cost_ns(&steps, 5) < 1600);
    for (int i = 0; i < 200; i++)
        spry_step_cost_measure(&steps, 5, 14000); /* a change */
    assert_true(fabs(spry_step_cost_ns(&steps, 5) - 14000) < 140);

    for (int i = 0; i < 1000; i++) { /* points without measurements follow their neighbours */
        spry_step_cost_measure(&steps, 4, 3000);
        spry_step_cost_measure(&steps, 6, 3000);
    }
    assert_true(fabs(spry_step_cost_ns(&steps, 5) - 3000) < 30);

    static const size_t large[] = {128, 129, 300, 8192, SIZE_MAX / 2};
    for (size_t i = 0; i < SPRY_COUNT(large); i++) {
        spry_step_cost_measure(&steps, large[i], 1000000);
        assert_true(isfinite(spry_step_cost_ns(&steps, large[i])) && spry_step_cost_ns(&steps, large[i]) > 0);
    }
}

/* Within a point that many counts of rows share, more rows still cost more. */
static void test_step_cost_shared_point(void **state)
{
    (void)state;
    spry_step_cost steps;
    spry_step_cost_init(&steps);
    for (size_t rows = 256; rows <= 1024; rows += 8)
        spry_step_cost_measure(&steps, rows, 1000 * rows);
    double one = spry_step_cost_ns(&steps, 520), other = spry_step_cost_ns(&steps, 540);
    assert_true(fabs(one / 520e3 - 1) < 0.02 && fabs((other - one) / 20e3 - 1) < 0.2);
}

/* One bad measurement does not stand between its neighbours for ever. */
static void test_step_cost_forgets(void **state)
{
    (void)state;
    spry_step_cost steps;
    spry_step_cost_init(&steps);
    spry_step_cost_measure(&steps, 1, 1000);
    spry_step_cost_measure(&steps, 5, 4000);
    for (int i = 0; i < 500; i++) {
        spry_step_cost_measure(&steps, 1, 1000);
        spry_step_cost_measure(&steps, 9, 1800);
    }
    assert_true(fabs(spry_step_cost_ns(&steps, 4) - 1300) < 15);
}

/* A clock that finds two rows cheaper than one does not make useless drafts worth it. */
static void test_rows_are_not_a_gain(void **state)
{
    (void)state;
    spry_draft_steps steps;
    spry_draft_cost cost;
    spry_draft_steps_init(&steps);
    spry_draft_cost_init(&cost, &steps);
    for (int i = 0; i < 8; i++) {
        spry_draft_steps_measure(&steps, 1, true, 1000);
        spry_draft_cost_learn(&cost, &(spry_draft_outcome){0});
    }
    for (int i = 0; i < 60; i++) {
        spry_draft_steps_measure(&steps, 2, false, 500);
        spry_draft_cost_learn(&cost, &(spry_draft_outcome){.drafted = 1});
    }
    assert_int_equal(spry_draft_cost_choose(&cost, 0, 8), 0);
}

static void test_limits(void **state)
{
    (void)state;
    spry_draft_steps steps;
    spry_draft_cost cost;
    spry_draft_steps_init(&steps);
    spry_draft_cost_init(&cost, &steps);
    assert_int_equal(spry_draft_cost_choose(&cost, 0, 8), 0); /* nothing measured */
    for (int i = 0; i < 2; i++) {
        spry_draft_steps_measure(&steps, 1, true, 1000);
        spry_draft_cost_learn(&cost, &(spry_draft_outcome){0});
    }
    assert_int_equal(spry_draft_cost_choose(&cost, 0, 8), 1); /* one step beyond what was measured */
    assert_int_equal(spry_draft_cost_choose(&cost, 0, 0), 0);
    for (uint32_t k = 1; k <= SPRY_DRAFT_MOST; k++) { /* a plain step after each */
        spry_draft_steps_measure(&steps, k + 1, false, 1000 + k);
        spry_draft_cost_learn(&cost, &(spry_draft_outcome){.drafted = k, .accepted = k, .draft_ns = k});
        spry_draft_steps_measure(&steps, 1, true, 1000);
        spry_draft_cost_learn(&cost, &(spry_draft_outcome){0});
    }
    assert_int_equal(spry_draft_cost_choose(&cost, 0, 1000), SPRY_DRAFT_MOST);
    assert_int_equal(spry_draft_cost_choose(&cost, 0, 5), 5);

    /* Now and then a plain step, to know what it costs by now: more seldom while drafts pay. Then two that are close.
     */
    static const uint32_t between[] = {8, 8, 8, 8, 16, 4, 16, 4, 16, 4, 16, 4, 32, 4, 32, 4, 32, 4, 32, 4, 64, 4, 64};
    for (size_t i = 0; i < SPRY_COUNT(between); i++) {
        uint32_t drafted = 0;
        for (uint32_t k; (k = spry_draft_cost_choose(&cost, 0, 4)) && drafted < 1000; drafted++) {
            spry_draft_steps_measure(&steps, k + 1, false, 1000 + k);
            spry_draft_cost_learn(&cost, &(spry_draft_outcome){.drafted = k, .accepted = k, .draft_ns = k});
        }
        spry_draft_steps_measure(&steps, 1, true, 1000);
        spry_draft_cost_learn(&cost, &(spry_draft_outcome){0});
        assert_int_equal(drafted, between[i]);
    }

    /* Impossible reports are cut to possible ones. */
    spry_draft_cost_learn(&cost, &(spry_draft_outcome){.drafted = 1000, .accepted = 2000});
    assert_int_equal(cost.figures.lengths[SPRY_DRAFT_MOST], 2);
    assert_int_equal(cost.figures.rollbacks[0], cost.figures.steps - cost.figures.lengths[0]);

    /* Bringing the drafter up to date is paid for: no drafts until that is earned again. */
    spry_draft_cost_learn(&cost, &(spry_draft_outcome){.drafted = 1, .accepted = 1, .sync_ns = 40000});
    uint32_t waited = 0;
    while (!spry_draft_cost_choose(&cost, 0, 8) && waited < 10000) {
        spry_draft_steps_measure(&steps, 1, true, 1000);
        spry_draft_cost_learn(&cost, &(spry_draft_outcome){0});
        waited++;
    }
    assert_true(waited > 2000 && waited < 6000);
}

static void test_figures(void **state)
{
    (void)state;
    spry_draft_figures f = {0};
    assert_true(spry_draft_tokens_per_step(&f) == 1 && spry_draft_speedup(&f) == 1);
    assert_int_equal(spry_draft_rollback(&f, 0.95), 0);
    spry_draft_figures_count(&f, 0, 0);
    spry_draft_figures_count(&f, 4, 4);
    spry_draft_figures_count(&f, 4, 1);
    spry_draft_figures_count(&f, 4, 0);
    spry_draft_figures_count(&f, 2, 1);
    assert_int_equal(f.steps, 5);
    assert_int_equal(f.tokens, 11);
    assert_int_equal(f.drafted, 14);
    assert_int_equal(f.accepted, 6);
    static const uint64_t tried[] = {4, 3, 1, 1, 0}, accepted[] = {3, 1, 1, 1, 0};
    for (size_t i = 0; i < SPRY_COUNT(tried); i++) {
        assert_int_equal(f.tried_at[i], tried[i]);
        assert_int_equal(f.accepted_at[i], accepted[i]);
    }
    assert_int_equal(f.lengths[0], 1);
    assert_int_equal(f.lengths[4], 3);
    assert_int_equal(f.rollbacks[3], 1);
    assert_int_equal(spry_draft_rollback(&f, 0.25), 0); /* rolled back: 0, 1, 3 and 4 */
    assert_int_equal(spry_draft_rollback(&f, 0.5), 1);
    assert_int_equal(spry_draft_rollback(&f, 0.95), 4);
    assert_true(fabs(spry_draft_tokens_per_step(&f) - 2.2) < 1e-12);
    assert_int_equal(f.accepted, 6);
    assert_int_equal(f.drafted, 14);
}

static void test_deterministic(void **state)
{
    (void)state;
    spry_draft_cost first, second;
    machine m = memory_bound;
    m.noise = 0.3;
    run r = {.m = &m, .acceptance = bursts, .fixed = -1, .seed = 9};
    double a = simulate(&r, TOKENS, &first), b = simulate(&r, TOKENS, &second);
    assert_true(a == b);
    assert_memory_equal(&first.figures, &second.figures, sizeof first.figures);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_memory_bound),
        cmocka_unit_test(test_compute_bound),
        cmocka_unit_test(test_random_drafter),
        cmocka_unit_test(test_collapse),
        cmocka_unit_test(test_bursts),
        cmocka_unit_test(test_noise),
        cmocka_unit_test(test_busy_neighbour),
        cmocka_unit_test(test_batches),
        cmocka_unit_test(test_step_cost),
        cmocka_unit_test(test_step_cost_shared_point),
        cmocka_unit_test(test_step_cost_forgets),
        cmocka_unit_test(test_rows_are_not_a_gain),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_figures),
        cmocka_unit_test(test_deterministic),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
