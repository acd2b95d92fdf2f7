/* Pages used away from their own positions: turning the query must give what keys at the new positions give, under
 * every kernel set, and a page used where it was computed must not change a bit. */
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/kv_layout.h"
#include "kernels/ops.h"
#include "kernels/ref/ref.h"
#include "sampling/sampler.h"

enum { HEAD = 64, PAIRS = HEAD / 2, PAGES = 5, TOKENS = PAGES * SPRY_PAGE_TOKENS, GROUP_HEADS = 2, ROWS = 3 };
enum { HEAD_BYTES = HEAD * SPRY_PAGE_TOKENS * sizeof(float), PAGE_BYTES = 2 * HEAD_BYTES };
enum { OUTPUTS = ROWS * GROUP_HEADS * HEAD };

typedef struct scene {
    float keys[TOKENS][HEAD], values[TOKENS][HEAD]; /* keys before rope */
    float query[ROWS][GROUP_HEADS * HEAD];
    unsigned char *pages; /* the same keys twice: where they are used, and elsewhere */
    spry_kv_entry there[PAGES], moved[PAGES];
    spry_turn turns[PAGES];
    float cosine[PAGES][PAIRS], sine[PAGES][PAIRS];
    bool interleaved;
} scene;

/* Positions a page's keys were turned to when it was made, before the table moved it. */
static const int deltas[PAGES] = {0, 100, 100, -37, 1000};

static void angles(float *cosine, float *sine, double position)
{
    for (int i = 0; i < PAIRS; i++) {
        double angle = position * pow(10000, -2.0 * i / HEAD);
        cosine[i] = (float)cos(angle);
        sine[i] = (float)sin(angle);
    }
}

static void put_page(scene *s, size_t page, size_t first, int delta)
{
    unsigned char *at = s->pages + page * PAGE_BYTES;
    const spry_ops *ref;
    assert_int_equal(spry_ops_get(&ref, "ref", NULL), SPRY_OK);
    for (size_t t = 0; t < SPRY_PAGE_TOKENS; t++) {
        float key[HEAD], cosine[PAIRS], sine[PAIRS];
        memcpy(key, s->keys[first + t], sizeof key);
        angles(cosine, sine, (double)(first + t) - delta);
        spry_ref_rope(key, cosine, sine, 1, HEAD, PAIRS, s->interleaved);
        spry_kv_store_key(ref, SPRY_F32, at, t, key, HEAD);
        memcpy(at + HEAD_BYTES + t * sizeof key, s->values[first + t], sizeof key);
    }
}

static float random_value(spry_random *random)
{
    return (float)(spry_random_unit(random) * 2 - 1);
}

static void scene_init(scene *s, bool interleaved)
{
    spry_random random;
    spry_random_seed(&random, 7);
    s->interleaved = interleaved;
    s->pages = calloc(2 * PAGES, PAGE_BYTES);
    assert_non_null(s->pages);
    for (size_t t = 0; t < TOKENS; t++)
        for (size_t d = 0; d < HEAD; d++) {
            s->keys[t][d] = random_value(&random);
            s->values[t][d] = random_value(&random);
        }
    for (size_t r = 0; r < ROWS; r++) {
        float cosine[PAIRS], sine[PAIRS];
        for (size_t d = 0; d < GROUP_HEADS * HEAD; d++)
            s->query[r][d] = random_value(&random);
        angles(cosine, sine, (double)(TOKENS - ROWS + r));
        spry_ref_rope(s->query[r], cosine, sine, GROUP_HEADS, HEAD, PAIRS, interleaved);
    }
    for (uint32_t p = 0; p < PAGES; p++) {
        uint32_t start = p * SPRY_PAGE_TOKENS;
        put_page(s, p, start, 0);
        put_page(s, PAGES + p, start, deltas[p]);
        s->there[p] = (spry_kv_entry){.page = p, .start = start, .count = SPRY_PAGE_TOKENS};
        s->moved[p] = (spry_kv_entry){.page = PAGES + p, .start = start, .count = SPRY_PAGE_TOKENS, .turn = p};
        angles(s->cosine[p], s->sine[p], -deltas[p]);
        s->turns[p] = (spry_turn){deltas[p] ? s->cosine[p] : NULL, s->sine[p]};
    }
    s->turns[2] = s->turns[1]; /* a run of pages shares its turn */
}

static void run(const scene *s, const spry_ops *ops, float *out, const spry_kv_entry *entries, const spry_turn *turns)
{
    spry_attend a = {.out = out,
                     .query = s->query[0],
                     .row_stride = GROUP_HEADS * HEAD,
                     .n_rows = ROWS,
                     .first_position = TOKENS - ROWS,
                     .head_dim = HEAD,
                     .group = GROUP_HEADS,
                     .scale = 0.125f,
                     .type = SPRY_F32,
                     .pages = s->pages,
                     .page_bytes = PAGE_BYTES,
                     .value_offset = HEAD_BYTES,
                     .head_bytes = HEAD_BYTES,
                     .token_bytes = HEAD * sizeof(float),
                     .entries = entries,
                     .n_entries = PAGES,
                     .turns = turns,
                     .n_pairs = PAIRS,
                     .interleaved = s->interleaved};
    ops->attend(&a, 0, 1);
}

/* Scores differ by rounding: a rotation on each side, of numbers of magnitude 1, summed over the head. Outputs are
 * weighted means of values within 1, and move by at most twice the scores' difference. */
static const double allowed = 2 * 0.125 * HEAD * 8 * (double)FLT_EPSILON;

static void check_turns(const spry_ops *ops, bool interleaved)
{
    static float plain[OUTPUTS], none[OUTPUTS], turned[OUTPUTS];
    const spry_turn nowhere[PAGES] = {{NULL, NULL}};
    scene *s = malloc(sizeof *s);
    assert_non_null(s);
    scene_init(s, interleaved);
    run(s, ops, plain, s->there, NULL);
    run(s, ops, none, s->there, nowhere);
    assert_memory_equal(plain, none, sizeof plain);
    run(s, ops, turned, s->moved, s->turns);
    for (size_t i = 0; i < OUTPUTS; i++)
        assert_true(fabs((double)plain[i] - (double)turned[i]) < allowed);
    run(s, ops, turned, s->moved, NULL); /* without the turns it must be wrong, or this test shows nothing */
    double worst = 0;
    for (size_t i = 0; i < OUTPUTS; i++)
        worst = fmax(worst, fabs((double)plain[i] - (double)turned[i]));
    assert_true(worst > 100 * allowed);
    free(s->pages);
    free(s);
}

static void turned_queries_equal_moved_keys(void **state)
{
    (void)state;
    char names[128], *rest = names;
    strncpy(names, spry_ops_names(), sizeof names - 1);
    names[sizeof names - 1] = 0;
    for (char *name; (name = strsep(&rest, ", "));) {
        const spry_ops *ops;
        if (!*name || spry_ops_get(&ops, name, NULL))
            continue;
        check_turns(ops, false);
        check_turns(ops, true);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(turned_queries_equal_moved_keys)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
