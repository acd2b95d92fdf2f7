/* Reading GGUF files that are right: every kind of value, shapes, look-ups, and the real files of the fixtures. Files
 * that are wrong are in test_gguf_hostile.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "platform/file.h"
#include "support/gguf_bytes.h"

static spry_gguf *open_bytes(const spry_buffer *bytes)
{
    spry_gguf *gguf = NULL;
    spry_error error;
    if (spry_gguf_open_memory(&gguf, bytes->data, bytes->size, "made.gguf", &error) != SPRY_OK)
        fail_msg("%s", error.message);
    return gguf;
}

static spry_gguf *open_path(const char *path)
{
    spry_gguf *gguf = NULL;
    spry_error error;
    if (spry_gguf_open(&gguf, path, &error) != SPRY_OK)
        fail_msg("%s", error.message);
    assert_string_equal(spry_gguf_name(gguf), path);
    return gguf;
}

static bool text_is(const spry_gguf *gguf, const char *key, const char *expected)
{
    spry_view text;
    return spry_gguf_get_string(gguf, key, &text) && spry_view_is(text, expected);
}

static uint64_t number(const spry_gguf *gguf, const char *key)
{
    uint64_t value;
    assert_true(spry_gguf_get_u64(gguf, key, &value));
    return value;
}

static double real(const spry_gguf *gguf, const char *key)
{
    double value;
    assert_true(spry_gguf_get_f64(gguf, key, &value));
    return value;
}

/* ---- values ----------------------------------------------------------------------------------------------------- */

#define PUT(bytes, key, kind, type, value)                                                                             \
    do {                                                                                                               \
        type put_value = (value);                                                                                      \
        gguf_key(bytes, key, kind);                                                                                    \
        gguf_bytes(bytes, &put_value, sizeof put_value);                                                               \
    } while (0)

static void every_scalar_kind_is_read(void **state)
{
    (void)state;
    spry_buffer b;
    gguf_begin(&b, 3, 0, 14);
    PUT(&b, "u8", SPRY_GGUF_U8, uint8_t, 200);
    PUT(&b, "i8", SPRY_GGUF_I8, int8_t, -100);
    PUT(&b, "u16", SPRY_GGUF_U16, uint16_t, 60000);
    PUT(&b, "i16", SPRY_GGUF_I16, int16_t, INT16_MIN);
    PUT(&b, "u32", SPRY_GGUF_U32, uint32_t, 4000000000u);
    PUT(&b, "i32", SPRY_GGUF_I32, int32_t, 77);
    PUT(&b, "f32", SPRY_GGUF_F32, float, 0.5f);
    PUT(&b, "true", SPRY_GGUF_BOOL, uint8_t, 1);
    PUT(&b, "false", SPRY_GGUF_BOOL, uint8_t, 0);
    PUT(&b, "u64", SPRY_GGUF_U64, uint64_t, UINT64_MAX);
    PUT(&b, "i64", SPRY_GGUF_I64, int64_t, INT64_MIN);
    PUT(&b, "f64", SPRY_GGUF_F64, double, -1e300);
    gguf_key(&b, "text", SPRY_GGUF_STRING);
    gguf_string(&b, "h\xc3\xa9llo");
    gguf_key(&b, "empty", SPRY_GGUF_STRING);
    gguf_string(&b, "");
    spry_gguf *g = open_bytes(&b);

    assert_int_equal(spry_gguf_entry_count(g), 14);
    assert_int_equal(number(g, "u8"), 200);
    assert_int_equal(number(g, "u16"), 60000);
    assert_int_equal(number(g, "u32"), 4000000000u);
    assert_int_equal(number(g, "i32"), 77);
    assert_true(number(g, "u64") == UINT64_MAX);
    assert_true(real(g, "u8") == 200.0);
    assert_true(real(g, "i8") == -100.0);
    assert_true(real(g, "i16") == -32768.0);
    assert_true(real(g, "i64") == -0x1p63);
    assert_true(real(g, "u64") == 0x1p64);
    assert_true(real(g, "f32") == 0.5);
    assert_true(real(g, "f64") == -1e300);
    bool flag = false;
    assert_true(spry_gguf_get_bool(g, "true", &flag) && flag);
    assert_true(spry_gguf_get_bool(g, "false", &flag) && !flag);
    assert_true(text_is(g, "text", "h\xc3\xa9llo"));
    assert_true(text_is(g, "empty", ""));
    spry_gguf_close(g);
    spry_buffer_deinit(&b);
}

static void a_look_up_of_another_kind_finds_nothing(void **state)
{
    (void)state;
    spry_buffer b;
    gguf_begin(&b, 2, 0, 5);
    PUT(&b, "negative", SPRY_GGUF_I32, int32_t, -1);
    PUT(&b, "flag", SPRY_GGUF_BOOL, uint8_t, 1);
    PUT(&b, "real", SPRY_GGUF_F32, float, 3.0f);
    gguf_key(&b, "text", SPRY_GGUF_STRING);
    gguf_string(&b, "1");
    gguf_key(&b, "list", SPRY_GGUF_ARRAY);
    gguf_array(&b, SPRY_GGUF_U32, 0);
    spry_gguf *g = open_bytes(&b);

    uint64_t natural = 5;
    double floating = 5;
    bool flag = false;
    spry_view text = SPRY_VIEW("kept");
    spry_gguf_array array;
    static const char *const not_natural[] = {"negative", "flag", "real", "text", "list", "absent", ""};
    for (size_t i = 0; i < SPRY_COUNT(not_natural); i++)
        assert_false(spry_gguf_get_u64(g, not_natural[i], &natural));
    static const char *const not_real[] = {"flag", "text", "list", "absent"};
    for (size_t i = 0; i < SPRY_COUNT(not_real); i++)
        assert_false(spry_gguf_get_f64(g, not_real[i], &floating));
    static const char *const others[] = {"negative", "real", "absent"};
    for (size_t i = 0; i < SPRY_COUNT(others); i++) {
        assert_false(spry_gguf_get_bool(g, others[i], &flag));
        assert_false(spry_gguf_get_string(g, others[i], &text));
        assert_false(spry_gguf_get_array(g, others[i], &array));
    }
    assert_int_equal(natural, 5);
    assert_true(floating == 5);
    assert_true(spry_view_is(text, "kept"));
    assert_true(spry_gguf_get_array(g, "list", &array));
    assert_int_equal(array.count, 0);
    assert_false(spry_gguf_array_u64(&array, 0, &natural));
    assert_null(spry_gguf_entry_at(g, 5));
    assert_null(spry_gguf_tensor(g, 0));
    assert_int_equal(spry_gguf_version(g), 2);
    spry_gguf_close(g);
    spry_buffer_deinit(&b);
}

static void arrays_of_numbers_are_read_by_index(void **state)
{
    (void)state;
    static const int16_t shorts[] = {-3, 0, 3};
    static const float floats[] = {0.25f, -8.0f};
    spry_buffer b;
    gguf_begin(&b, 3, 0, 3);
    gguf_key(&b, "shorts", SPRY_GGUF_ARRAY);
    gguf_array(&b, SPRY_GGUF_I16, 3);
    gguf_bytes(&b, shorts, sizeof shorts);
    gguf_key(&b, "floats", SPRY_GGUF_ARRAY);
    gguf_array(&b, SPRY_GGUF_F32, 2);
    gguf_bytes(&b, floats, sizeof floats);
    gguf_key(&b, "bools", SPRY_GGUF_ARRAY);
    gguf_array(&b, SPRY_GGUF_BOOL, 3);
    gguf_bytes(&b, "\1\0\1", 3);
    spry_gguf *g = open_bytes(&b);

    spry_gguf_array array;
    uint64_t natural = 0;
    double floating = 0;
    assert_true(spry_gguf_get_array(g, "shorts", &array));
    assert_true(array.kind == SPRY_GGUF_I16 && array.count == 3 && array.bytes == 6);
    assert_true(spry_gguf_array_f64(&array, 0, &floating) && floating == -3);
    assert_false(spry_gguf_array_u64(&array, 0, &natural));
    assert_true(spry_gguf_array_u64(&array, 2, &natural) && natural == 3);
    assert_false(spry_gguf_array_u64(&array, 3, &natural));
    assert_false(spry_gguf_array_u64(&array, SIZE_MAX, &natural));
    assert_true(spry_gguf_get_array(g, "floats", &array));
    assert_true(spry_gguf_array_f64(&array, 1, &floating) && floating == -8);
    assert_false(spry_gguf_array_u64(&array, 1, &natural));
    assert_true(spry_gguf_get_array(g, "bools", &array));
    assert_true(spry_gguf_array_u64(&array, 2, &natural) && natural == 1);
    assert_true(spry_gguf_array_u64(&array, 1, &natural) && natural == 0);
    assert_false(spry_gguf_array_f64(&array, 1, &floating));
    gguf_walk(g);
    spry_gguf_close(g);
    spry_buffer_deinit(&b);
}

static void arrays_of_strings_are_read_by_cursor(void **state)
{
    (void)state;
    spry_buffer b;
    gguf_begin(&b, 3, 0, 3);
    gguf_key(&b, "words", SPRY_GGUF_ARRAY);
    gguf_array(&b, SPRY_GGUF_STRING, 3);
    gguf_string(&b, "one");
    gguf_string(&b, "");
    gguf_string(&b, "three");
    gguf_key(&b, "number", SPRY_GGUF_ARRAY);
    gguf_array(&b, SPRY_GGUF_U8, 1);
    gguf_bytes(&b, "\7", 1);
    gguf_key(&b, "nested", SPRY_GGUF_ARRAY); /* [["a"], [[], [[7]]]]: four deep, the limit */
    gguf_array(&b, SPRY_GGUF_ARRAY, 2);
    gguf_array(&b, SPRY_GGUF_STRING, 1);
    gguf_string(&b, "a");
    gguf_array(&b, SPRY_GGUF_ARRAY, 2);
    gguf_array(&b, SPRY_GGUF_U8, 0);
    gguf_array(&b, SPRY_GGUF_ARRAY, 1);
    gguf_array(&b, SPRY_GGUF_U8, 1);
    gguf_bytes(&b, "\7", 1);
    spry_gguf *g = open_bytes(&b);

    spry_gguf_array array;
    uint64_t natural;
    spry_view text;
    size_t cursor = 0;
    assert_true(spry_gguf_get_array(g, "words", &array));
    assert_true(spry_gguf_array_string(&array, &cursor, &text) && spry_view_is(text, "one"));
    assert_true(spry_gguf_array_string(&array, &cursor, &text) && spry_view_is(text, ""));
    assert_true(spry_gguf_array_string(&array, &cursor, &text) && spry_view_is(text, "three"));
    assert_false(spry_gguf_array_string(&array, &cursor, &text));
    assert_false(spry_gguf_array_u64(&array, 0, &natural));
    cursor = 0;
    assert_true(spry_gguf_get_array(g, "number", &array));
    assert_false(spry_gguf_array_string(&array, &cursor, &text));
    assert_true(spry_gguf_get_array(g, "nested", &array));
    assert_true(array.kind == SPRY_GGUF_ARRAY && array.count == 2);
    assert_false(spry_gguf_array_u64(&array, 0, &natural));
    gguf_walk(g);
    spry_gguf_close(g);
    spry_buffer_deinit(&b);
}

static void kinds_have_names_and_sizes(void **state)
{
    (void)state;
    assert_string_equal(spry_gguf_kind_name(SPRY_GGUF_U32), "u32");
    assert_string_equal(spry_gguf_kind_name(SPRY_GGUF_ARRAY), "array");
    assert_string_equal(spry_gguf_kind_name((spry_gguf_kind)13), "unknown");
    assert_int_equal(spry_gguf_kind_bytes(SPRY_GGUF_F64), 8);
    assert_int_equal(spry_gguf_kind_bytes(SPRY_GGUF_STRING), 0);
    assert_int_equal(spry_gguf_kind_bytes((spry_gguf_kind)13), 0);
}

/* ---- tensors ---------------------------------------------------------------------------------------------------- */

static void shapes_are_turned_round_and_places_found(void **state)
{
    (void)state;
    static const uint64_t matrix[] = {64, 2}, cube[] = {2, 3, 4, 5}, line[] = {7};
    spry_buffer b;
    gguf_begin(&b, 3, 3, 1);
    PUT(&b, "general.alignment", SPRY_GGUF_U32, uint32_t, 64);
    gguf_tensor(&b, "cube", 4, cube, SPRY_F16, 128); /* listed out of order, which is allowed */
    gguf_tensor(&b, "matrix", 2, matrix, SPRY_Q4_0, 0);
    gguf_tensor(&b, "line", 1, line, SPRY_F32, 384);
    gguf_pad(&b, 64);
    size_t start = b.size;
    gguf_zeros(&b, 384 + 7 * 4);
    spry_gguf *g = open_bytes(&b);

    const spry_tensor *t = spry_gguf_find_tensor(g, SPRY_VIEW("matrix"));
    assert_non_null(t);
    assert_true(t->type == SPRY_Q4_0 && t->n_dims == 2 && t->bytes == 4 * 18);
    assert_true(t->dims[0] == 2 && t->dims[1] == 64 && t->dims[2] == 1 && t->dims[3] == 1);
    assert_ptr_equal(t->data, b.data + start);
    t = spry_gguf_tensor(g, 0);
    assert_true(spry_view_is(t->name, "cube") && t->n_dims == 4 && t->bytes == 240);
    assert_true(t->dims[0] == 5 && t->dims[1] == 4 && t->dims[2] == 3 && t->dims[3] == 2);
    assert_ptr_equal(t->data, b.data + start + 128);
    assert_int_equal(t->offset, start + 128);
    t = spry_gguf_find_tensor(g, SPRY_VIEW("line"));
    assert_true(t && t->n_dims == 1 && t->dims[0] == 7 && t->dims[1] == 1);
    assert_null(spry_gguf_find_tensor(g, SPRY_VIEW("lin")));
    assert_int_equal(spry_gguf_size(g), b.size);
    spry_gguf_close(g);
    spry_buffer_deinit(&b);
}

static void every_type_has_its_size(void **state)
{
    (void)state;
    for (uint32_t type = 0; type < SPRY_DTYPE_COUNT; type++) {
        if (!spry_dtype_in_gguf(type))
            continue;
        const uint64_t dims[] = {512, 3};
        size_t bytes = 1536 / spry_dtype_block((spry_dtype)type) * spry_dtype_bytes((spry_dtype)type);
        spry_buffer b;
        gguf_begin(&b, 3, 1, 0);
        gguf_tensor(&b, "t", 2, dims, type, 0);
        gguf_pad(&b, 32);
        gguf_zeros(&b, bytes);
        spry_gguf *g = open_bytes(&b);
        assert_int_equal(spry_gguf_tensor(g, 0)->bytes, bytes);
        spry_gguf_close(g);
        b.size--; /* one byte less is one too few */
        spry_error error;
        assert_int_equal(spry_gguf_open_memory(&g, b.data, b.size, "short", &error), SPRY_ERR_FORMAT);
        assert_null(g);
        spry_buffer_deinit(&b);
    }
}

/* ---- real files ------------------------------------------------------------------------------------------------- */

static void the_llama_fixture_is_read(void **state)
{
    (void)state;
    spry_gguf *g = open_path(TEST_DATA "/models/llama/model-f32.gguf");
    assert_int_equal(spry_gguf_version(g), 3);
    assert_int_equal(spry_gguf_entry_count(g), 26);
    assert_int_equal(spry_gguf_tensor_count(g), 30);
    assert_true(text_is(g, "general.architecture", "llama"));
    assert_int_equal(number(g, "llama.block_count"), 3);
    assert_int_equal(number(g, "llama.attention.head_count_kv"), 2);
    assert_true(real(g, "llama.rope.freq_base") == 10000.0);
    assert_true(fabs(real(g, "llama.attention.layer_norm_rms_epsilon") - 1e-6) < 1e-12);

    spry_gguf_array array;
    spry_view text;
    size_t cursor = 0;
    assert_true(spry_gguf_get_array(g, "tokenizer.ggml.tokens", &array));
    assert_int_equal(array.count, 512);
    assert_true(spry_gguf_array_string(&array, &cursor, &text) && spry_view_is(text, "<|endoftext|>"));
    assert_true(spry_gguf_array_string(&array, &cursor, &text) && spry_view_is(text, "<|im_start|>"));

    const spry_tensor *t = spry_gguf_find_tensor(g, SPRY_VIEW("blk.0.ffn_down.weight"));
    assert_true(t && t->type == SPRY_F32 && t->n_dims == 2);
    assert_true(t->dims[0] == 64 && t->dims[1] == 160 && t->bytes == 64 * 160 * 4);
    t = spry_gguf_find_tensor(g, SPRY_VIEW("output_norm.weight"));
    assert_true(t && t->n_dims == 1 && t->dims[0] == 64);
    gguf_walk(g);
    spry_gguf_close(g);
}

static void the_other_fixtures_are_read(void **state)
{
    (void)state;
    static const struct {
        const char *path, *architecture;
        size_t tensors;
    } files[] = {
        {TEST_DATA "/models/qwen3/model-f32.gguf", "qwen3", 35},
        {TEST_DATA "/models/gemma3/model-f32.gguf", "gemma3", 93},
        {TEST_DATA "/models/qwen2-moe/model-f32.gguf", "qwen2moe", 54},
    };
    for (size_t i = 0; i < SPRY_COUNT(files); i++) {
        spry_gguf *g = open_path(files[i].path);
        assert_true(text_is(g, "general.architecture", files[i].architecture));
        assert_int_equal(spry_gguf_tensor_count(g), files[i].tensors);
        gguf_walk(g);
        spry_gguf_close(g);
    }
}

static void experts_have_three_dimensions(void **state)
{
    (void)state;
    spry_gguf *g = open_path(TEST_DATA "/models/qwen2-moe/model-f32.gguf");
    const spry_tensor *t = NULL;
    for (size_t i = 0; i < spry_gguf_tensor_count(g) && !t; i++)
        if (spry_view_ends(spry_gguf_tensor(g, i)->name, SPRY_VIEW("ffn_up_exps.weight")))
            t = spry_gguf_tensor(g, i);
    assert_non_null(t);
    assert_int_equal(t->n_dims, 3);
    assert_int_equal(t->dims[0], number(g, "qwen2moe.expert_count"));
    assert_int_equal(t->dims[1], number(g, "qwen2moe.expert_feed_forward_length"));
    assert_int_equal(t->dims[2], number(g, "qwen2moe.embedding_length"));
    spry_gguf_close(g);
}

static void public_files_are_read(void **state)
{
    (void)state;
    if (!spry_path_exists(PUBLIC_DATA)) {
        printf("SKIPPED public_files_are_read: ../shared/public is not there\n");
        return;
    }
    spry_gguf *g = open_path(PUBLIC_DATA "/models/stories260K/stories260K-f32.gguf");
    assert_int_equal(spry_gguf_tensor_count(g), 48);
    assert_true(text_is(g, "general.architecture", "llama"));
    gguf_walk(g);
    spry_gguf_close(g);

    g = open_path(PUBLIC_DATA "/tokenizers/llama3/ggml-vocab.gguf");
    spry_gguf_array array;
    assert_true(spry_gguf_get_array(g, "tokenizer.ggml.tokens", &array));
    assert_int_equal(array.count, 128256);
    gguf_walk(g);
    spry_gguf_close(g);

    g = open_path(PUBLIC_DATA "/badinput/malformed_weights/empty.gguf"); /* one entry, no tensors: small, not wrong */
    assert_int_equal(spry_gguf_entry_count(g), 1);
    assert_int_equal(spry_gguf_tensor_count(g), 0);
    spry_gguf_close(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_scalar_kind_is_read),
        cmocka_unit_test(a_look_up_of_another_kind_finds_nothing),
        cmocka_unit_test(arrays_of_numbers_are_read_by_index),
        cmocka_unit_test(arrays_of_strings_are_read_by_cursor),
        cmocka_unit_test(kinds_have_names_and_sizes),
        cmocka_unit_test(shapes_are_turned_round_and_places_found),
        cmocka_unit_test(every_type_has_its_size),
        cmocka_unit_test(the_llama_fixture_is_read),
        cmocka_unit_test(the_other_fixtures_are_read),
        cmocka_unit_test(experts_have_three_dimensions),
        cmocka_unit_test(public_files_are_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
