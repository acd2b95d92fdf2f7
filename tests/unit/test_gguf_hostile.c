/* GGUF files that are wrong, each in one way: every one is refused with a sentence that names the file and the field.
 * Then valid files cut off and with bytes changed: whatever comes, the answer is clean and memory stays small. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "platform/file.h"
#include "support/gguf_bytes.h"
#include "support/hostile.h"

static const uint64_t row32[] = {32};

/* Opens exactly these bytes, expects the refusal, and frees the buffer. */
static void refused(spry_buffer *bytes, spry_status expected, const char *words)
{
    unsigned char *copy = hostile_copy(bytes->data, bytes->size);
    spry_gguf *gguf = NULL;
    spry_error error = {0};
    spry_status status = spry_gguf_open_memory(&gguf, copy, bytes->size, "bad.gguf", &error);
    hostile_expect(status, &error, expected, "bad.gguf: ");
    hostile_expect(status, &error, expected, words);
    assert_null(gguf);
    assert_int_equal(spry_gguf_open_memory(&gguf, copy, bytes->size, "bad.gguf", NULL), expected);
    free(copy);
    spry_buffer_deinit(bytes);
}

/* ---- the header ------------------------------------------------------------------------------------------------- */

static void what_is_not_gguf_is_refused(void **state)
{
    (void)state;
    spry_buffer b;
    spry_buffer_init(&b, 100);
    refused(&b, SPRY_ERR_FORMAT, "ends at byte 0|magic number|byte 0");
    gguf_bytes(&b, "GG", 2);
    refused(&b, SPRY_ERR_FORMAT, "ends at byte 2|magic number");
    gguf_bytes(&b, "ggml\1\0\0\0", 8);
    refused(&b, SPRY_ERR_FORMAT, "not a GGUF file|67 67 6d 6c");
    gguf_bytes(&b, "GGUF\3\0", 6);
    refused(&b, SPRY_ERR_FORMAT, "version|from byte 4");
    gguf_bytes(&b, "GGUF\3\0\0\0\1\0\0\0", 12);
    refused(&b, SPRY_ERR_FORMAT, "number of tensors|from byte 8");
}

static void other_versions_are_refused(void **state)
{
    (void)state;
    static const struct {
        uint32_t version;
        const char *words;
    } cases[] = {
        {0, "version 0|known are 2 and 3"},       {1, "version 1|known are 2 and 3"},
        {4, "version 4|known are 2 and 3"},       {0x03000000, "big-endian|little-endian"},
        {0x02000000, "big-endian|little-endian"},
    };
    for (size_t i = 0; i < SPRY_COUNT(cases); i++) {
        spry_buffer b;
        gguf_begin(&b, cases[i].version, 0, 0);
        refused(&b, SPRY_ERR_UNSUPPORTED, cases[i].words);
    }
}

static void counts_are_bounded_by_the_bytes_left(void **state)
{
    (void)state;
    static const uint64_t counts[] = {3, 1000, UINT32_MAX, (uint64_t)1 << 40, INT64_MAX, UINT64_MAX};
    for (size_t i = 0; i < SPRY_COUNT(counts); i++) {
        spry_buffer b;
        gguf_begin(&b, 3, counts[i], 0);
        gguf_zeros(&b, 98);
        refused(&b, SPRY_ERR_FORMAT, "claims|tensors|98 bytes left from byte 24");
        gguf_begin(&b, 3, 0, counts[i]);
        gguf_zeros(&b, 41);
        refused(&b, SPRY_ERR_FORMAT, "claims|metadata entries|41 bytes left from byte 24");
    }
}

/* ---- metadata --------------------------------------------------------------------------------------------------- */

static void metadata_entry(spry_buffer *b, const char *key, uint32_t kind)
{
    gguf_begin(b, 3, 0, 1);
    gguf_key(b, key, kind);
}

static void string_lengths_are_checked(void **state)
{
    (void)state;
    static const uint64_t lengths[] = {100, INT64_MAX, UINT64_MAX};
    for (size_t i = 0; i < SPRY_COUNT(lengths); i++) {
        spry_buffer b;
        gguf_begin(&b, 3, 0, 1);
        gguf_u64(&b, lengths[i]);
        gguf_zeros(&b, 20);
        refused(&b, SPRY_ERR_FORMAT, "metadata entry 0|key|from byte 32");
        metadata_entry(&b, "general.name", SPRY_GGUF_STRING);
        gguf_u64(&b, lengths[i]);
        gguf_zeros(&b, 20);
        refused(&b, SPRY_ERR_FORMAT, "metadata entry 'general.name'|string|from byte 56");
        metadata_entry(&b, "words", SPRY_GGUF_ARRAY);
        gguf_array(&b, SPRY_GGUF_STRING, 2);
        gguf_string(&b, "x");
        gguf_u64(&b, lengths[i]);
        gguf_zeros(&b, 20);
        refused(&b, SPRY_ERR_FORMAT, "metadata entry 'words'|string|ends at byte");
    }
}

static void kinds_and_bools_are_checked(void **state)
{
    (void)state;
    spry_buffer b;
    metadata_entry(&b, "x", 13);
    gguf_zeros(&b, 8);
    refused(&b, SPRY_ERR_FORMAT, "'x'|unknown kind 13");
    metadata_entry(&b, "x", UINT32_MAX);
    gguf_zeros(&b, 8);
    refused(&b, SPRY_ERR_FORMAT, "'x'|unknown kind 4294967295");
    metadata_entry(&b, "x", SPRY_GGUF_ARRAY);
    gguf_array(&b, 99, 1);
    gguf_zeros(&b, 8);
    refused(&b, SPRY_ERR_FORMAT, "'x'|array|unknown kind 99");
    metadata_entry(&b, "x", SPRY_GGUF_BOOL);
    gguf_bytes(&b, "\2", 1);
    refused(&b, SPRY_ERR_FORMAT, "'x'|bool is 0 or 1, not 2");
    metadata_entry(&b, "x", SPRY_GGUF_ARRAY);
    gguf_array(&b, SPRY_GGUF_BOOL, 3);
    gguf_bytes(&b, "\1\0\xff", 3);
    refused(&b, SPRY_ERR_FORMAT, "'x'|bool is 0 or 1, not 255");
    metadata_entry(&b, "abcd", SPRY_GGUF_U64);
    gguf_zeros(&b, 7);
    refused(&b, SPRY_ERR_FORMAT, "'abcd'|value|8 bytes from byte 40|ends at byte 47");
}

static void array_counts_are_checked(void **state)
{
    (void)state;
    static const uint32_t kinds[] = {SPRY_GGUF_U8, SPRY_GGUF_BOOL, SPRY_GGUF_F64, SPRY_GGUF_STRING, SPRY_GGUF_ARRAY};
    static const uint64_t counts[] = {65, (uint64_t)1 << 61, UINT64_MAX};
    for (size_t i = 0; i < SPRY_COUNT(kinds); i++)
        for (size_t k = 0; k < SPRY_COUNT(counts); k++) {
            spry_buffer b;
            metadata_entry(&b, "list", SPRY_GGUF_ARRAY);
            gguf_array(&b, kinds[i], counts[k]);
            gguf_zeros(&b, 64);
            refused(&b, SPRY_ERR_FORMAT, "'list'|claims|array elements|64 bytes left");
        }
}

static void deep_arrays_are_refused(void **state)
{
    (void)state;
    static const int around[] = {4, 5, 100000}; /* four is the first that is too many */
    for (size_t i = 0; i < SPRY_COUNT(around); i++) {
        spry_buffer b;
        metadata_entry(&b, "deep", SPRY_GGUF_ARRAY);
        for (int k = 0; k < around[i]; k++)
            gguf_array(&b, SPRY_GGUF_ARRAY, 1);
        gguf_array(&b, SPRY_GGUF_U8, 0);
        refused(&b, SPRY_ERR_FORMAT, "'deep'|deeper than 4");
    }
}

static void keys_are_there_and_unique(void **state)
{
    (void)state;
    spry_buffer b;
    metadata_entry(&b, "", SPRY_GGUF_U8);
    gguf_zeros(&b, 9);
    refused(&b, SPRY_ERR_FORMAT, "metadata entry 0|key is empty");
    gguf_begin(&b, 3, 0, 3);
    for (int i = 0; i < 3; i++) {
        gguf_key(&b, i == 1 ? "other" : "same", SPRY_GGUF_U8);
        gguf_zeros(&b, 1);
    }
    refused(&b, SPRY_ERR_FORMAT, "metadata entry 'same'|occurs twice");
}

static void names_cannot_spoil_the_sentence(void **state)
{
    (void)state;
    spry_buffer b;
    metadata_entry(&b, "a\nb\x1b[31m\xff\xc3\xa9", 77);
    gguf_zeros(&b, 8);
    refused(&b, SPRY_ERR_FORMAT, "'a?b?[31m?\xc3\xa9'|kind 77");
    char name[5000];
    memset(name, 'n', sizeof name);
    name[sizeof name - 1] = 0;
    metadata_entry(&b, name, 77);
    gguf_zeros(&b, 8);
    refused(&b, SPRY_ERR_FORMAT, "nnn|kind 77");
}

static void alignment_is_checked(void **state)
{
    (void)state;
    static const uint32_t alignments[] = {0, 1, 4, 33, 48, 1 << 21, UINT32_MAX};
    for (size_t i = 0; i < SPRY_COUNT(alignments); i++) {
        spry_buffer b;
        metadata_entry(&b, "general.alignment", SPRY_GGUF_U32);
        gguf_u32(&b, alignments[i]);
        refused(&b, SPRY_ERR_FORMAT, "'general.alignment'|power of two between 8 and 1048576");
    }
    spry_buffer b;
    metadata_entry(&b, "general.alignment", SPRY_GGUF_STRING);
    gguf_string(&b, "32");
    refused(&b, SPRY_ERR_FORMAT, "'general.alignment'|positive integer");
}

/* ---- tensors ---------------------------------------------------------------------------------------------------- */

/* A file of one tensor with 4096 bytes of data after it. */
static void one_tensor(spry_buffer *b, uint32_t n_dims, const uint64_t *dims, uint32_t type, uint64_t offset)
{
    gguf_begin(b, 3, 1, 0);
    gguf_tensor(b, "w", n_dims, dims, type, offset);
    gguf_pad(b, 32);
    gguf_zeros(b, 4096);
}

static void dimensions_are_checked(void **state)
{
    (void)state;
    static const uint64_t many[] = {1, 1, 1, 1, 1}, zero[] = {4, 0}, huge[] = {UINT64_MAX, 2},
                          wrap[] = {(uint64_t)1 << 32, (uint64_t)1 << 32}, bytes_wrap[] = {(uint64_t)1 << 62},
                          four[] = {(uint64_t)1 << 16, (uint64_t)1 << 16, (uint64_t)1 << 16, (uint64_t)1 << 16};
    spry_buffer b;
    one_tensor(&b, 0, row32, SPRY_F32, 0);
    refused(&b, SPRY_ERR_FORMAT, "tensor 'w'|has 0 dimensions|1 to 4");
    one_tensor(&b, 5, many, SPRY_F32, 0);
    refused(&b, SPRY_ERR_FORMAT, "tensor 'w'|has 5 dimensions|1 to 4");
    one_tensor(&b, 2, zero, SPRY_F32, 0);
    refused(&b, SPRY_ERR_FORMAT, "tensor 'w'|dimension 1 is 0");
    one_tensor(&b, 2, huge, SPRY_F32, 0);
    refused(&b, SPRY_ERR_FORMAT, "tensor 'w'|more than any memory");
    one_tensor(&b, 2, wrap, SPRY_F32, 0);
    refused(&b, SPRY_ERR_FORMAT, "tensor 'w'|more than any memory");
    one_tensor(&b, 4, four, SPRY_F32, 0);
    refused(&b, SPRY_ERR_FORMAT, "tensor 'w'|more than any memory");
    one_tensor(&b, 1, bytes_wrap, SPRY_F32, 0);
    refused(&b, SPRY_ERR_FORMAT, "tensor 'w'|type F32|more than any memory");
}

static void types_and_rows_are_checked(void **state)
{
    (void)state;
    static const uint64_t square[] = {16, 16}, k_row[] = {128, 2};
    static const uint32_t unknown[] = {4, 5, 9, 43, 1000, UINT32_MAX};
    spry_buffer b;
    for (size_t i = 0; i < SPRY_COUNT(unknown); i++) {
        char words[300];
        snprintf(words, sizeof words, "tensor 'w'|type id %u|known are %s", unknown[i], spry_dtype_names());
        one_tensor(&b, 1, row32, unknown[i], 0);
        refused(&b, SPRY_ERR_UNSUPPORTED, words);
    }
    one_tensor(&b, 2, square, SPRY_Q4_0, 0); /* 256 values, but a row is half a block */
    refused(&b, SPRY_ERR_FORMAT, "tensor 'w'|row of 16|Q4_0 blocks of 32");
    one_tensor(&b, 2, k_row, SPRY_Q6_K, 0);
    refused(&b, SPRY_ERR_FORMAT, "tensor 'w'|row of 128|Q6_K blocks of 256");
}

static void offsets_are_checked(void **state)
{
    (void)state;
    spry_buffer b;
    one_tensor(&b, 1, row32, SPRY_F32, 16);
    refused(&b, SPRY_ERR_FORMAT, "tensor 'w'|offset 16|multiple of the alignment 32");
    one_tensor(&b, 1, row32, SPRY_F32, 4000);
    refused(&b, SPRY_ERR_FORMAT, "tensor 'w': offset 4000 + size 128 passes the end of the file (4160 bytes");
    one_tensor(&b, 1, row32, SPRY_F32, UINT64_MAX - 31);
    refused(&b, SPRY_ERR_FORMAT, "tensor 'w'|offset 18446744073709551584 + size 128|passes the end");
    gguf_begin(&b, 3, 1, 0);
    gguf_tensor(&b, "w", 1, row32, SPRY_F32, 0); /* and then nothing, not even padding */
    refused(&b, SPRY_ERR_FORMAT, "tensor 'w'|offset 0 + size 128|passes the end|(57 bytes");
}

static void tensor_names_are_there_and_unique(void **state)
{
    (void)state;
    spry_buffer b;
    gguf_begin(&b, 3, 1, 0);
    gguf_tensor(&b, "", 1, row32, SPRY_F32, 0);
    gguf_zeros(&b, 200);
    refused(&b, SPRY_ERR_FORMAT, "tensor 0|name is empty");
    gguf_begin(&b, 3, 2, 0);
    gguf_tensor(&b, "w", 1, row32, SPRY_F32, 0);
    gguf_tensor(&b, "w", 1, row32, SPRY_F32, 128);
    gguf_zeros(&b, 400);
    refused(&b, SPRY_ERR_FORMAT, "tensor 'w'|name occurs twice");
    gguf_begin(&b, 3, 2, 0);
    gguf_tensor(&b, "first", 1, row32, SPRY_F32, 0);
    gguf_string(&b, "second, cut off");
    gguf_u32(&b, 1);
    gguf_u32(&b, 32);
    refused(&b, SPRY_ERR_FORMAT, "tensor 'second, cut off'|inside the dimensions");
}

static void overlaps_are_found(void **state)
{
    (void)state;
    static const struct {
        uint64_t offsets[3];
        bool fine;
    } cases[] = {
        {{0, 128, 256}, true}, {{256, 0, 128}, true},  {{512, 0, 1024}, true},
        {{0, 96, 256}, false}, {{256, 0, 224}, false}, {{0, 0, 256}, false},
    };
    for (size_t i = 0; i < SPRY_COUNT(cases); i++) {
        spry_buffer b;
        gguf_begin(&b, 3, 3, 0);
        gguf_tensor(&b, "a", 1, row32, SPRY_F32, cases[i].offsets[0]);
        gguf_tensor(&b, "b", 1, row32, SPRY_F32, cases[i].offsets[1]);
        gguf_tensor(&b, "c", 1, row32, SPRY_F32, cases[i].offsets[2]);
        gguf_pad(&b, 32);
        gguf_zeros(&b, 2048);
        if (!cases[i].fine) {
            refused(&b, SPRY_ERR_FORMAT, "tensor '|overlap the bytes of tensor '");
            continue;
        }
        spry_gguf *gguf;
        assert_int_equal(spry_gguf_open_memory(&gguf, b.data, b.size, "good.gguf", NULL), SPRY_OK);
        spry_gguf_close(gguf);
        spry_buffer_deinit(&b);
    }
}

/* ---- paths ------------------------------------------------------------------------------------------------------ */

static void paths_that_are_no_files_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *path, *words;
    } cases[] = {
        {TEST_DATA, TEST_DATA ": |is a folder"},
        {TEST_DATA "/no-such.gguf", "no-such.gguf|cannot open|No such file"},
        {"/dev/null", "/dev/null|not a regular file"},
    };
    for (size_t i = 0; i < SPRY_COUNT(cases); i++) {
        spry_gguf *gguf;
        spry_error error = {0};
        spry_status status = spry_gguf_open(&gguf, cases[i].path, &error);
        hostile_expect(status, &error, SPRY_ERR_FILE, cases[i].words);
        assert_null(gguf);
    }
    spry_gguf *gguf;
    spry_error error = {0};
    spry_status status = spry_gguf_open(&gguf, TEST_DATA "/models/llama/config.json", &error);
    hostile_expect(status, &error, SPRY_ERR_FORMAT, "llama/config.json|not a GGUF file");
}

static void the_public_bad_file_is_refused(void **state)
{
    (void)state;
    if (!spry_path_exists(PUBLIC_DATA)) {
        printf("SKIPPED the_public_bad_file_is_refused: ../shared/public is not there\n");
        return;
    }
    spry_gguf *gguf;
    spry_error error = {0};
    spry_status status = spry_gguf_open(&gguf, PUBLIC_DATA "/badinput/malformed_weights/tiny.gguf", &error);
    hostile_expect(status, &error, SPRY_ERR_FORMAT,
                   "tiny.gguf: tensor 'test.weight.0': offset 0 + size 32768 passes the end of the file (122 bytes");
}

/* ---- damage ----------------------------------------------------------------------------------------------------- */

/* A small file with something of everything, for damage where it hurts. */
static void sample(spry_buffer *b)
{
    static const uint64_t matrix[] = {64, 4}, cube[] = {8, 2, 3};
    gguf_begin(b, 3, 3, 7);
    gguf_key(b, "general.architecture", SPRY_GGUF_STRING);
    gguf_string(b, "llama");
    gguf_key(b, "general.alignment", SPRY_GGUF_U32);
    gguf_u32(b, 32);
    gguf_key(b, "flag", SPRY_GGUF_BOOL);
    gguf_bytes(b, "\1", 1);
    gguf_key(b, "real", SPRY_GGUF_F64);
    gguf_zeros(b, 8);
    gguf_key(b, "words", SPRY_GGUF_ARRAY);
    gguf_array(b, SPRY_GGUF_STRING, 3);
    gguf_string(b, "one");
    gguf_string(b, "two");
    gguf_string(b, "three");
    gguf_key(b, "ids", SPRY_GGUF_ARRAY);
    gguf_array(b, SPRY_GGUF_I32, 4);
    gguf_zeros(b, 16);
    gguf_key(b, "nested", SPRY_GGUF_ARRAY);
    gguf_array(b, SPRY_GGUF_ARRAY, 1);
    gguf_array(b, SPRY_GGUF_BOOL, 2);
    gguf_bytes(b, "\0\1", 2);
    gguf_tensor(b, "blk.0.a", 2, matrix, SPRY_Q8_0, 0);
    gguf_tensor(b, "blk.0.b", 3, cube, SPRY_F16, 288);
    gguf_tensor(b, "blk.0.c", 1, row32, SPRY_F32, 384);
    gguf_pad(b, 32);
    gguf_zeros(b, 384 + 128);
}

static void load(spry_buffer *b, const char *path)
{
    spry_buffer_init(b, GGUF_BYTES_MAX);
    assert_int_equal(spry_file_read(b, path, NULL), SPRY_OK);
}

/* Where the tensor data of a valid file begins. */
static size_t head_size(const spry_buffer *b)
{
    spry_gguf *gguf;
    assert_int_equal(spry_gguf_open_memory(&gguf, b->data, b->size, "whole", NULL), SPRY_OK);
    size_t size = b->size;
    for (size_t i = 0; i < spry_gguf_tensor_count(gguf); i++) {
        size_t at = (size_t)(spry_gguf_tensor(gguf, i)->data - (const unsigned char *)b->data);
        size = at < size ? at : size;
    }
    spry_gguf_close(gguf);
    return size;
}

static void expect_cut_refused(const spry_buffer *b, size_t size)
{
    unsigned char *cut = hostile_copy(b->data, size);
    spry_gguf *gguf;
    spry_error error = {0};
    spry_status status = spry_gguf_open_memory(&gguf, cut, size, "cut.gguf", &error);
    hostile_expect(status, &error, SPRY_ERR_FORMAT, "cut.gguf: |byte");
    assert_null(gguf);
    free(cut);
}

static void every_cut_is_refused(void **state)
{
    (void)state;
    spry_buffer b;
    sample(&b);
    for (size_t size = 0; size < b.size; size++)
        expect_cut_refused(&b, size);
    spry_buffer_deinit(&b);

    load(&b, TEST_DATA "/models/llama/model-f32.gguf");
    size_t head = head_size(&b);
    for (size_t i = 0; i < 200; i++)
        expect_cut_refused(&b, head * i / 200);
    for (size_t i = 0; i < 20; i++)
        expect_cut_refused(&b, head + (b.size - head) * i / 20);
    expect_cut_refused(&b, b.size - 1);
    spry_buffer_deinit(&b);
}

/* Opens damaged bytes: fine or a clean refusal, but never for want of memory. Returns whether it opened. */
static bool survives(const unsigned char *data, size_t size)
{
    spry_gguf *gguf;
    spry_error error = {0};
    spry_status status = spry_gguf_open_memory(&gguf, data, size, "damaged.gguf", &error);
    if (status == SPRY_OK) {
        gguf_walk(gguf);
        spry_gguf_close(gguf);
        return true;
    }
    assert_true(status == SPRY_ERR_FORMAT || status == SPRY_ERR_UNSUPPORTED);
    hostile_expect(status, &error, status, "damaged.gguf: ");
    return false;
}

static void flip_bytes(spry_buffer *b, size_t head, size_t rounds, uint64_t seed)
{
    size_t opened = 0;
    unsigned char *data = hostile_copy(b->data, b->size);
    for (size_t i = 0; i < rounds; i++) {
        size_t places[4], n_places = 1 + hostile_random(&seed) % 4;
        unsigned char before[4];
        for (size_t k = 0; k < n_places; k++) {
            places[k] = (size_t)(hostile_random(&seed) % head);
            before[k] = data[places[k]];
            data[places[k]] = (unsigned char)hostile_random(&seed);
        }
        opened += survives(data, b->size);
        for (size_t k = n_places; k-- > 0;)
            data[places[k]] = before[k];
    }
    assert_memory_equal(data, b->data, b->size);
    assert_true(opened < rounds); /* some damage must be seen */
    free(data);
}

static void flipped_bytes_are_survived(void **state)
{
    (void)state;
    spry_buffer b;
    sample(&b);
    flip_bytes(&b, head_size(&b), 2000, 1);
    spry_buffer_deinit(&b);
    load(&b, TEST_DATA "/models/llama/model-f32.gguf");
    flip_bytes(&b, head_size(&b), 2000, 2);
    spry_buffer_deinit(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_not_gguf_is_refused),
        cmocka_unit_test(other_versions_are_refused),
        cmocka_unit_test(counts_are_bounded_by_the_bytes_left),
        cmocka_unit_test(string_lengths_are_checked),
        cmocka_unit_test(kinds_and_bools_are_checked),
        cmocka_unit_test(array_counts_are_checked),
        cmocka_unit_test(deep_arrays_are_refused),
        cmocka_unit_test(keys_are_there_and_unique),
        cmocka_unit_test(names_cannot_spoil_the_sentence),
        cmocka_unit_test(alignment_is_checked),
        cmocka_unit_test(dimensions_are_checked),
        cmocka_unit_test(types_and_rows_are_checked),
        cmocka_unit_test(offsets_are_checked),
        cmocka_unit_test(tensor_names_are_there_and_unique),
        cmocka_unit_test(overlaps_are_found),
        cmocka_unit_test(paths_that_are_no_files_are_refused),
        cmocka_unit_test(the_public_bad_file_is_refused),
        cmocka_unit_test(every_cut_is_refused),
        cmocka_unit_test(flipped_bytes_are_survived),
    };
    hostile_limit_memory();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
