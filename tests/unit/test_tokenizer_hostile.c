/* Corrupt files: each must load, or be refused with one sentence; nothing else may happen. */
#include "tokenizer_testing.h"

#include <time.h>

#define DATA TEST_DATA "/tokenizers/"

typedef spry_status (*loader)(spry_tokenizer **out, const char *data, size_t size, spry_error *error);

static spry_status load_json(spry_tokenizer **out, const char *data, size_t size, spry_error *error)
{
    return make_tokenizer_json(out, (spry_view){data, size}, "hostile.json", error);
}

static spry_status load_model(spry_tokenizer **out, const char *data, size_t size, spry_error *error)
{
    return make_tokenizer_spm(out, (spry_view){data, size}, "hostile.model", error);
}

static spry_status load_gguf(spry_tokenizer **out, const char *data, size_t size, spry_error *error)
{
    spry_gguf *gguf = NULL;
    spry_status status = spry_gguf_open_memory(&gguf, data, size, "hostile.gguf", error);
    if (!status)
        status = spry_tokenizer_from_gguf(out, gguf, error);
    spry_gguf_close(gguf);
    return status;
}

/* Uses whatever was loaded, so that bad tables show. */
static void exercise(spry_tokenizer *tokenizer)
{
    static const char text[] = "Hello <s> world\n <|im_end|> \xC3\xA9\xFF 123 the the  quick";
    spry_tokens tokens = {0};
    spry_error error = {0};
    if (!spry_tokenizer_encode(tokenizer, &tokens, spry_view_of(text), NULL, 0,
                               SPRY_ENCODE_SPECIAL | SPRY_ENCODE_BOS_EOS, &error)) {
        spry_buffer decoded = decode(tokenizer, &tokens, true);
        spry_buffer_deinit(&decoded);
    }
    spry_tokens_deinit(&tokens);
    spry_tokenizer_destroy(tokenizer);
}

static void check_load(loader load, const char *data, size_t size, size_t *refused)
{
    spry_tokenizer *tokenizer = NULL;
    spry_error error = {0};
    char *copy = malloc(size ? size : 1); /* exactly as large, so that reading past the end shows */
    memcpy(copy, data, size);
    spry_status status = load(&tokenizer, copy, size, &error);
    free(copy);
    if (status == SPRY_OK) {
        exercise(tokenizer);
        return;
    }
    ++*refused;
    assert_null(tokenizer);
    assert_int_equal(error.status, status);
    assert_true(strncmp(error.message, "hostile", 7) == 0);
    assert_null(strchr(error.message, '\n'));
}

/* Every kind of damage, `rounds` times. */
static void damage(loader load, const char *path, const char *begin, size_t rounds)
{
    size_t size, refused = 0;
    char *data = path ? read_file(path, &size) : strdup(begin);
    if (!path)
        size = strlen(begin);
    uint64_t seed = size;
    for (size_t i = 0; i < rounds; i++) /* cut short */
        check_load(load, data, i * size / rounds, &refused);
    for (size_t i = 0; i < rounds; i++) { /* a few other bytes */
        char *broken = malloc(size);
        memcpy(broken, data, size);
        for (uint32_t n = 1 + random_next(&seed) % 4; n > 0; n--)
            broken[random_next(&seed) % size] = (char)random_next(&seed);
        check_load(load, broken, size, &refused);
        free(broken);
    }
    for (size_t i = 0; i < rounds; i++) { /* damage near the start, where sizes stand */
        char *broken = malloc(size);
        memcpy(broken, data, size);
        broken[random_next(&seed) % (size < 200 ? size : 200)] ^= (char)(1 << random_next(&seed) % 8);
        check_load(load, broken, size, &refused);
        free(broken);
    }
    assert_true(refused > rounds / 2);
    free(data);
}

static const char small_json[] =
    "{\"model\":{\"type\":\"BPE\",\"unk_token\":\"<unk>\",\"fuse_unk\":true,\"byte_fallback\":true,\"vocab\":{"
    "\"<unk>\":0,\"<s>\":1,\"<0x0A>\":2,\"\xE2\x96\x81\":3,\"a\":4,\"b\":5,\"\xE2\x96\x81"
    "a\":6,\"ab\":7,\"t\":8,"
    "\"h\":9,\"th\":10},\"merges\":[\"\xE2\x96\x81 a\",\"a b\",[\"t\",\"h\"]]},\"added_tokens\":[{\"id\":1,"
    "\"content\":\"<s>\",\"special\":true,\"lstrip\":true}],\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":["
    "{\"type\":\"NFC\"},{\"type\":\"Prepend\",\"prepend\":\"\xE2\x96\x81\"},{\"type\":\"Replace\",\"pattern\":"
    "{\"String\":\" \"},\"content\":\"\xE2\x96\x81\"}]},\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":"
    "\"[a-z]+|\\\\p{N}\"},\"behavior\":\"Isolated\"},\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":["
    "{\"SpecialToken\":{\"id\":\"<s>\"}},{\"Sequence\":{\"id\":\"A\"}}],\"special_tokens\":{\"<s>\":{\"ids\":[1]}}},"
    "\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"}]}}";

static void damaged_json(void **state)
{
    (void)state;
    damage(load_json, NULL, small_json, 300);
    damage(load_json, DATA "bpe-llama3/tokenizer.json", NULL, 40);
}

static void damaged_sentencepiece(void **state)
{
    (void)state;
    damage(load_model, DATA "spm-llama/tokenizer.model", NULL, 300);
}

static void damaged_gguf(void **state)
{
    (void)state;
    size_t size;
    char *whole = read_file(TEST_DATA "/models/llama/model-f32.gguf", &size);
    spry_tokenizer *tokenizer = NULL;
    spry_error error = {0};
    uint64_t seed = 1;
    size_t refused = 0, head = 24 << 10; /* the metadata with the tokenizer stand first */
    assert_int_equal(load_gguf(&tokenizer, whole, size, &error), SPRY_OK);
    exercise(tokenizer);
    for (int round = 0; round < 300; round++) {
        size_t at = random_next(&seed) % head;
        char kept = whole[at];
        whole[at] = (char)random_next(&seed);
        tokenizer = NULL;
        if (load_gguf(&tokenizer, whole, size, &error) == SPRY_OK) {
            exercise(tokenizer);
        } else {
            assert_null(tokenizer);
            refused++;
        }
        whole[at] = kept;
    }
    assert_true(refused > 10);
    free(whole);
}

/* ---- protocol buffers by hand ---- */

static void check_model_refused(const char *data, size_t size, const char *says)
{
    spry_tokenizer *tokenizer = NULL;
    spry_error error = {0};
    assert_int_not_equal(load_model(&tokenizer, data, size, &error), SPRY_OK);
    if (!strstr(error.message, says))
        fail_msg("the sentence is \"%s\", without \"%s\"", error.message, says);
}

#define REFUSED(bytes, says) check_model_refused(bytes, sizeof bytes - 1, says)

static void odd_models_are_refused(void **state)
{
    (void)state;
    REFUSED("", "neither JSON nor a whole SentencePiece model");
    REFUSED("\x0A\x7F", "neither JSON nor a whole SentencePiece model"); /* a length beyond the end */
    REFUSED("\x0A\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x7F", "neither JSON nor a whole SentencePiece model");
    REFUSED("IQ== 0\nIg== 1\n", "neither JSON nor a whole SentencePiece model"); /* a tiktoken file */
    REFUSED("\x0A\x03\x0A\x01"
            "a",
            "unigram"); /* the default model type */
    REFUSED("\x0A\x03\x0A\x01"
            "a\x12\x02\x18\x01",
            "unigram");
    REFUSED("\x0A\x03\x0A\x01"
            "a\x12\x02\x18\x03",
            "type 3");
    REFUSED("\x0A\x03\x0A\x01"
            "a\x12\x02\x18\x02\x1A\x04\x12\x02xy",
            "character map");
    REFUSED("\x0A\x03\x0A\x01"
            "a\x12\x05\x18\x02\xC0\x01\x01",
            "suffix");
    REFUSED("\x0A\x03\x0A\x01"
            "a\x12\x05\x18\x02\xC8\x02\x07",
            "the bos token's id 7");
}

/* ---- much of something ---- */

static void take_no_longer_than(clock_t start, double seconds)
{
    assert_true((double)(clock() - start) / CLOCKS_PER_SEC < seconds);
}

/* One piece of a megabyte: looking at all its splits would take 10^12 steps. */
static void a_huge_piece_is_refused(void **state)
{
    (void)state;
    size_t length = 1 << 20, size = 0;
    char *model = malloc(length + 64);
    static const unsigned char head[] = {0x0A, 0x84, 0x80, 0x40, 0x0A, 0x80, 0x80, 0x40};
    static const unsigned char tail[] = {0x12, 0x02, 0x18, 0x02, 0x0A, 0x03, 0x0A,
                                         0x01, 'a',  0x0A, 0x03, 0x0A, 0x01, 'b'};
    memcpy(model, head, sizeof head);
    size += sizeof head;
    memset(model + size, 'a', length);
    size += length;
    memcpy(model + size, tail, sizeof tail);
    size += sizeof tail;
    clock_t start = clock();
    check_model_refused(model, size, "1048576 bytes");
    take_no_longer_than(start, 5);
    free(model);
}

static void huge_added_tokens_are_refused(void **state)
{
    (void)state;
    size_t length = 1 << 20;
    char *json = malloc(length + 200);
    int head = snprintf(json, 100,
                        "{\"model\":{\"vocab\":{\"a\":0},\"merges\":[]},\"added_tokens\":[{\"id\":1,\"content\":\"");
    memset(json + head, 'x', length);
    snprintf(json + (size_t)head + length, 90, "\"}]}");
    spry_tokenizer *tokenizer = NULL;
    spry_error error = {0};
    assert_int_equal(load_json(&tokenizer, json, strlen(json), &error), SPRY_ERR_FORMAT);
    assert_non_null(strstr(error.message, "added token 1 has 1048576 bytes"));
    free(json);
}

/* Text that almost matches long added tokens at every place. */
static void near_misses_take_linear_time(void **state)
{
    (void)state;
    char json[1024] = "{\"model\":{\"vocab\":{\"a\":0},\"merges\":[]},\"added_tokens\":[{\"id\":1,\"content\":\"";
    size_t used = strlen(json);
    memset(json + used, 'a', 500);
    snprintf(json + used + 500, sizeof json - used - 500, "b\"}],\"decoder\":{\"type\":\"ByteLevel\"}}");
    spry_tokenizer *tokenizer = tokenizer_from_json(json);
    size_t size = 1 << 18;
    char *text = malloc(size);
    memset(text, 'a', size);
    clock_t start = clock();
    spry_tokens tokens = encode(tokenizer, (spry_view){text, size}, 0);
    take_no_longer_than(start, 10);
    assert_int_equal(tokens.count, size);
    spry_tokens_deinit(&tokens);
    free(text);
    spry_tokenizer_destroy(tokenizer);
}

/* JSON nested without end is refused by the parser, a pipeline nested too deep by us. */
static void deep_nesting_is_refused(void **state)
{
    (void)state;
    size_t depth = 100000;
    char *json = malloc(depth + 1);
    memset(json, '[', depth);
    json[depth] = 0;
    spry_tokenizer *tokenizer = NULL;
    spry_error error = {0};
    assert_int_equal(load_json(&tokenizer, json, depth, &error), SPRY_ERR_FORMAT);
    free(json);
    char nested[1024] = "{\"model\":{\"vocab\":{\"a\":0},\"merges\":[]},\"normalizer\":";
    for (int i = 0; i < 8; i++)
        strncat(nested, "{\"type\":\"Sequence\",\"normalizers\":[", sizeof nested - strlen(nested) - 1);
    for (int i = 0; i < 8; i++)
        strncat(nested, "]}", sizeof nested - strlen(nested) - 1);
    strncat(nested, "}", sizeof nested - strlen(nested) - 1);
    assert_int_equal(load_json(&tokenizer, nested, strlen(nested), &error), SPRY_ERR_UNSUPPORTED);
    assert_non_null(strstr(error.message, "Sequence"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(damaged_json),
        cmocka_unit_test(damaged_sentencepiece),
        cmocka_unit_test(damaged_gguf),
        cmocka_unit_test(odd_models_are_refused),
        cmocka_unit_test(a_huge_piece_is_refused),
        cmocka_unit_test(huge_added_tokens_are_refused),
        cmocka_unit_test(near_misses_take_linear_time),
        cmocka_unit_test(deep_nesting_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
