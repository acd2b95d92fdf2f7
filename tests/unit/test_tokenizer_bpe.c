/* The merge engine against the definition of BPE, and how its time grows. */
#include "tokenizer_testing.h"

#include <time.h>

#include "tokenizer/bpe.h"

/* The definition, read literally: the pair of lowest rank, leftmost first, until there is none. */
static size_t merge_naively(const spry_merges *merges, int32_t *symbols, size_t count)
{
    for (;;) {
        const spry_merge *best = NULL;
        size_t at = 0;
        for (size_t i = 0; i + 1 < count; i++) {
            const spry_merge *pair = spry_merges_find(merges, symbols[i], symbols[i + 1]);
            if (pair && (!best || pair->rank < best->rank)) {
                best = pair;
                at = i;
            }
        }
        if (!best)
            return count;
        symbols[at] = best->merged;
        memmove(symbols + at + 1, symbols + at + 2, (count - at - 2) * sizeof *symbols);
        count--;
    }
}

static void fill_merges(spry_merges *merges, spry_arena *arena, uint64_t *seed, bool equal_ranks)
{
    enum { ALPHABET = 6, MERGES = 60 };
    assert_true(spry_merges_init(merges, arena, MERGES));
    for (uint32_t i = 0; i < MERGES; i++) {
        uint32_t known = ALPHABET + i; /* symbols so far */
        spry_merge merge = {.left = (int32_t)(random_next(seed) % known),
                            .right = (int32_t)(random_next(seed) % known),
                            .rank = equal_ranks ? random_next(seed) % 8 : i,
                            .merged = (int32_t)known};
        spry_merges_add(merges, merge);
    }
}

static void check_word(const spry_merges *merges, spry_merge_scratch *scratch, const int32_t *symbols, size_t count)
{
    int32_t expected[512];
    memcpy(expected, symbols, count * sizeof *symbols);
    size_t n_expected = merge_naively(merges, expected, count);
    scratch->count = 0;
    for (size_t i = 0; i < count; i++)
        assert_true(spry_merge_push(scratch, symbols[i]));
    assert_true(spry_merge_word(merges, scratch));
    assert_int_equal(scratch->count, n_expected);
    assert_memory_equal(scratch->symbols, expected, n_expected * sizeof *expected);
}

static void merging_follows_the_definition(void **state)
{
    (void)state;
    uint64_t seed = 5;
    spry_merge_scratch scratch = {0};
    for (int table = 0; table < 60; table++) {
        spry_arena arena;
        spry_arena_init(&arena);
        spry_merges merges;
        fill_merges(&merges, &arena, &seed, table % 2);
        for (int round = 0; round < 60; round++) {
            int32_t symbols[400];
            size_t count = 1 + random_next(&seed) % (round % 3 ? 70 : 400); /* short words and long ones */
            for (size_t i = 0; i < count; i++)
                symbols[i] = (int32_t)(random_next(&seed) % 6);
            check_word(&merges, &scratch, symbols, count);
        }
        spry_arena_deinit(&arena);
    }
    spry_merge_scratch_deinit(&scratch);
}

static void an_empty_table_merges_nothing(void **state)
{
    (void)state;
    spry_merges merges = {0};
    spry_merge_scratch scratch = {0};
    int32_t symbols[40] = {0};
    check_word(&merges, &scratch, symbols, 40);
    check_word(&merges, &scratch, symbols, 2);
    assert_null(spry_merges_find(&merges, 0, 0));
    spry_merge_scratch_deinit(&scratch);
}

static void the_first_rank_of_a_pair_counts(void **state)
{
    (void)state;
    spry_arena arena;
    spry_arena_init(&arena);
    spry_merges merges;
    assert_true(spry_merges_init(&merges, &arena, 2));
    spry_merges_add(&merges, (spry_merge){.left = 1, .right = 2, .rank = 7, .merged = 3});
    spry_merges_add(&merges, (spry_merge){.left = 1, .right = 2, .rank = 9, .merged = 4});
    assert_int_equal(merges.count, 1);
    assert_int_equal(spry_merges_find(&merges, 1, 2)->merged, 3);
    assert_null(spry_merges_find(&merges, 2, 1));
    spry_arena_deinit(&arena);
}

/* Seconds of processor time that one word of `size` bytes takes. */
static double time_word(const spry_tokenizer *tokenizer, const char *alphabet, size_t size)
{
    char *word = malloc(size);
    uint64_t seed = 9;
    size_t n = strlen(alphabet);
    for (size_t i = 0; i < size; i++)
        word[i] = alphabet[random_next(&seed) % n];
    clock_t start = clock();
    spry_tokens tokens = encode(tokenizer, (spry_view){word, size}, 0);
    double seconds = (double)(clock() - start) / CLOCKS_PER_SEC;
    spry_buffer back = decode(tokenizer, &tokens, false);
    assert_int_equal(back.size, size);
    assert_memory_equal(back.data, word, size);
    spry_buffer_deinit(&back);
    spry_tokens_deinit(&tokens);
    free(word);
    return seconds;
}

static void a_word_of_a_megabyte_is_quick(void **state)
{
    (void)state;
    static const char *const paths[] = {TEST_DATA "/tokenizers/bpe-qwen2", TEST_DATA "/tokenizers/bpe-gpt2",
                                        TEST_DATA "/tokenizers/spm-llama", TEST_DATA "/tokenizers/spm-gemma"};
    static const char *const alphabets[] = {"a", "etaoinshr", "ab", "theandofto"};
    for (size_t i = 0; i < 4; i++) {
        spry_tokenizer *tokenizer = open_tokenizer(paths[i]);
        for (size_t k = 0; k < 4; k++)
            assert_true(time_word(tokenizer, alphabets[k], 1 << 20) < 8);
        assert_true(time_word(tokenizer, " ", 1 << 20) < 8);
        spry_tokenizer_destroy(tokenizer);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(merging_follows_the_definition),
        cmocka_unit_test(an_empty_table_merges_nothing),
        cmocka_unit_test(the_first_rank_of_a_pair_counts),
        cmocka_unit_test(a_word_of_a_megabyte_is_quick),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
