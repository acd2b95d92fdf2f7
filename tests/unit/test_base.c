/* The base layer at its limits: arena, buffer, map, views, checked sizes, number types, errors and the log. UTF-8 has
 * its own program, test_utf8.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/compiler.h"
#include "base/dtype.h"
#include "base/error.h"
#include "base/map.h"
#include "base/meter.h"
#include "base/number.h"

/* ---- checked ---------------------------------------------------------------------------------------------------- */

static void checked_add_at_the_limit(void **state)
{
    (void)state;
    size_t out = 77;
    assert_true(spry_checked_add(&out, SIZE_MAX, 0) && out == SIZE_MAX);
    assert_true(spry_checked_add(&out, SIZE_MAX - 5, 5) && out == SIZE_MAX);
    assert_true(spry_checked_add(&out, 0, 0) && out == 0);
    out = 77;
    assert_false(spry_checked_add(&out, SIZE_MAX, 1));
    assert_false(spry_checked_add(&out, 1, SIZE_MAX));
    assert_false(spry_checked_add(&out, SIZE_MAX, SIZE_MAX));
    assert_int_equal(out, 77);
}

static void checked_mul_at_the_limit(void **state)
{
    (void)state;
    size_t out, half = SIZE_MAX / 2 + 1;
    assert_true(spry_checked_mul(&out, SIZE_MAX, 0) && out == 0);
    assert_true(spry_checked_mul(&out, 0, SIZE_MAX) && out == 0);
    assert_true(spry_checked_mul(&out, SIZE_MAX, 1) && out == SIZE_MAX);
    assert_true(spry_checked_mul(&out, SIZE_MAX / 3, 3) && out == SIZE_MAX / 3 * 3);
    out = 77;
    assert_false(spry_checked_mul(&out, half, 2));
    assert_false(spry_checked_mul(&out, 2, half));
    assert_false(spry_checked_mul(&out, SIZE_MAX / 3 + 1, 3));
    assert_false(spry_checked_mul(&out, SIZE_MAX, SIZE_MAX));
    assert_int_equal(out, 77);
}

static void checked_align_at_the_limit(void **state)
{
    (void)state;
    size_t out = 0;
    for (size_t step = 1; step <= 4096; step *= 2)
        for (size_t a = 0; a < 200; a++) {
            assert_true(spry_checked_align(&out, a, step));
            assert_true(out >= a && out < a + step && out % step == 0);
        }
    assert_true(spry_checked_align(&out, SIZE_MAX - 63, 64) && out == SIZE_MAX - 63);
    out = 77;
    assert_false(spry_checked_align(&out, SIZE_MAX - 62, 64));
    assert_false(spry_checked_align(&out, SIZE_MAX, 2));
    assert_int_equal(out, 77);
}

/* ---- view ------------------------------------------------------------------------------------------------------- */

static void views_compare(void **state)
{
    (void)state;
    spry_view empty = {NULL, 0};
    assert_true(spry_view_equal(empty, SPRY_VIEW("")));
    assert_true(spry_view_equal(SPRY_VIEW("a\0b"), (spry_view){"a\0b", 3}));
    assert_false(spry_view_equal(SPRY_VIEW("a\0b"), SPRY_VIEW("a\0c")));
    assert_false(spry_view_is(SPRY_VIEW("spry"), "spr"));
    assert_true(spry_view_is(SPRY_VIEW("spry"), "spry"));
    assert_true(spry_view_starts(SPRY_VIEW("spry"), SPRY_VIEW("sp")) && spry_view_starts(SPRY_VIEW("spry"), empty));
    assert_true(spry_view_ends(SPRY_VIEW("spry"), SPRY_VIEW("ry")) && spry_view_ends(SPRY_VIEW("spry"), empty));
    assert_false(spry_view_starts(SPRY_VIEW("sp"), SPRY_VIEW("spry")));
    assert_false(spry_view_ends(SPRY_VIEW("ry"), SPRY_VIEW("spry")));
    assert_false(spry_view_starts(SPRY_VIEW("spry"), SPRY_VIEW("pr")));
    assert_false(spry_view_ends(SPRY_VIEW("spry"), SPRY_VIEW("pr")));
}

/* ---- arena ------------------------------------------------------------------------------------------------------ */

static void arena_gives_zeroed_aligned_memory(void **state)
{
    (void)state;
    enum { N = 3000 };
    static unsigned char *things[N];
    spry_arena arena;
    spry_arena_init(&arena);
    for (size_t i = 0; i < N; i++) {
        /* Mostly small; every hundredth larger than a block, some near the size that gets a block of its own. */
        size_t bytes = i % 100 == 0 ? 100000 + i : i % 100 == 50 ? 16384 + i % 3 - 1 : 1 + i % 300;
        things[i] = spry_arena_alloc(&arena, 1, bytes);
        assert_non_null(things[i]);
        assert_int_equal((uintptr_t)things[i] % 64, 0);
        for (size_t j = 0; j < bytes; j++)
            assert_true(things[i][j] == 0);
        memset(things[i], (int)(1 + i % 255), bytes); /* a later overlap would not be zero, or change this */
    }
    for (size_t i = 0; i < N; i++)
        assert_int_equal(things[i][0], 1 + i % 255);
    assert_true(arena.total > 30u * 100000);
    spry_arena_deinit(&arena);
    assert_null(arena.head);
    assert_int_equal(arena.total, 0);
}

static void arena_large_thing_first(void **state)
{
    (void)state;
    spry_arena arena;
    spry_arena_init(&arena);
    unsigned char *large = spry_arena_alloc(&arena, 1000, 1000);
    unsigned char *small = spry_arena_alloc(&arena, 1, 10);
    assert_non_null(large);
    assert_non_null(small);
    memset(large, 1, 1000 * 1000);
    memset(small, 2, 10);
    assert_true(large[999999] == 1 && large[0] == 1);
    spry_arena_deinit(&arena);
}

static void arena_refuses_what_cannot_be(void **state)
{
    (void)state;
    spry_arena arena;
    spry_arena_init(&arena);
    assert_null(spry_arena_alloc(&arena, SIZE_MAX, 2));
    assert_null(spry_arena_alloc(&arena, 2, SIZE_MAX));
    assert_null(spry_arena_alloc(&arena, 1, SIZE_MAX));
    assert_null(spry_arena_alloc(&arena, 1, SIZE_MAX - 63));
    assert_null(spry_arena_copy(&arena, (spry_view){"", SIZE_MAX}));
    assert_non_null(spry_arena_alloc(&arena, 0, 8)); /* nothing is also something with an address of its own */
    assert_ptr_not_equal(spry_arena_alloc(&arena, 0, 0), spry_arena_alloc(&arena, 0, 0));
    spry_arena_deinit(&arena);
}

static void arena_copies_text(void **state)
{
    (void)state;
    spry_arena arena;
    spry_arena_init(&arena);
    assert_string_equal(spry_arena_copy(&arena, (spry_view){"storyteller", 5}), "story");
    assert_string_equal(spry_arena_copy(&arena, (spry_view){NULL, 0}), "");
    assert_memory_equal(spry_arena_copy(&arena, SPRY_VIEW("a\0b")), "a\0b", 4);
    spry_arena_deinit(&arena);
}

/* ---- buffer ----------------------------------------------------------------------------------------------------- */

static void buffer_grows_and_ends_with_zero(void **state)
{
    (void)state;
    spry_buffer buffer;
    spry_buffer_init(&buffer, 1 << 20);
    assert_int_equal(spry_buffer_view(&buffer).size, 0);
    assert_non_null(spry_buffer_view(&buffer).data);
    for (int i = 0; i < 10000; i++) {
        assert_true(spry_buffer_format(&buffer, "%d,", i % 10));
        assert_int_equal(buffer.data[buffer.size], 0);
    }
    assert_int_equal(buffer.size, 20000);
    assert_true(spry_buffer_append(&buffer, NULL, 0));
    assert_true(spry_buffer_text(&buffer, "end"));
    assert_string_equal(buffer.data + 19990, "5,6,7,8,9,end");
    spry_buffer_deinit(&buffer);
    assert_null(buffer.data);
    assert_int_equal(buffer.max, 1 << 20);
}

static void buffer_stops_at_its_maximum(void **state)
{
    (void)state;
    spry_buffer buffer;
    spry_buffer_init(&buffer, 10);
    assert_true(spry_buffer_text(&buffer, "0123456789"));
    assert_false(buffer.failed);
    assert_true(spry_buffer_append(&buffer, "", 0));
    assert_false(spry_buffer_append(&buffer, "x", 1));
    assert_true(buffer.failed);
    assert_false(spry_buffer_append(&buffer, "", 0)); /* stays failed, even for what would fit */
    assert_string_equal(buffer.data, "0123456789");
    spry_buffer_clear(&buffer);
    assert_true(!buffer.failed && buffer.size == 0 && buffer.data[0] == 0);
    assert_false(spry_buffer_format(&buffer, "%s", "eleven char"));
    assert_string_equal(buffer.data, "");
    spry_buffer_clear(&buffer);
    assert_true(spry_buffer_format(&buffer, "%s", "ten charac"));
    spry_buffer_deinit(&buffer);
}

static void buffer_refuses_sizes_that_wrap(void **state)
{
    (void)state;
    spry_buffer buffer;
    spry_buffer_init(&buffer, SIZE_MAX);
    assert_true(spry_buffer_text(&buffer, "abc"));
    assert_null(spry_buffer_extend(&buffer, SIZE_MAX));
    spry_buffer_clear(&buffer);
    assert_null(spry_buffer_extend(&buffer, SIZE_MAX)); /* fits the maximum, but not with the zero after it */
    assert_true(buffer.failed);
    spry_buffer_deinit(&buffer);
    spry_buffer_init(&buffer, 0);
    assert_true(spry_buffer_append(&buffer, "", 0));
    assert_false(spry_buffer_append(&buffer, "x", 1));
    spry_buffer_deinit(&buffer);
}

static void buffer_extend_and_consume(void **state)
{
    (void)state;
    spry_buffer buffer;
    spry_buffer_init(&buffer, 1000);
    spry_buffer_consume(&buffer, 5); /* nothing there yet */
    char *room = spry_buffer_extend(&buffer, 6);
    assert_non_null(room);
    memcpy(room, "abcdef", 6);
    assert_string_equal(buffer.data, "abcdef");
    spry_buffer_consume(&buffer, 0);
    spry_buffer_consume(&buffer, 2);
    assert_string_equal(buffer.data, "cdef");
    assert_int_equal(buffer.size, 4);
    spry_buffer_consume(&buffer, 100);
    assert_string_equal(buffer.data, "");
    assert_int_equal(buffer.size, 0);
    spry_buffer_deinit(&buffer);
}

/* ---- memory of requests ------------------------------------------------------------------------------------------ */

static bool take_some(void *user, size_t bytes)
{
    size_t *left = user;
    if (bytes > *left)
        return false;
    *left -= bytes;
    return true;
}

static bool arena_fits(size_t bytes)
{
    spry_arena arena;
    spry_arena_init(&arena);
    bool fits = spry_arena_alloc(&arena, 1, bytes) != NULL;
    spry_arena_deinit(&arena);
    return fits;
}

static void memory_of_a_request_has_a_limit(void **state)
{
    (void)state;
    enum { LIMIT = 8 << 20 };
    size_t left = LIMIT;
    spry_buffer buffer;
    spry_tokens tokens = {0};
    spry_buffer_init(&buffer, SIZE_MAX / 2);
    spry_meter_begin(take_some, &left);
    for (int i = 0; i < 100; i++)
        assert_true(arena_fits(LIMIT / 2)); /* what is freed counts no longer */
    assert_false(arena_fits(LIMIT));
    assert_non_null(spry_buffer_extend(&buffer, LIMIT / 2));
    assert_null(spry_buffer_extend(&buffer, LIMIT / 2));
    assert_true(buffer.failed);
    size_t count = 0;
    while (spry_tokens_push(&tokens, 1))
        count++;
    assert_in_range(count, LIMIT / 16, LIMIT / 8);
    spry_meter_pause();
    assert_true(arena_fits(LIMIT));
    spry_meter_resume();
    assert_false(arena_fits(LIMIT));
    spry_buffer_deinit(&buffer);
    spry_tokens_deinit(&tokens);
    assert_true(arena_fits(LIMIT / 2));
    spry_meter_end();
    assert_true(arena_fits(LIMIT));
    assert_true(left < LIMIT / 2);
}

/* ---- map -------------------------------------------------------------------------------------------------------- */

static void map_holds_many(void **state)
{
    (void)state;
    enum { N = 50000, KEY = 12 };
    char *keys = calloc(N, KEY);
    assert_non_null(keys);
    spry_map map;
    spry_map_init(&map);
    uint32_t value;
    assert_false(spry_map_find(&map, SPRY_VIEW("0"), &value));
    for (uint32_t i = 0; i < N; i++) {
        bool added = false;
        snprintf(keys + i * KEY, KEY, "%u", i * 7);
        assert_true(spry_map_add(&map, spry_view_of(keys + i * KEY), i, &added));
        assert_true(added);
    }
    assert_int_equal(map.count, N);
    assert_true(map.count <= map.capacity / 4 * 3);
    for (uint32_t i = 0; i < N * 7; i++) {
        char key[KEY];
        snprintf(key, sizeof key, "%u", i);
        assert_int_equal(spry_map_find(&map, spry_view_of(key), &value), i % 7 == 0);
        if (i % 7 == 0)
            assert_int_equal(value, i / 7);
    }
    spry_map_deinit(&map);
    free(keys);
}

static void map_keeps_the_first_value(void **state)
{
    (void)state;
    spry_map map;
    spry_map_init(&map);
    bool added = false;
    uint32_t value = 0;
    assert_true(spry_map_add(&map, SPRY_VIEW("key"), 1, &added) && added);
    assert_true(spry_map_add(&map, SPRY_VIEW("key"), 2, &added) && !added);
    assert_true(spry_map_add(&map, SPRY_VIEW("key"), 3, NULL));
    assert_true(spry_map_find(&map, SPRY_VIEW("key"), &value) && value == 1);
    assert_int_equal(map.count, 1);
    spry_map_deinit(&map);
}

static void map_knows_odd_keys(void **state)
{
    (void)state;
    static const spry_view keys[] = {{NULL, 0}, {"\0", 1}, {"\0\0", 2}, {"a", 1}, {"a\0", 2}, {"\0a", 2}, {"a\0b", 3}};
    spry_map map;
    spry_map_init(&map);
    for (uint32_t i = 0; i < SPRY_COUNT(keys); i++) {
        bool added = false;
        assert_true(spry_map_add(&map, keys[i], i, &added) && added);
    }
    for (uint32_t i = 0; i < SPRY_COUNT(keys); i++) {
        uint32_t value = 99;
        assert_true(spry_map_find(&map, keys[i], &value));
        assert_int_equal(value, i);
    }
    uint32_t value = 99;
    assert_true(spry_map_find(&map, SPRY_VIEW(""), &value) && value == 0);
    spry_map_deinit(&map);
}

static void hash_spreads(void **state)
{
    (void)state;
    enum { N = 1 << 14, BUCKETS = 64 };
    size_t counts[BUCKETS] = {0};
    for (uint32_t i = 0; i < N; i++)
        counts[spry_hash_bytes(&i, sizeof i, 42) % BUCKETS]++;
    /* Chi-squared with 63 degrees of freedom is above 125 once in a hundred thousand; the hash is fixed, so is this. */
    double chi = 0, expected = (double)N / BUCKETS;
    for (size_t b = 0; b < BUCKETS; b++)
        chi += ((double)counts[b] - expected) * ((double)counts[b] - expected) / expected;
    assert_true(chi < 125);
    assert_true(spry_hash_bytes("abc", 3, 1) != spry_hash_bytes("abc", 3, 2));
    assert_true(spry_hash_bytes("abc", 3, 1) != spry_hash_bytes("abc\0", 4, 1));
    assert_true(spry_hash_bytes("12345678", 8, 1) != spry_hash_bytes("12345678\0", 9, 1));
    assert_true(spry_hash_bytes(&"xabcdefghijk"[1], 11, 5) == spry_hash_bytes("abcdefghijk", 11, 5));
}

/* ---- dtype ------------------------------------------------------------------------------------------------------ */

/* Values and bytes of a block as the GGUF format lays them out: scales of 2 bytes each (1 for MXFP4), K-quants with 16
 * or 12 bytes of sub-block scales, then the packed values. */
static const struct {
    spry_dtype type;
    uint32_t id;
    const char *name;
    size_t block, bytes;
} expected_types[] = {
    {SPRY_F32, 0, "F32", 1, 4},
    {SPRY_F16, 1, "F16", 1, 2},
    {SPRY_Q4_0, 2, "Q4_0", 32, 2 + 16},
    {SPRY_Q4_1, 3, "Q4_1", 32, 2 + 2 + 16},
    {SPRY_Q5_0, 6, "Q5_0", 32, 2 + 4 + 16},
    {SPRY_Q5_1, 7, "Q5_1", 32, 2 + 2 + 4 + 16},
    {SPRY_Q8_0, 8, "Q8_0", 32, 2 + 32},
    {SPRY_Q2_K, 10, "Q2_K", 256, 16 + 64 + 2 + 2},
    {SPRY_Q3_K, 11, "Q3_K", 256, 32 + 64 + 12 + 2},
    {SPRY_Q4_K, 12, "Q4_K", 256, 2 + 2 + 12 + 128},
    {SPRY_Q5_K, 13, "Q5_K", 256, 2 + 2 + 12 + 32 + 128},
    {SPRY_Q6_K, 14, "Q6_K", 256, 128 + 64 + 16 + 2},
    {SPRY_IQ2_XXS, 16, "IQ2_XXS", 256, 2 + 64},
    {SPRY_IQ2_XS, 17, "IQ2_XS", 256, 2 + 64 + 8},
    {SPRY_IQ3_XXS, 18, "IQ3_XXS", 256, 2 + 64 + 32},
    {SPRY_IQ4_NL, 20, "IQ4_NL", 32, 2 + 16},
    {SPRY_IQ3_S, 21, "IQ3_S", 256, 2 + 64 + 8 + 32 + 4},
    {SPRY_IQ2_S, 22, "IQ2_S", 256, 2 + 32 + 32 + 8 + 8},
    {SPRY_IQ4_XS, 23, "IQ4_XS", 256, 2 + 2 + 4 + 128},
    {SPRY_BF16, 30, "BF16", 1, 2},
    {SPRY_TQ1_0, 34, "TQ1_0", 256, 48 + 4 + 2},
    {SPRY_TQ2_0, 35, "TQ2_0", 256, 64 + 2},
    {SPRY_MXFP4, 39, "MXFP4", 32, 1 + 16},
    {SPRY_IQ1_S, 19, "IQ1_S", 256, 2 + 32 + 16},
    {SPRY_IQ1_M, 29, "IQ1_M", 256, 32 + 16 + 8},
    {SPRY_NVFP4, 40, "NVFP4", 64, 4 + 32},
    {SPRY_Q1_0, 41, "Q1_0", 128, 2 + 16},
    {SPRY_Q2_0, 42, "Q2_0", 64, 2 + 16},
};

static void dtype_table_is_gguf(void **state)
{
    (void)state;
    size_t known = 0;
    for (uint32_t id = 0; id < 300; id++)
        known += spry_dtype_in_gguf(id);
    assert_true(spry_dtype_in_gguf(SPRY_I32)); /* for tables of ids, not for weights */
    assert_int_equal(known, SPRY_COUNT(expected_types) + 1);
    assert_false(spry_dtype_known(UINT32_MAX) || spry_dtype_known(SPRY_U8) || spry_dtype_known(SPRY_F8_E4M3));
    assert_true(spry_dtype_known(SPRY_F8) && !spry_dtype_in_gguf(SPRY_F8)); /* made in memory, in no GGUF file */
    assert_int_equal(spry_dtype_bytes(SPRY_F8), 4 + 32);
    for (size_t i = 0; i < SPRY_COUNT(expected_types); i++) {
        spry_dtype type = expected_types[i].type;
        assert_int_equal(type, expected_types[i].id);
        assert_true(spry_dtype_known(expected_types[i].id) && spry_dtype_in_gguf(expected_types[i].id));
        assert_string_equal(spry_dtype_name(type), expected_types[i].name);
        assert_int_equal(spry_dtype_block(type), expected_types[i].block);
        assert_int_equal(spry_dtype_bytes(type), expected_types[i].bytes);
    }
}

static void dtype_sizes(void **state)
{
    (void)state;
    size_t bytes;
    for (size_t i = 0; i < SPRY_COUNT(expected_types); i++) {
        spry_dtype type = expected_types[i].type;
        size_t block = expected_types[i].block, block_bytes = expected_types[i].bytes;
        assert_true(spry_dtype_size(&bytes, type, 0) && bytes == 0);
        assert_true(spry_dtype_size(&bytes, type, block * 1000) && bytes == block_bytes * 1000);
        if (block > 1) {
            assert_false(spry_dtype_size(&bytes, type, block - 1));
            assert_false(spry_dtype_size(&bytes, type, block + 1));
            assert_false(spry_dtype_size(&bytes, type, block / 2));
        }
    }
    assert_false(spry_dtype_size(&bytes, SPRY_F32, SIZE_MAX / 4 + 1));
    assert_true(spry_dtype_size(&bytes, SPRY_F32, SIZE_MAX / 4) && bytes == SIZE_MAX / 4 * 4);
    assert_false(spry_dtype_size(&bytes, SPRY_Q8_0, SIZE_MAX - 31));
}

static void dtype_is_found_by_name(void **state)
{
    (void)state;
    spry_dtype type;
    for (size_t i = 0; i < SPRY_COUNT(expected_types); i++) {
        char lower[16] = {0};
        size_t length = strlen(expected_types[i].name);
        for (size_t j = 0; j < length; j++)
            lower[j] = (char)tolower(expected_types[i].name[j]);
        assert_true(spry_dtype_find(&type, spry_view_of(expected_types[i].name)) && type == expected_types[i].type);
        assert_true(spry_dtype_find(&type, spry_view_of(lower)) && type == expected_types[i].type);
        assert_non_null(strstr(spry_dtype_names(), expected_types[i].name));
    }
    assert_false(spry_dtype_find(&type, SPRY_VIEW("")));
    assert_false(spry_dtype_find(&type, SPRY_VIEW("Q4")));
    assert_false(spry_dtype_find(&type, SPRY_VIEW("Q4_00")));
    assert_false(spry_dtype_find(&type, SPRY_VIEW("F32\0")));
    size_t names = 1;
    for (const char *c = spry_dtype_names(); (c = strstr(c, ", ")); c += 2)
        names++;
    assert_int_equal(names, SPRY_COUNT(expected_types));
}

/* ---- error and log ---------------------------------------------------------------------------------------------- */

static void errors_carry_one_sentence(void **state)
{
    (void)state;
    spry_error error = {0};
    assert_int_equal(spry_fail(NULL, SPRY_ERR_FILE, "nobody reads this"), SPRY_ERR_FILE);
    assert_int_equal(spry_fail(&error, SPRY_ERR_FORMAT, "field %d", 7), SPRY_ERR_FORMAT);
    assert_int_equal(error.status, SPRY_ERR_FORMAT);
    assert_string_equal(error.message, "field 7");
    assert_int_equal(spry_fail_prefix(&error, SPRY_ERR_FORMAT, "model.gguf"), SPRY_ERR_FORMAT);
    assert_string_equal(error.message, "model.gguf: field 7");
    assert_int_equal(spry_fail_prefix(NULL, SPRY_ERR_INPUT, "x"), SPRY_ERR_INPUT);
    assert_int_equal(spry_fail_memory(&error, "the cache", 12345), SPRY_ERR_MEMORY);
    assert_string_equal(error.message, "not enough memory for the cache (12345 bytes)");
}

static void errors_are_cut_to_fit(void **state)
{
    (void)state;
    char text[2000];
    memset(text, 'x', sizeof text);
    text[sizeof text - 1] = 0;
    spry_error error;
    spry_fail(&error, SPRY_ERR_INPUT, "%s", text);
    assert_int_equal(strlen(error.message), SPRY_ERROR_MAX - 1);
    spry_fail_prefix(&error, SPRY_ERR_INPUT, text);
    assert_true(strlen(error.message) < SPRY_ERROR_MAX);
    assert_non_null(strstr(error.message, "x: x"));
}

static void statuses_have_names(void **state)
{
    (void)state;
    for (int i = SPRY_OK; i <= SPRY_ERR_CANCELLED; i++)
        for (int j = SPRY_OK; j < i; j++)
            assert_string_not_equal(spry_status_name((spry_status)i), spry_status_name((spry_status)j));
    assert_string_equal(spry_status_name((spry_status)1000), "unknown");
}

typedef struct heard {
    int level, count;
    char sentence[1000];
} heard;

static void listen(void *user, int level, const char *sentence)
{
    heard *h = user;
    h->level = level;
    h->count++;
    snprintf(h->sentence, sizeof h->sentence, "%s", sentence);
}

static void log_reaches_the_listener(void **state)
{
    (void)state;
    heard h = {0};
    spry_log log = {listen, &h}, silent = {NULL, NULL};
    spry_log_write(NULL, SPRY_LOG_WARN, "nobody");
    spry_log_write(&silent, SPRY_LOG_WARN, "nobody");
    spry_log_write(&log, SPRY_LOG_WARN, "%s of %d", "one", 2);
    assert_true(h.count == 1 && h.level == SPRY_LOG_WARN);
    assert_string_equal(h.sentence, "one of 2");
    spry_log_write(&log, SPRY_LOG_DEBUG, "%0900d", 1); /* cut, not overrun */
    assert_true(h.count == 2 && h.level == SPRY_LOG_DEBUG);
    assert_in_range(strlen(h.sentence), 100, 899);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(checked_add_at_the_limit),
        cmocka_unit_test(checked_mul_at_the_limit),
        cmocka_unit_test(checked_align_at_the_limit),
        cmocka_unit_test(views_compare),
        cmocka_unit_test(arena_gives_zeroed_aligned_memory),
        cmocka_unit_test(arena_large_thing_first),
        cmocka_unit_test(arena_refuses_what_cannot_be),
        cmocka_unit_test(arena_copies_text),
        cmocka_unit_test(buffer_grows_and_ends_with_zero),
        cmocka_unit_test(buffer_stops_at_its_maximum),
        cmocka_unit_test(buffer_refuses_sizes_that_wrap),
        cmocka_unit_test(buffer_extend_and_consume),
        cmocka_unit_test(memory_of_a_request_has_a_limit),
        cmocka_unit_test(map_holds_many),
        cmocka_unit_test(map_keeps_the_first_value),
        cmocka_unit_test(map_knows_odd_keys),
        cmocka_unit_test(hash_spreads),
        cmocka_unit_test(dtype_table_is_gguf),
        cmocka_unit_test(dtype_sizes),
        cmocka_unit_test(dtype_is_found_by_name),
        cmocka_unit_test(errors_carry_one_sentence),
        cmocka_unit_test(errors_are_cut_to_fit),
        cmocka_unit_test(statuses_have_names),
        cmocka_unit_test(log_reaches_the_listener),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
