/* Several processes with one model: who has which heads and outputs, steps as bytes, and what all ranks must have in
 * common. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "device/ranks/ranks.h"

static void check_heads(const spry_team *team)
{
    const spry_config *c = team->whole;
    size_t next = 0, group = c->n_heads / c->n_kv_heads;
    for (size_t rank = 0; rank < team->size; rank++) {
        spry_team_heads h = spry_team_heads_of(team, rank);
        assert_int_equal(h.q_begin, next);
        assert_true(h.q_end > h.q_begin && h.kv_end > h.kv_begin);
        assert_int_equal(h.q_begin / group, h.kv_begin);
        assert_int_equal((h.q_end - 1) / group, h.kv_end - 1);
        assert_int_equal((h.q_end - h.q_begin) % (h.kv_end - h.kv_begin), 0);
        next = h.q_end;
    }
    assert_int_equal(next, c->n_heads);
}

/* Every query head has one rank, and a rank has the keys and values of its queries. */
static void test_heads(void **state)
{
    (void)state;
    for (uint32_t n_kv = 1; n_kv <= 9; n_kv++)
        for (uint32_t group = 1; group <= 7; group++)
            for (size_t size = 1; size <= n_kv * group; size++) {
                const spry_config config = {.n_heads = n_kv * group, .n_kv_heads = n_kv, .head_dim = 4};
                const spry_team team = {.size = size, .whole = &config};
                check_heads(&team);
            }
}

static void test_outputs(void **state)
{
    (void)state;
    for (size_t total = 1; total < 200; total += 7)
        for (size_t size = 1; size <= 12; size++) {
            size_t starts[SPRY_TEAM_MAX + 1];
            const spry_team team = {.size = size};
            spry_team_outputs(starts, &team, total);
            assert_int_equal(starts[0], 0);
            assert_int_equal(starts[size], total);
            for (size_t rank = 0; rank < size; rank++) {
                assert_true(starts[rank] <= starts[rank + 1]);
                assert_true(starts[rank] % SPRY_OUTPUT_GRAIN == 0 || starts[rank] == total);
            }
        }
}

static void test_steps(void **state)
{
    (void)state;
    spry_kv_entry entries[] = {{3, 0, 64, 0}, {9, 64, 5, 1}};
    int32_t tokens[] = {7, 8, 9};
    spry_kv_table table = {.entries = entries, .n_entries = 2, .n_tokens = 69}, empty = {.n_tokens = 0};
    const spry_segment segments[] = {{&table, tokens, 66, 3, SPRY_WANT_LAST, {{0}}, 0, NULL, 0},
                                     {&empty, tokens, 0, 0, SPRY_WANT_NOTHING, {{0}}, 0, NULL, 0}};
    static spry_kv_turns turns, copy;
    spry_kv_turns_init(&turns);
    uint32_t number;
    assert_true(spry_kv_turn_take(&turns, &number, -64));
    spry_buffer message;
    spry_buffer_init(&message, 1 << 20);
    spry_rank_step step = {0};
    for (size_t n = 1; n <= 2; n++) { /* the second message needs more room */
        spry_buffer_clear(&message);
        spry_rank_step_write(&message, segments, n, &turns);
        assert_false(message.failed);
        assert_true(spry_rank_step_read(&step, &copy, &message));
        assert_int_equal(step.n_segments, n);
        const spry_segment *g = &step.segments[0];
        assert_int_equal(g->first_position, 66);
        assert_int_equal(g->n_rows, 3);
        assert_int_equal(g->want, SPRY_WANT_LAST);
        assert_memory_equal(g->tokens, tokens, sizeof tokens);
        assert_int_equal(g->table->n_tokens, 69);
        assert_memory_equal(g->table->entries, entries, sizeof entries);
        assert_int_equal(copy.end, turns.end);
        assert_int_equal(copy.deltas[number], -64);
    }
    assert_int_equal(step.segments[1].n_rows, 0);
    spry_rank_step_deinit(&step);
    spry_buffer_deinit(&message);
}

/* ---- another version --------------------------------------------------------------------------------------------- */

/* All ranks say what this one says, but the last has another version. */
static void gather_other(void *all, const void *own, const size_t *bytes, bool to_first)
{
    (void)to_first;
    for (size_t i = 0; i < 3; i++)
        memcpy((char *)all + i * bytes[i], own, bytes[i]);
    *((char *)all + 2 * bytes[2]) = '9';
}

static void test_another_version_is_refused(void **state)
{
    (void)state;
    const spry_rank_link link = {.size = 3, .gather = gather_other}, many = {.size = SPRY_TEAM_MAX + 1};
    spry_error error;
    assert_int_equal(spry_ranks_use(&link, &error), SPRY_ERR_UNSUPPORTED);
    assert_non_null(strstr(error.message, "rank 2"));
    assert_non_null(strstr(error.message, "install the same program on all"));
    assert_int_equal(spry_ranks_use(&many, &error), SPRY_ERR_UNSUPPORTED);
    assert_non_null(strstr(error.message, "257 ranks were started"));
    assert_null(spry_ranks_link());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_heads),
        cmocka_unit_test(test_outputs),
        cmocka_unit_test(test_steps),
        cmocka_unit_test(test_another_version_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
