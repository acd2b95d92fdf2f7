/* Writing GGUF: what is written is read back the same, wrong use is told, and a failure leaves no file. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "formats/gguf_writer.h"
#include "platform/file.h"
#include "support/gguf_bytes.h"
#include "support/hostile.h"
#include "support/place.h"

static spry_gguf_writer *start(void)
{
    spry_gguf_writer *writer;
    assert_int_equal(spry_gguf_writer_create(&writer, NULL), SPRY_OK);
    return writer;
}

static spry_gguf *read_back(const char *path)
{
    spry_gguf *gguf = NULL;
    spry_error error;
    if (spry_gguf_open(&gguf, path, &error) != SPRY_OK)
        fail_msg("%s", error.message);
    gguf_walk(gguf);
    return gguf;
}

static const spry_tensor row = {.name = {"row", 3}, .type = SPRY_F32, .n_dims = 1, .dims = {5, 1, 1, 1}};
static const spry_tensor matrix = {.name = {"matrix", 6}, .type = SPRY_Q4_0, .n_dims = 2, .dims = {3, 64, 1, 1}};

static const spry_view texts[] = {{"one", 3}, {"", 0}, {"a\0b", 3}};
static const float floats[] = {1.5f, -2.0f}, row_values[] = {1, 2, 3, 4, 5};
static const int32_t ints[] = {-1, 0, INT32_MAX};

static void metadata_is_read_back(void **state)
{
    (void)state;
    spry_gguf_writer *w = start();
    spry_gguf_writer_u32(w, "u32", 4000000000u);
    spry_gguf_writer_f32(w, "f32", 0.1f);
    spry_gguf_writer_bool(w, "yes", true);
    spry_gguf_writer_bool(w, "no", false);
    spry_gguf_writer_string(w, "text", SPRY_VIEW("h\xc3\xa9"));
    spry_gguf_writer_strings(w, "words", texts, SPRY_COUNT(texts));
    spry_gguf_writer_f32s(w, "floats", floats, SPRY_COUNT(floats));
    spry_gguf_writer_i32s(w, "ints", ints, SPRY_COUNT(ints));
    spry_gguf_writer_i32s(w, "none", NULL, 0);
    assert_int_equal(spry_gguf_writer_begin(w, scratch_path(&place, "out.gguf"), NULL), SPRY_OK);
    assert_int_equal(spry_gguf_writer_finish(w, NULL), SPRY_OK);
    spry_gguf_writer_destroy(w);

    spry_gguf *g = read_back(scratch_path(&place, "out.gguf"));
    uint64_t natural = 0;
    double real = 0;
    bool flag = false;
    spry_view text;
    spry_gguf_array array;
    size_t cursor = 0;
    assert_int_equal(spry_gguf_version(g), 3);
    assert_int_equal(spry_gguf_entry_count(g), 9);
    assert_true(spry_gguf_get_u64(g, "u32", &natural) && natural == 4000000000u);
    assert_true(spry_gguf_get_f64(g, "f32", &real) && real == (double)0.1f);
    assert_true(spry_gguf_get_bool(g, "yes", &flag) && flag);
    assert_true(spry_gguf_get_bool(g, "no", &flag) && !flag);
    assert_true(spry_gguf_get_string(g, "text", &text) && spry_view_is(text, "h\xc3\xa9"));
    assert_true(spry_gguf_get_array(g, "words", &array) && array.count == SPRY_COUNT(texts));
    for (size_t i = 0; i < SPRY_COUNT(texts); i++)
        assert_true(spry_gguf_array_string(&array, &cursor, &text) && spry_view_equal(text, texts[i]));
    assert_true(spry_gguf_get_array(g, "floats", &array) && array.kind == SPRY_GGUF_F32 && array.count == 2);
    assert_memory_equal(array.data, floats, sizeof floats);
    assert_true(spry_gguf_get_array(g, "ints", &array) && array.kind == SPRY_GGUF_I32 && array.count == 3);
    assert_memory_equal(array.data, ints, sizeof ints);
    assert_true(spry_gguf_get_array(g, "none", &array) && array.count == 0);
    spry_gguf_close(g);
    scratch_clear(&place);
}

static void tensors_are_read_back(void **state)
{
    (void)state;
    unsigned char blocks[3 * 2 * 18];
    for (size_t i = 0; i < sizeof blocks; i++)
        blocks[i] = (unsigned char)(i * 7);
    spry_gguf_writer *w = start();
    spry_gguf_writer_string(w, "general.architecture", SPRY_VIEW("llama"));
    spry_gguf_writer_tensor(w, &matrix);
    spry_gguf_writer_tensor(w, &row);
    const char *path = scratch_path(&place, "out.gguf");
    assert_int_equal(spry_gguf_writer_begin(w, path, NULL), SPRY_OK);
    assert_int_equal(spry_gguf_writer_data(w, blocks, 50, NULL), SPRY_OK);
    assert_int_equal(spry_gguf_writer_data(w, blocks, 0, NULL), SPRY_OK);
    assert_int_equal(spry_gguf_writer_data(w, blocks + 50, sizeof blocks - 50, NULL), SPRY_OK);
    assert_int_equal(spry_gguf_writer_data(w, row_values, sizeof row_values, NULL), SPRY_OK);
    assert_false(spry_path_exists(path));
    assert_int_equal(spry_gguf_writer_finish(w, NULL), SPRY_OK);
    spry_gguf_writer_destroy(w);
    assert_int_equal(scratch_count(&place), 1);

    spry_gguf *g = read_back(path);
    const spry_tensor *t = spry_gguf_find_tensor(g, SPRY_VIEW("matrix"));
    assert_true(t && t->type == SPRY_Q4_0 && t->n_dims == 2 && t->dims[0] == 3 && t->dims[1] == 64);
    assert_int_equal(t->bytes, sizeof blocks);
    assert_memory_equal(t->data, blocks, sizeof blocks);
    const spry_tensor *next = spry_gguf_find_tensor(g, SPRY_VIEW("row"));
    assert_true(next && next->n_dims == 1 && next->dims[0] == 5);
    assert_memory_equal(next->data, row_values, sizeof row_values);
    assert_int_equal(next->data - t->data, 128); /* 108 bytes and padding */
    for (const unsigned char *byte = t->data + sizeof blocks; byte < next->data; byte++)
        assert_int_equal(*byte, 0);
    assert_int_equal((uintptr_t)t->data % 32, 0);
    assert_int_equal(spry_gguf_size(g) % 32, 0);
    spry_gguf_close(g);
    scratch_clear(&place);
}

/* A file with an entry of every kind, and an alignment that is not ours. */
static void put_all_kinds(spry_buffer *b)
{
    static const unsigned char bytes[] = {1, 2, 3, 4, 5, 6, 7, 8};
    gguf_begin(b, 2, 0, 14);
    gguf_key(b, "general.alignment", SPRY_GGUF_U32);
    gguf_u32(b, 64);
    for (uint32_t kind = SPRY_GGUF_U8; kind <= SPRY_GGUF_F64; kind++) {
        char key[] = {'k', 'e', 'y', (char)('a' + kind), 0};
        gguf_key(b, key, kind);
        if (kind == SPRY_GGUF_STRING) {
            gguf_string(b, "text");
        } else if (kind == SPRY_GGUF_ARRAY) {
            gguf_array(b, SPRY_GGUF_ARRAY, 2);
            gguf_array(b, SPRY_GGUF_STRING, 1);
            gguf_string(b, "nested");
            gguf_array(b, SPRY_GGUF_U64, 1);
            gguf_bytes(b, bytes, 8);
        } else {
            gguf_bytes(b, bytes, spry_gguf_kind_bytes((spry_gguf_kind)kind));
        }
    }
}

static void entries_of_every_kind_are_copied(void **state)
{
    (void)state;
    spry_buffer b;
    put_all_kinds(&b);
    spry_gguf *from, *to;
    assert_int_equal(spry_gguf_open_memory(&from, b.data, b.size, "kinds", NULL), SPRY_OK);
    spry_gguf_writer *w = start();
    for (size_t i = 0; i < spry_gguf_entry_count(from); i++)
        spry_gguf_writer_entry(w, spry_gguf_entry_at(from, i));
    assert_int_equal(spry_gguf_writer_begin(w, scratch_path(&place, "kinds.gguf"), NULL), SPRY_OK);
    assert_int_equal(spry_gguf_writer_finish(w, NULL), SPRY_OK);
    spry_gguf_writer_destroy(w);
    to = read_back(scratch_path(&place, "kinds.gguf"));
    assert_int_equal(spry_gguf_entry_count(to), 13);
    for (size_t i = 0; i < 13; i++) {
        const spry_gguf_entry *a = spry_gguf_entry_at(from, i + 1), *c = spry_gguf_entry_at(to, i);
        assert_true(spry_view_equal(a->key, c->key));
        assert_true(a->kind == c->kind && a->bytes == c->bytes);
        assert_memory_equal(a->data, c->data, a->bytes);
    }
    spry_gguf_close(to);
    spry_gguf_close(from);
    spry_buffer_deinit(&b);
    scratch_clear(&place);
}

static void a_copied_model_is_the_same_file(void **state)
{
    (void)state;
    const char *original = TEST_DATA "/models/llama/model-f32.gguf";
    spry_gguf *from = read_back(original);
    spry_gguf_writer *w = start();
    for (size_t i = 0; i < spry_gguf_entry_count(from); i++)
        spry_gguf_writer_entry(w, spry_gguf_entry_at(from, i));
    for (size_t i = 0; i < spry_gguf_tensor_count(from); i++)
        spry_gguf_writer_tensor(w, spry_gguf_tensor(from, i));
    assert_int_equal(spry_gguf_writer_begin(w, scratch_path(&place, "copy.gguf"), NULL), SPRY_OK);
    for (size_t i = 0; i < spry_gguf_tensor_count(from); i++) {
        const spry_tensor *tensor = spry_gguf_tensor(from, i);
        assert_int_equal(spry_gguf_writer_data(w, tensor->data, tensor->bytes, NULL), SPRY_OK);
    }
    assert_int_equal(spry_gguf_writer_finish(w, NULL), SPRY_OK);
    spry_gguf_writer_destroy(w);
    spry_gguf_close(from);

    spry_mapping a, b;
    assert_int_equal(spry_mapping_open(&a, original, NULL), SPRY_OK);
    assert_int_equal(spry_mapping_open(&b, scratch_path(&place, "copy.gguf"), NULL), SPRY_OK);
    assert_int_equal(a.size, b.size);
    assert_memory_equal(a.data, b.data, a.size);
    spry_mapping_close(&a);
    spry_mapping_close(&b);
    scratch_clear(&place);
}

/* ---- wrong use -------------------------------------------------------------------------------------------------- */

/* Expects _begin to report what was kept, and frees the writer. */
static void refused(spry_gguf_writer *w, spry_status expected, const char *words)
{
    spry_error error = {0};
    spry_status status = spry_gguf_writer_begin(w, scratch_path(&place, "bad.gguf"), &error);
    hostile_expect(status, &error, expected, "bad.gguf: ");
    hostile_expect(status, &error, expected, words);
    assert_int_equal(scratch_count(&place), 0);
    spry_gguf_writer_destroy(w);
}

static void kept_failures_are_told_at_the_beginning(void **state)
{
    (void)state;
    spry_gguf_writer *w = start();
    spry_gguf_writer_u32(w, "same", 1);
    spry_gguf_writer_bool(w, "same", true);
    spry_gguf_writer_u32(w, "", 1); /* only the first failure is told */
    refused(w, SPRY_ERR_INPUT, "metadata key 'same'|twice");
    w = start();
    spry_gguf_writer_u32(w, "", 1);
    refused(w, SPRY_ERR_INPUT, "metadata key is empty");
    w = start();
    spry_gguf_writer_u32(w, "general.alignment", 64);
    refused(w, SPRY_ERR_INPUT, "general.alignment|32");
    w = start();
    spry_gguf_writer_tensor(w, &row);
    spry_gguf_writer_tensor(w, &row);
    refused(w, SPRY_ERR_INPUT, "tensor 'row'|twice");
    w = start();
    spry_gguf_writer_f32s(w, "too long", (const float[]){0}, SIZE_MAX / 2);
    refused(w, SPRY_ERR_MEMORY, "metadata");
}

static void impossible_tensors_are_refused(void **state)
{
    (void)state;
    const size_t huge = (size_t)1 << 62;
    const spry_tensor wrong[] = {
        {.name = {"t", 1}, .type = SPRY_F32, .n_dims = 0, .dims = {1, 1, 1, 1}},
        {.name = {"t", 1}, .type = SPRY_F32, .n_dims = 5, .dims = {1, 1, 1, 1}},
        {.name = {"t", 1}, .type = SPRY_F32, .n_dims = 2, .dims = {4, 0, 1, 1}},
        {.name = {"t", 1}, .type = SPRY_Q4_0, .n_dims = 2, .dims = {32, 16, 1, 1}},
        {.name = {"t", 1}, .type = (spry_dtype)4, .n_dims = 1, .dims = {32, 1, 1, 1}},
        {.name = {"t", 1}, .type = SPRY_DTYPE_COUNT, .n_dims = 1, .dims = {32, 1, 1, 1}},
        {.name = {"t", 1}, .type = SPRY_F32, .n_dims = 1, .dims = {huge, 1, 1, 1}},
        {.name = {"t", 1}, .type = SPRY_F32, .n_dims = 2, .dims = {huge, huge, 1, 1}},
    };
    for (size_t i = 0; i < SPRY_COUNT(wrong); i++) {
        spry_gguf_writer *w = start();
        spry_gguf_writer_tensor(w, &wrong[i]);
        refused(w, SPRY_ERR_INPUT, "tensor 't'|type and a shape");
    }
    spry_gguf_writer *w = start(); /* each of 2^62 bytes is possible, four are not */
    static const char *const names[] = {"a", "b", "c", "d"};
    for (size_t i = 0; i < SPRY_COUNT(names); i++) {
        spry_tensor large = {
            .name = spry_view_of(names[i]), .type = SPRY_F32, .n_dims = 1, .dims = {huge / 4, 1, 1, 1}};
        spry_gguf_writer_tensor(w, &large);
    }
    refused(w, SPRY_ERR_INPUT, "with tensor 'd'|largest possible size");
}

static void data_must_be_what_was_listed(void **state)
{
    (void)state;
    static const unsigned char data[200];
    spry_error error = {0};
    spry_gguf_writer *w = start();
    spry_gguf_writer_tensor(w, &row);
    spry_status status = spry_gguf_writer_data(w, data, 1, &error);
    hostile_expect(status, &error, SPRY_ERR_INPUT, "no GGUF file is being written");
    status = spry_gguf_writer_finish(w, &error);
    hostile_expect(status, &error, SPRY_ERR_INPUT, "no GGUF file is being written");

    const char *path = scratch_path(&place, "f.gguf");
    assert_int_equal(spry_gguf_writer_begin(w, path, &error), SPRY_OK);
    status = spry_gguf_writer_begin(w, path, &error);
    hostile_expect(status, &error, SPRY_ERR_INPUT, "already writing");
    assert_int_equal(spry_gguf_writer_data(w, data, 16, &error), SPRY_OK);
    status = spry_gguf_writer_data(w, data, 5, &error);
    hostile_expect(status, &error, SPRY_ERR_INPUT, "f.gguf: tensor 'row' has 20 bytes|21 were given");
    assert_int_equal(scratch_count(&place), 0);

    assert_int_equal(spry_gguf_writer_begin(w, path, &error), SPRY_OK); /* a new start is allowed */
    assert_int_equal(spry_gguf_writer_data(w, data, 16, &error), SPRY_OK);
    status = spry_gguf_writer_finish(w, &error);
    hostile_expect(status, &error, SPRY_ERR_INPUT, "f.gguf: only 16 of the 20 bytes of tensor 'row'");
    assert_int_equal(scratch_count(&place), 0);

    assert_int_equal(spry_gguf_writer_begin(w, path, &error), SPRY_OK);
    assert_int_equal(spry_gguf_writer_data(w, data, 20, &error), SPRY_OK);
    status = spry_gguf_writer_data(w, data, 1, &error);
    hostile_expect(status, &error, SPRY_ERR_INPUT, "f.gguf: more data was given than the 1 tensors");
    assert_int_equal(scratch_count(&place), 0);

    assert_int_equal(spry_gguf_writer_begin(w, path, &error), SPRY_OK);
    assert_int_equal(spry_gguf_writer_data(w, data, 20, &error), SPRY_OK);
    spry_gguf_writer_u32(w, "late", 1);
    status = spry_gguf_writer_finish(w, &error);
    hostile_expect(status, &error, SPRY_ERR_INPUT, "f.gguf: |added after the file was begun");
    assert_int_equal(scratch_count(&place), 0);
    spry_gguf_writer_destroy(w);
}

static void an_unfinished_file_is_removed(void **state)
{
    (void)state;
    scratch_write(&place, "f.gguf", "old", 3);
    spry_gguf_writer *w = start();
    spry_gguf_writer_tensor(w, &row);
    assert_int_equal(spry_gguf_writer_begin(w, scratch_path(&place, "f.gguf"), NULL), SPRY_OK);
    assert_int_equal(scratch_count(&place), 2);
    spry_gguf_writer_destroy(w);
    spry_gguf_writer_destroy(NULL);
    assert_int_equal(scratch_count(&place), 1);
    spry_mapping mapping;
    assert_int_equal(spry_mapping_open(&mapping, scratch_path(&place, "f.gguf"), NULL), SPRY_OK);
    assert_int_equal(mapping.size, 3); /* the old one is untouched */
    spry_mapping_close(&mapping);
    scratch_clear(&place);
}

static void a_full_disk_leaves_nothing(void **state)
{
    (void)state;
    static const unsigned char data[1 << 16];
    const spry_tensor big = {.name = {"big", 3}, .type = SPRY_F16, .n_dims = 2, .dims = {1024, 1024, 1, 1}};
    spry_error error = {0};
    spry_gguf_writer *w = start();
    spry_gguf_writer_tensor(w, &big);
    assert_int_equal(spry_gguf_writer_begin(w, scratch_path(&place, "f.gguf"), NULL), SPRY_OK);
    scratch_limit_files(1 << 20);
    spry_status status = SPRY_OK;
    for (int i = 0; i < 32 && status == SPRY_OK; i++)
        status = spry_gguf_writer_data(w, data, sizeof data, &error);
    scratch_limit_files(RLIM_INFINITY);
    hostile_expect(status, &error, SPRY_ERR_FILE, "f.gguf: cannot write: File too large");
    assert_int_equal(scratch_count(&place), 0);
    status = spry_gguf_writer_finish(w, &error);
    hostile_expect(status, &error, SPRY_ERR_INPUT, "no GGUF file");
    spry_gguf_writer_destroy(w);

    w = start();
    status = spry_gguf_writer_begin(w, "/no/such/folder/f.gguf", &error);
    hostile_expect(status, &error, SPRY_ERR_FILE, "/no/such/folder/f.gguf: cannot create");
    spry_gguf_writer_destroy(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(metadata_is_read_back),
        cmocka_unit_test(tensors_are_read_back),
        cmocka_unit_test(entries_of_every_kind_are_copied),
        cmocka_unit_test(a_copied_model_is_the_same_file),
        cmocka_unit_test(kept_failures_are_told_at_the_beginning),
        cmocka_unit_test(impossible_tensors_are_refused),
        cmocka_unit_test(data_must_be_what_was_listed),
        cmocka_unit_test(an_unfinished_file_is_removed),
        cmocka_unit_test(a_full_disk_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, place_make, place_remove);
}
