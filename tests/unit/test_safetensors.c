/* Reading safetensors: the fixtures and their values against the GGUF files made of them, folders and shards, and files
 * that are wrong in one way, cut off, or with bytes changed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "base/buffer.h"
#include "formats/gguf.h"
#include "formats/safetensors.h"
#include "platform/file.h"
#include "support/hostile.h"
#include "support/place.h"

/* A file: length, header, then `data_bytes` bytes that count 0, 1, 2... */
static void make(spry_buffer *out, const char *header, size_t data_bytes)
{
    uint64_t length = strlen(header);
    spry_buffer_init(out, 1 << 24);
    assert_true(spry_buffer_append(out, &length, sizeof length));
    assert_true(spry_buffer_text(out, header));
    unsigned char *data = spry_buffer_extend(out, data_bytes);
    assert_non_null(data);
    for (size_t i = 0; i < data_bytes; i++)
        data[i] = (unsigned char)i;
}

static void put(const char *name, const char *header, size_t data_bytes)
{
    spry_buffer bytes;
    make(&bytes, header, data_bytes);
    scratch_write(&place, name, bytes.data, bytes.size);
    spry_buffer_deinit(&bytes);
}

static spry_safetensors *open_path(const char *path)
{
    spry_safetensors *files = NULL;
    spry_error error;
    if (spry_safetensors_open(&files, path, &error) != SPRY_OK)
        fail_msg("%s", error.message);
    return files;
}

static size_t file_bytes(const char *path)
{
    spry_mapping mapping;
    assert_int_equal(spry_mapping_open(&mapping, path, NULL), SPRY_OK);
    size_t size = mapping.size;
    spry_mapping_close(&mapping);
    return size;
}

static uint64_t walk(const spry_safetensors *files)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < spry_safetensors_count(files); i++) {
        const spry_tensor *tensor = spry_safetensors_tensor(files, i);
        assert_ptr_equal(spry_safetensors_find(files, tensor->name), tensor);
        assert_true(tensor->bytes > 0);
        sum += (uint64_t)tensor->data[0] + tensor->data[tensor->bytes - 1];
    }
    return sum;
}

/* ---- files that are right --------------------------------------------------------------------------------------- */

static void a_made_file_is_read(void **state)
{
    (void)state;
    put("a.safetensors",
        "{\"__metadata__\":{\"format\":\"pt\"},"
        "\"cube\":{\"dtype\":\"BF16\",\"shape\":[1,2,3,4],\"data_offsets\":[20,68]},"
        "\"scalar\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[16,20]},"
        "\"position_ids\":{\"dtype\":\"I64\",\"shape\":[1,2],\"data_offsets\":[0,16]},"
        "\"none\":{\"dtype\":\"U8\",\"shape\":[0,5],\"data_offsets\":[16,16]},"
        "\"mask\":{\"dtype\":\"BOOL\",\"shape\":[1,1,1,1,2],\"data_offsets\":[68,70]},"
        "\"line\":{\"dtype\":\"F16\",\"shape\":[3],\"data_offsets\":[70,76]}}   ",
        76);
    spry_safetensors *files = open_path(place.path);
    assert_int_equal(spry_safetensors_count(files), 3); /* not the integers and the bools */
    assert_null(spry_safetensors_find(files, SPRY_VIEW("position_ids")));
    assert_null(spry_safetensors_tensor(files, 3));
    const spry_tensor *t = spry_safetensors_find(files, SPRY_VIEW("cube"));
    assert_true(t && t->type == SPRY_BF16 && t->n_dims == 4 && t->bytes == 48);
    assert_true(t->dims[0] == 1 && t->dims[1] == 2 && t->dims[2] == 3 && t->dims[3] == 4);
    assert_int_equal(t->data[0], 20);
    assert_int_equal(t->offset + 76 - 20, file_bytes(place.path));
    t = spry_safetensors_find(files, SPRY_VIEW("scalar"));
    assert_true(t && t->type == SPRY_F32 && t->n_dims == 1 && t->dims[0] == 1 && t->data[0] == 16);
    t = spry_safetensors_find(files, SPRY_VIEW("line"));
    assert_true(t && t->type == SPRY_F16 && t->dims[0] == 3 && t->data[5] == 75);
    spry_safetensors_close(files);
    scratch_clear(&place);
}

static void the_fixtures_are_read(void **state)
{
    (void)state;
    static const struct {
        const char *folder;
        size_t tensors;
        spry_dtype type;
    } models[] = {
        {"llama", 30, SPRY_F32},       {"llama-256", 21, SPRY_F32}, {"gemma", 29, SPRY_F16},
        {"gemma2", 35, SPRY_F32},      {"gemma3", 93, SPRY_BF16},   {"llama3-rope", 29, SPRY_BF16},
        {"mistral-swa", 30, SPRY_F16}, {"mixtral", 60, SPRY_F32},   {"phi3", 21, SPRY_F16},
        {"qwen2-moe", 99, SPRY_F16},   {"qwen2", 38, SPRY_BF16},    {"qwen3-moe", 102, SPRY_BF16},
        {"qwen3", 35, SPRY_F32},
    };
    for (size_t i = 0; i < SPRY_COUNT(models); i++) {
        char path[1024];
        snprintf(path, sizeof path, "%s/models/%s", TEST_DATA, models[i].folder);
        spry_safetensors *files = open_path(path);
        assert_int_equal(spry_safetensors_count(files), models[i].tensors);
        assert_int_equal(spry_safetensors_tensor(files, 0)->type, models[i].type);
        const spry_tensor *t = spry_safetensors_find(files, SPRY_VIEW("model.embed_tokens.weight"));
        assert_true(t && t->n_dims == 2 && t->dims[0] == 512);
        walk(files);
        spry_safetensors_close(files);
    }
}

/* The two names of one tensor; the GGUF name has no layer in it when the other has none. */
static const struct {
    const char *gguf, *hf;
    bool rotated; /* rows are permuted in GGUF files of the llama architecture */
} pairs[] = {
    {"blk.%d.attn_norm.weight", "model.layers.%d.input_layernorm.weight", false},
    {"blk.%d.ffn_norm.weight", "model.layers.%d.post_attention_layernorm.weight", false},
    {"blk.%d.ffn_down.weight", "model.layers.%d.mlp.down_proj.weight", false},
    {"blk.%d.ffn_gate.weight", "model.layers.%d.mlp.gate_proj.weight", false},
    {"blk.%d.ffn_up.weight", "model.layers.%d.mlp.up_proj.weight", false},
    {"blk.%d.attn_output.weight", "model.layers.%d.self_attn.o_proj.weight", false},
    {"blk.%d.attn_v.weight", "model.layers.%d.self_attn.v_proj.weight", false},
    {"blk.%d.attn_q.weight", "model.layers.%d.self_attn.q_proj.weight", true},
    {"blk.%d.attn_k.weight", "model.layers.%d.self_attn.k_proj.weight", true},
};

static void compare(const spry_tensor *a, const spry_tensor *b, size_t permuted_head)
{
    assert_true(a && b && a->n_dims == b->n_dims && a->bytes == b->bytes);
    assert_memory_equal(a->dims, b->dims, sizeof a->dims);
    if (!permuted_head) {
        assert_memory_equal(a->data, b->data, a->bytes);
        return;
    }
    size_t row_bytes = a->bytes / a->dims[0], half = permuted_head / 2;
    for (size_t row = 0; row < a->dims[0]; row++) {
        size_t head = row / permuted_head, in_head = row % permuted_head;
        size_t other = head * permuted_head + in_head % 2 * half + in_head / 2;
        assert_memory_equal(a->data + row * row_bytes, b->data + other * row_bytes, row_bytes);
    }
}

static void compare_models(const char *folder, int layers, size_t permuted_head)
{
    char path[1024], gguf_name[100], hf_name[100];
    snprintf(path, sizeof path, "%s/models/%s/model-f32.gguf", TEST_DATA, folder);
    spry_gguf *gguf;
    assert_int_equal(spry_gguf_open(&gguf, path, NULL), SPRY_OK);
    snprintf(path, sizeof path, "%s/models/%s/model.safetensors", TEST_DATA, folder);
    spry_safetensors *files = open_path(path);
    assert_int_equal(spry_gguf_tensor_count(gguf), spry_safetensors_count(files));
    for (int layer = 0; layer < layers; layer++)
        for (size_t i = 0; i < SPRY_COUNT(pairs); i++) {
            snprintf(gguf_name, sizeof gguf_name, pairs[i].gguf, layer);
            snprintf(hf_name, sizeof hf_name, pairs[i].hf, layer);
            compare(spry_gguf_find_tensor(gguf, spry_view_of(gguf_name)),
                    spry_safetensors_find(files, spry_view_of(hf_name)), pairs[i].rotated ? permuted_head : 0);
        }
    compare(spry_gguf_find_tensor(gguf, SPRY_VIEW("token_embd.weight")),
            spry_safetensors_find(files, SPRY_VIEW("model.embed_tokens.weight")), 0);
    compare(spry_gguf_find_tensor(gguf, SPRY_VIEW("output_norm.weight")),
            spry_safetensors_find(files, SPRY_VIEW("model.norm.weight")), 0);
    spry_safetensors_close(files);
    spry_gguf_close(gguf);
}

static void values_agree_with_gguf(void **state)
{
    (void)state;
    compare_models("llama", 3, 16);
    compare_models("qwen3", 3, 0);
}

static void bf16_values_agree_with_gguf(void **state)
{
    (void)state;
    spry_gguf *gguf;
    assert_int_equal(spry_gguf_open(&gguf, TEST_DATA "/models/gemma3/model-f32.gguf", NULL), SPRY_OK);
    spry_safetensors *files = open_path(TEST_DATA "/models/gemma3");
    const spry_tensor *wide = spry_gguf_find_tensor(gguf, SPRY_VIEW("token_embd.weight"));
    const spry_tensor *narrow = spry_safetensors_find(files, SPRY_VIEW("model.embed_tokens.weight"));
    assert_true(wide && narrow && wide->bytes == 2 * narrow->bytes);
    for (size_t i = 0; i < narrow->bytes / 2; i++) { /* BF16 is the upper half of F32 */
        assert_memory_equal(wide->data + 4 * i, "\0\0", 2);
        assert_memory_equal(wide->data + 4 * i + 2, narrow->data + 2 * i, 2);
    }
    spry_safetensors_close(files);
    spry_gguf_close(gguf);
}

/* ---- files that are wrong --------------------------------------------------------------------------------------- */

static void refused_bytes(const void *data, size_t size, spry_status expected, const char *words)
{
    unsigned char *copy = hostile_copy(data, size);
    spry_safetensors *files = NULL;
    spry_error error = {0};
    spry_status status = spry_safetensors_open_memory(&files, copy, size, "bad.safetensors", &error);
    hostile_expect(status, &error, expected, "bad.safetensors: ");
    hostile_expect(status, &error, expected, words);
    assert_null(files);
    free(copy);
}

static void header_lengths_are_checked(void **state)
{
    (void)state;
    refused_bytes("", 0, SPRY_ERR_FORMAT, "ends at byte 0|header's length");
    refused_bytes("\2\0\0\0\0\0\0", 7, SPRY_ERR_FORMAT, "ends at byte 7|header's length");
    refused_bytes("\0\0\0\0\0\0\0\0", 8, SPRY_ERR_FORMAT, "header: not valid JSON");
    refused_bytes("\3\0\0\0\0\0\0\0{}", 10, SPRY_ERR_FORMAT, "header of 3 bytes|ends at byte 10");
    refused_bytes("\xff\xff\xff\xff\xff\xff\xff\xff{}", 10, SPRY_ERR_FORMAT,
                  "header of 18446744073709551615 bytes|100000000 are possible");
    refused_bytes("\0\0\0\0\1\0\0\0{}", 10, SPRY_ERR_FORMAT, "header of 4294967296 bytes");
}

#define T(rest) "{\"w\":{" rest "}}"
static const struct {
    const char *header;
    size_t data_bytes;
    spry_status status;
    const char *words;
} wrong_headers[] = {
    {"[]", 0, SPRY_ERR_FORMAT, "not a JSON object"},
    {"nonsense", 0, SPRY_ERR_FORMAT, "not valid JSON at line 1, column 1"},
    {"{} x", 0, SPRY_ERR_FORMAT, "not valid JSON"},
    {"{\"w\":", 0, SPRY_ERR_FORMAT, "not valid JSON"},
    {"{\"w\xff\":1}", 0, SPRY_ERR_FORMAT, "not valid JSON"},
    {"{\"w\":1,\"w\":1}", 0, SPRY_ERR_FORMAT, "not valid JSON|duplicate"},
    {"{\"__metadata__\":3}", 0, SPRY_ERR_FORMAT, "__metadata__"},
    {"{\"__metadata__\":{\"a\":1}}", 0, SPRY_ERR_FORMAT, "__metadata__|strings"},
    {"{}", 5, SPRY_ERR_FORMAT, "last 5 bytes belong to no tensor"},
    {"{\"w\":7}", 0, SPRY_ERR_FORMAT, "tensor 'w'|no dtype"},
    {T("\"dtype\":4,\"shape\":[1],\"data_offsets\":[0,4]"), 4, SPRY_ERR_FORMAT, "tensor 'w'|no dtype"},
    {T("\"dtype\":\"F8_E5M2\",\"shape\":[4],\"data_offsets\":[0,4]"), 4, SPRY_ERR_UNSUPPORTED,
     "tensor 'w'|has type F8_E5M2; known are F32, F16, BF16, F8_E4M3"},
    {T("\"dtype\":\"F64\",\"shape\":[1],\"data_offsets\":[0,8]"), 8, SPRY_ERR_UNSUPPORTED, "tensor 'w'|type F64"},
    {T("\"dtype\":\"f32\",\"shape\":[1],\"data_offsets\":[0,4]"), 4, SPRY_ERR_UNSUPPORTED, "tensor 'w'|type f32"},
    {T("\"dtype\":\"F32\",\"data_offsets\":[0,4]"), 4, SPRY_ERR_FORMAT, "tensor 'w'|shape is not a list"},
    {T("\"dtype\":\"F32\",\"shape\":{},\"data_offsets\":[0,4]"), 4, SPRY_ERR_FORMAT, "shape is not a list"},
    {T("\"dtype\":\"F32\",\"shape\":[1,-1],\"data_offsets\":[0,4]"), 4, SPRY_ERR_FORMAT, "dimension 1|natural"},
    {T("\"dtype\":\"F32\",\"shape\":[1.0],\"data_offsets\":[0,4]"), 4, SPRY_ERR_FORMAT, "dimension 0|natural"},
    {T("\"dtype\":\"F32\",\"shape\":[\"1\"],\"data_offsets\":[0,4]"), 4, SPRY_ERR_FORMAT, "dimension 0|natural"},
    {T("\"dtype\":\"F32\",\"shape\":[3,0],\"data_offsets\":[0,0]"), 0, SPRY_ERR_FORMAT, "dimension 1 is 0"},
    {T("\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1],\"data_offsets\":[0,4]"), 4, SPRY_ERR_UNSUPPORTED,
     "tensor 'w'|6 dimensions|up to 5"},
    {T("\"dtype\":\"F32\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,4]"), 4, SPRY_ERR_FORMAT,
     "more than any memory"},
    {T("\"dtype\":\"F32\",\"shape\":[4611686018427387904],\"data_offsets\":[0,0]"), 0, SPRY_ERR_FORMAT,
     "do not take the 0 bytes"},
    {T("\"dtype\":\"F32\",\"shape\":[99999999999999999999],\"data_offsets\":[0,0]"), 0, SPRY_ERR_FORMAT,
     "dimension 0 is not a natural number"},
    {T("\"dtype\":\"F32\",\"shape\":[1]"), 4, SPRY_ERR_FORMAT, "data_offsets are not two"},
    {T("\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0]"), 4, SPRY_ERR_FORMAT, "data_offsets are not two"},
    {T("\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4,8]"), 4, SPRY_ERR_FORMAT, "data_offsets are not two"},
    {T("\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[-4,0]"), 4, SPRY_ERR_FORMAT, "data_offsets are not two"},
    {T("\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,0]"), 4, SPRY_ERR_FORMAT, "4 and 0|wrong order"},
    {T("\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]"), 7, SPRY_ERR_FORMAT,
     "tensor 'w'|0 and 8 pass the end of the file (7 bytes"},
    {T("\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,4]"), 4, SPRY_ERR_FORMAT, "2 values|F32|4 bytes"},
    {T("\"dtype\":\"F16\",\"shape\":[2,2],\"data_offsets\":[0,16]"), 16, SPRY_ERR_FORMAT, "4 values|F16|16 bytes"},
    {T("\"dtype\":\"I64\",\"shape\":[2],\"data_offsets\":[0,8]"), 8, SPRY_ERR_FORMAT, "2 values|I64|8 bytes"},
    {T("\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]"), 12, SPRY_ERR_FORMAT, "last 8 bytes"},
    {T("\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]"), 8, SPRY_ERR_FORMAT,
     "tensor 'w'|begins at byte 4|4 bytes before belong to no tensor"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[4,12]},"
     "\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}",
     12, SPRY_ERR_FORMAT, "tensor 'a'|overlap the bytes of tensor 'b'"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
     "\"b\":{\"dtype\":\"I8\",\"shape\":[4],\"data_offsets\":[0,4]}}",
     4, SPRY_ERR_FORMAT, "tensor '|overlap"},
};
#undef T

static void headers_are_checked(void **state)
{
    (void)state;
    for (size_t i = 0; i < SPRY_COUNT(wrong_headers); i++) {
        spry_buffer bytes;
        make(&bytes, wrong_headers[i].header, wrong_headers[i].data_bytes);
        refused_bytes(bytes.data, bytes.size, wrong_headers[i].status, wrong_headers[i].words);
        spry_buffer_deinit(&bytes);
    }
}

static void deep_json_is_refused(void **state)
{
    (void)state;
    spry_buffer header, bytes;
    spry_buffer_init(&header, 1 << 20);
    for (int i = 0; i < 200000; i++)
        spry_buffer_text(&header, "[");
    make(&bytes, header.data, 0);
    refused_bytes(bytes.data, bytes.size, SPRY_ERR_FORMAT, "not valid JSON|nested too deeply");
    spry_buffer_deinit(&bytes);
    spry_buffer_deinit(&header);
}

static void public_files_are_read(void **state)
{
    (void)state;
    if (!spry_path_exists(PUBLIC_DATA)) {
        printf("SKIPPED public_files_are_read: ../shared/public is not there\n");
        return;
    }
#define SAMPLES PUBLIC_DATA "/models/tiny-safetensors/hf-samples/"
    static const struct {
        const char *path;
        size_t tensors;
    } good[] = {
        {SAMPLES "e.safetensors", 1}, {SAMPLES "f.safetensors", 1}, {SAMPLES "B.safetensors", 1},
        {SAMPLES "H.safetensors", 0}, {SAMPLES "I.safetensors", 0}, {SAMPLES "b.safetensors", 1},
        {SAMPLES "h.safetensors", 0}, {SAMPLES "i.safetensors", 1},
    };
    for (size_t i = 0; i < SPRY_COUNT(good); i++) {
        spry_safetensors *files = open_path(good[i].path);
        assert_int_equal(spry_safetensors_count(files), good[i].tensors);
        spry_safetensors_close(files);
    }
    static const struct {
        const char *path;
        spry_status status;
        const char *words;
    } bad[] = {
        {SAMPLES "d.safetensors", SPRY_ERR_UNSUPPORTED, "d.safetensors: tensor '|type F64"},
        {SAMPLES "overall.safetensors", SPRY_ERR_UNSUPPORTED, "overall.safetensors: tensor '|type F64"},
        {PUBLIC_DATA "/badinput/malformed_weights/tiny.safetensors", SPRY_ERR_FORMAT,
         "tiny.safetensors: |last 5 bytes belong to no tensor"},
    };
    for (size_t i = 0; i < SPRY_COUNT(bad); i++) {
        spry_safetensors *files;
        spry_error error = {0};
        spry_status status = spry_safetensors_open(&files, bad[i].path, &error);
        hostile_expect(status, &error, bad[i].status, bad[i].words);
    }
}

/* ---- damage ----------------------------------------------------------------------------------------------------- */

static const char sample_header[] = "{\"__metadata__\":{\"format\":\"pt\"},"
                                    "\"a.weight\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]},"
                                    "\"b.weight\":{\"dtype\":\"BF16\",\"shape\":[4],\"data_offsets\":[24,32]},"
                                    "\"ids\":{\"dtype\":\"I32\",\"shape\":[2],\"data_offsets\":[32,40]}}";

static void every_cut_is_refused(void **state)
{
    (void)state;
    spry_buffer bytes;
    make(&bytes, sample_header, 40);
    for (size_t size = 0; size < bytes.size; size++)
        refused_bytes(bytes.data, size, SPRY_ERR_FORMAT, "");
    spry_buffer_deinit(&bytes);

    spry_buffer_init(&bytes, 1 << 20);
    assert_int_equal(spry_file_read(&bytes, TEST_DATA "/models/llama/model.safetensors", NULL), SPRY_OK);
    for (size_t i = 0; i < 200; i++)
        refused_bytes(bytes.data, bytes.size * i / 200, SPRY_ERR_FORMAT, "");
    refused_bytes(bytes.data, bytes.size - 1, SPRY_ERR_FORMAT, "tensor 'model.norm.weight'|pass the end");
    spry_buffer_deinit(&bytes);
}

static bool survives(const unsigned char *data, size_t size)
{
    spry_safetensors *files;
    spry_error error = {0};
    spry_status status = spry_safetensors_open_memory(&files, data, size, "damaged.safetensors", &error);
    if (status == SPRY_OK) {
        walk(files);
        spry_safetensors_close(files);
        return true;
    }
    assert_true(status == SPRY_ERR_FORMAT || status == SPRY_ERR_UNSUPPORTED);
    hostile_expect(status, &error, status, "damaged.safetensors: ");
    return false;
}

static void flip_bytes(spry_buffer *bytes, size_t head, uint64_t seed)
{
    size_t opened = 0, rounds = 2000;
    unsigned char *data = hostile_copy(bytes->data, bytes->size);
    for (size_t i = 0; i < rounds; i++) {
        size_t at = (size_t)(hostile_random(&seed) % head);
        unsigned char before = data[at];
        /* a digit for a digit keeps the JSON whole and reaches the checks after it */
        bool digit = before >= '0' && before <= '9';
        data[at] = (unsigned char)(digit ? '0' + hostile_random(&seed) % 10 : hostile_random(&seed));
        opened += survives(data, bytes->size);
        data[at] = before;
    }
    assert_true(opened < rounds); /* some damage must be seen */
    free(data);
}

static void flipped_bytes_are_survived(void **state)
{
    (void)state;
    spry_buffer bytes;
    make(&bytes, sample_header, 40);
    flip_bytes(&bytes, bytes.size - 40, 3);
    spry_buffer_deinit(&bytes);
    spry_buffer_init(&bytes, 1 << 20);
    assert_int_equal(spry_file_read(&bytes, TEST_DATA "/models/llama/model.safetensors", NULL), SPRY_OK);
    flip_bytes(&bytes, 3080, 4);
    spry_buffer_deinit(&bytes);
}

/* ---- folders and shards ----------------------------------------------------------------------------------------- */

#define INDEX "model.safetensors.index.json"

static void refused_folder(spry_status expected, const char *words)
{
    spry_safetensors *files = NULL;
    spry_error error = {0};
    spry_status status = spry_safetensors_open(&files, place.folder, &error);
    hostile_expect(status, &error, expected, place.folder);
    hostile_expect(status, &error, expected, words);
    assert_null(files);
}

static void put_index(const char *text)
{
    scratch_write(&place, INDEX, text, strlen(text));
}

/* Two shards: "a" and "b" with an integer in the first, "c" in the second. */
static void put_shards(void)
{
    put("s1.safetensors",
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
        "\"ids\":{\"dtype\":\"BOOL\",\"shape\":[2],\"data_offsets\":[4,6]},"
        "\"b\":{\"dtype\":\"F16\",\"shape\":[1],\"data_offsets\":[6,8]}}",
        8);
    put("s2.safetensors", "{\"c\":{\"dtype\":\"BF16\",\"shape\":[2,2],\"data_offsets\":[0,8]}}", 8);
}

static void shards_are_read_through_the_index(void **state)
{
    (void)state;
    put_shards();
    put_index("{\"metadata\":{\"total_size\":16},\"weight_map\":{\"a\":\"s1.safetensors\",\"c\":\"s2.safetensors\","
              "\"ids\":\"s1.safetensors\",\"b\":\"s1.safetensors\"}}");
    spry_safetensors *files = open_path(place.folder);
    assert_int_equal(spry_safetensors_count(files), 3);
    const spry_tensor *b = spry_safetensors_find(files, SPRY_VIEW("b")),
                      *c = spry_safetensors_find(files, SPRY_VIEW("c"));
    assert_true(b && b->type == SPRY_F16 && b->data[0] == 6);
    assert_true(c && c->type == SPRY_BF16 && c->dims[1] == 2 && c->data[7] == 7);
    spry_safetensors_close(files);
    scratch_clear(&place);
}

static void a_folder_must_say_what_to_read(void **state)
{
    (void)state;
    refused_folder(SPRY_ERR_FILE, "no model.safetensors|model.safetensors.index.json|0 other *.safetensors");
    put("model.txt", "{}", 0);
    put_shards();
    refused_folder(SPRY_ERR_FILE, "no model.safetensors|2 other *.safetensors|exactly 1");
    assert_int_equal(remove(scratch_path(&place, "s1.safetensors")), 0);
    spry_safetensors *files = open_path(place.folder); /* a single one is enough */
    assert_int_equal(spry_safetensors_count(files), 1);
    spry_safetensors_close(files);
    put("model.safetensors", "{}", 0); /* and the well-known name wins */
    files = open_path(place.folder);
    assert_int_equal(spry_safetensors_count(files), 0);
    spry_safetensors_close(files);
    scratch_clear(&place);
}

static void a_wrong_index_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *index;
        spry_status status;
        const char *words;
    } cases[] = {
        {"", SPRY_ERR_FORMAT, INDEX ": |the index: not valid JSON"},
        {"[]", SPRY_ERR_FORMAT, INDEX ": |no weight_map"},
        {"{\"weight_map\":[]}", SPRY_ERR_FORMAT, INDEX ": |no weight_map"},
        {"{\"weight_map\":{}}", SPRY_ERR_FORMAT, INDEX ": |no weight_map"},
        {"{\"weight_map\":{\"a\":3}}", SPRY_ERR_FORMAT, INDEX ": |tensor 'a'|plain file name"},
        {"{\"weight_map\":{\"a\":\"\"}}", SPRY_ERR_FORMAT, "tensor 'a'|plain file name"},
        {"{\"weight_map\":{\"a\":\"..\"}}", SPRY_ERR_FORMAT, "tensor 'a'|plain file name"},
        {"{\"weight_map\":{\"a\":\"../s1.safetensors\"}}", SPRY_ERR_FORMAT, "tensor 'a'|plain file name"},
        {"{\"weight_map\":{\"a\":\"/etc/passwd\"}}", SPRY_ERR_FORMAT, "tensor 'a'|plain file name"},
        {"{\"weight_map\":{\"a\":\"s1.safetensors\",\"a\":\"s1.safetensors\"}}", SPRY_ERR_FORMAT, "duplicate"},
        {"{\"weight_map\":{\"a\":\"s1.safetensors\",\"d\":\"s3.safetensors\"}}", SPRY_ERR_FILE,
         "names the shard 's3.safetensors'|not there"},
        {"{\"weight_map\":{\"a\":\"s1.safetensors\",\"d\":\"s2.safetensors\"}}", SPRY_ERR_FORMAT,
         INDEX ": |tensor 'd'|not in the shard 's2.safetensors'"},
        {"{\"weight_map\":{\"a\":\"s1.safetensors\",\"b\":\"s2.safetensors\"}}", SPRY_ERR_FORMAT,
         INDEX ": |tensor 'b'|not in the shard 's2.safetensors'"},
        {"{\"weight_map\":{\"a\":\"s1.safetensors\",\"x\":\"copy.safetensors\"}}", SPRY_ERR_FORMAT,
         "copy.safetensors: tensor 'a'|two files"},
        {"{\"weight_map\":{\"a\":\"bad.safetensors\"}}", SPRY_ERR_FORMAT, "bad.safetensors: |last 3 bytes"},
    };
    put_shards();
    put("copy.safetensors", "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4);
    put("bad.safetensors", "{}", 3);
    for (size_t i = 0; i < SPRY_COUNT(cases); i++) {
        put_index(cases[i].index);
        refused_folder(cases[i].status, cases[i].words);
    }
    scratch_clear(&place);
}

static void paths_that_are_no_files_are_refused(void **state)
{
    (void)state;
    spry_safetensors *files;
    spry_error error = {0};
    spry_status status = spry_safetensors_open(&files, "/no/such.safetensors", &error);
    hostile_expect(status, &error, SPRY_ERR_FILE, "/no/such.safetensors|cannot open");
    status = spry_safetensors_open(&files, "/dev/null", &error);
    hostile_expect(status, &error, SPRY_ERR_FILE, "/dev/null|not a regular file");
    assert_int_equal(mkdir(scratch_path(&place, "model.safetensors"), 0755), 0);
    refused_folder(SPRY_ERR_FILE, "model.safetensors: is a folder");
    scratch_clear(&place);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_made_file_is_read),
        cmocka_unit_test(the_fixtures_are_read),
        cmocka_unit_test(values_agree_with_gguf),
        cmocka_unit_test(bf16_values_agree_with_gguf),
        cmocka_unit_test(header_lengths_are_checked),
        cmocka_unit_test(headers_are_checked),
        cmocka_unit_test(deep_json_is_refused),
        cmocka_unit_test(public_files_are_read),
        cmocka_unit_test(every_cut_is_refused),
        cmocka_unit_test(flipped_bytes_are_survived),
        cmocka_unit_test(shards_are_read_through_the_index),
        cmocka_unit_test(a_folder_must_say_what_to_read),
        cmocka_unit_test(a_wrong_index_is_refused),
        cmocka_unit_test(paths_that_are_no_files_are_refused),
    };
    hostile_limit_memory();
    return cmocka_run_group_tests(tests, place_make, place_remove);
}
