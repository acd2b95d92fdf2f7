/* Tokenizers in GGUF: what we write makes the same tokenizer again, and files of other programs are understood. */
#include "tokenizer_testing.h"

#include <unistd.h>

#include "formats/gguf_writer.h"

#define DATA TEST_DATA "/tokenizers/"

static spry_tokenizer *from_gguf(const char *path)
{
    spry_gguf *gguf = NULL;
    spry_tokenizer *tokenizer = NULL;
    spry_error error = {0};
    if (spry_gguf_open(&gguf, path, &error) || spry_tokenizer_from_gguf(&tokenizer, gguf, &error))
        fail_msg("%s", error.message);
    spry_gguf_close(gguf); /* the tokenizer keeps nothing of it */
    return tokenizer;
}

/* Writes a tokenizer to a file of its own, for a model with `n_rows` embeddings, and reads it again. */
static spry_tokenizer *through_gguf(const spry_tokenizer *tokenizer, size_t n_rows)
{
    char folder[] = "/tmp/spry-tokenizer-XXXXXX", path[64];
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/x.gguf", folder);
    spry_gguf_writer *writer = NULL;
    spry_error error = {0};
    assert_int_equal(spry_gguf_writer_create(&writer, &error), SPRY_OK);
    assert_true(spry_tokenizer_to_gguf(tokenizer, writer, n_rows));
    if (spry_gguf_writer_begin(writer, path, &error) || spry_gguf_writer_finish(writer, &error))
        fail_msg("%s", error.message);
    spry_gguf_writer_destroy(writer);
    spry_tokenizer *again = from_gguf(path);
    unlink(path);
    rmdir(folder);
    return again;
}

static void check_same_encoding(const spry_tokenizer *a, const spry_tokenizer *b, spry_view text, unsigned flags)
{
    spry_tokens x = encode(a, text, flags), y = encode(b, text, flags);
    if (x.count != y.count || (x.count && memcmp(x.ids, y.ids, x.count * sizeof *x.ids) != 0)) {
        print_ids("one  ", &x);
        print_ids("other", &y);
        fail_msg("\"%.*s\" is encoded differently", (int)text.size, text.data);
    }
    spry_buffer decoded_x = decode(a, &x, flags & SPRY_ENCODE_SPECIAL);
    spry_buffer decoded_y = decode(b, &y, flags & SPRY_ENCODE_SPECIAL);
    assert_true(spry_view_equal(spry_buffer_view(&decoded_x), spry_buffer_view(&decoded_y)));
    spry_buffer_deinit(&decoded_x);
    spry_buffer_deinit(&decoded_y);
    spry_tokens_deinit(&x);
    spry_tokens_deinit(&y);
}

static void check_same_behavior(const spry_tokenizer *a, const spry_tokenizer *b)
{
    json_t *root = read_json(DATA "bpe-qwen2/golden.json"), *cases = json_object_get(root, "cases");
    for (unsigned flags = 0; flags < 4; flags++) {
        for (size_t i = 0; i < json_array_size(cases); i++)
            check_same_encoding(a, b, json_text(json_object_get(json_array_get(cases, i), "text")), flags);
        check_same_encoding(a, b, SPRY_VIEW("a <s> b</s>  <|end|>  c <tool_call>"), flags);
    }
    json_decref(root);
    char text[300];
    uint64_t seed = 77;
    for (int round = 0; round < 200; round++)
        check_same_encoding(a, b, (spry_view){text, random_text(text, sizeof text, &seed, false)}, 0);
}

static void check_same(const spry_tokenizer *a, const spry_tokenizer *b)
{
    size_t size = spry_tokenizer_size(a);
    assert_int_equal(spry_tokenizer_size(b), size);
    assert_int_equal(spry_tokenizer_bos(a), spry_tokenizer_bos(b));
    assert_int_equal(spry_tokenizer_eos(a), spry_tokenizer_eos(b));
    assert_string_equal(spry_tokenizer_algorithm(a), spry_tokenizer_algorithm(b));
    for (int32_t id = 0; id < (int32_t)size; id++) {
        assert_int_equal(spry_tokenizer_kind(a, id), spry_tokenizer_kind(b, id));
        assert_int_equal(spry_tokenizer_is_end(a, id), spry_tokenizer_is_end(b, id));
        assert_true(spry_view_equal(spry_tokenizer_bytes(a, id), spry_tokenizer_bytes(b, id)));
        if (spry_tokenizer_kind(a, id) != SPRY_TOKEN_UNUSED) /* those get a spelling in the file */
            assert_true(spry_view_equal(spry_tokenizer_name(a, id), spry_tokenizer_name(b, id)));
    }
    check_same_behavior(a, b);
}

static void check_roundtrip(spry_tokenizer *tokenizer)
{
    spry_tokenizer *again = through_gguf(tokenizer, 0), *thrice = through_gguf(again, 0);
    check_same(tokenizer, again);
    check_same(tokenizer, thrice);
    spry_tokenizer_destroy(thrice);
    spry_tokenizer_destroy(again);
    spry_tokenizer_destroy(tokenizer);
}

static void fixtures_come_back(void **state)
{
    (void)state;
    static const char *const paths[] = {DATA "bpe-gpt2",  DATA "bpe-llama3", DATA "bpe-qwen2",
                                        DATA "spm-gemma", DATA "spm-llama",  TEST_DATA "/models/qwen3"};
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++)
        check_roundtrip(open_tokenizer(paths[i]));
}

/* Patterns without a name, prefixes, holes, tokens with flags, templates: nothing of it has a key in GGUF. */
static void nothing_is_lost(void **state)
{
    (void)state;
    check_roundtrip(tokenizer_from_json(
        "{\"model\":{\"type\":\"BPE\",\"ignore_merges\":true,\"vocab\":{\"a\":0,\"b\":1,\"ab\":9,\"\xC4\xA0\":3,"
        "\"1\":4,\"2\":5,\"\xC4\xA0\xC4\xA0\":6},\"merges\":[\"\xC4\xA0 \xC4\xA0\",[\"a\",\"b\"]]},"
        "\"normalizer\":{\"type\":\"NFKC\"},\"added_tokens\":[{\"id\":12,\"content\":\"<s>\",\"special\":true,"
        "\"lstrip\":true},{\"id\":13,\"content\":\"<|end|>\",\"rstrip\":true,\"normalized\":false}],"
        "\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Digits\"},{\"type\":\"Split\","
        "\"pattern\":{\"Regex\":\"a|b\"},\"behavior\":\"MergedWithPrevious\",\"invert\":true},"
        "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":false}]},"
        "\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"x\"}},"
        "{\"Sequence\":{\"id\":\"A\"}},{\"SpecialToken\":{\"id\":\"y\"}}],"
        "\"special_tokens\":{\"x\":{\"ids\":[12,12]},\"y\":{\"ids\":[13]}}},"
        "\"decoder\":{\"type\":\"ByteLevel\"}}"));
    check_roundtrip(tokenizer_from_json(
        "{\"model\":{\"type\":\"BPE\",\"unk_token\":\"<unk>\",\"fuse_unk\":true,\"byte_fallback\":true,\"vocab\":{"
        "\"<unk>\":0,\"<s>\":1,\"<0x0A>\":2,\"\xE2\x96\x81\":3,\"a\":4,\"b\":5,\"\xE2\x96\x81"
        "a\":6,\"ab\":7},"
        "\"merges\":[\"\xE2\x96\x81 a\",\"a b\"]},\"added_tokens\":[{\"id\":1,\"content\":\"<s>\",\"special\":true}],"
        "\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"\xE2\x96\x81\",\"prepend_scheme\":\"first\","
        "\"split\":false},\"decoder\":{\"type\":\"Metaspace\",\"replacement\":\"\xE2\x96\x81\","
        "\"prepend_scheme\":\"first\"}}"));
}

/* A model may have more embeddings than its tokenizer has tokens. */
static void rows_without_a_token_are_unused(void **state)
{
    (void)state;
    static const char *const paths[] = {DATA "bpe-llama3", DATA "spm-llama"};
    for (size_t i = 0; i < 2; i++) {
        spry_tokenizer *tokenizer = open_tokenizer(paths[i]), *padded = through_gguf(tokenizer, 2007);
        assert_int_equal(spry_tokenizer_size(padded), 2007);
        for (int32_t id = 2000; id < 2007; id++) {
            assert_int_equal(spry_tokenizer_kind(padded, id), SPRY_TOKEN_UNUSED);
            assert_int_equal(spry_tokenizer_bytes(padded, id).size, 0);
        }
        check_same_behavior(tokenizer, padded);
        spry_tokenizer_destroy(padded);
        spry_tokenizer_destroy(tokenizer);
    }
}

/* ---- files of llama.cpp's converter ---- */

static void models_tokenise_alike_from_either_file(void **state)
{
    (void)state;
    static const char *const models[] = {"llama", "qwen3", "gemma3", "qwen2-moe"};
    for (size_t i = 0; i < 4; i++) {
        char path[512];
        snprintf(path, sizeof path, TEST_DATA "/models/%s/model-f32.gguf", models[i]);
        spry_tokenizer *gguf = from_gguf(path);
        assert_string_equal(spry_tokenizer_algorithm(gguf), "BPE (qwen2 pattern)");
        assert_int_equal(spry_tokenizer_eos(gguf), 2);
        snprintf(path, sizeof path, TEST_DATA "/models/%s/golden.json", models[i]);
        json_t *root = read_json(path), *cases = json_object_get(root, "cases");
        for (size_t k = 0; k < json_array_size(cases); k++) {
            const json_t *one = json_array_get(cases, k), *prompt = json_object_get(one, "prompt");
            if (json_is_string(prompt))
                check_ids(gguf, json_text(prompt), json_object_get(one, "ids"), SPRY_ENCODE_SPECIAL, models[i]);
        }
        json_decref(root);
        spry_tokenizer_destroy(gguf);
    }
}

static void published_vocabularies_agree(void **state)
{
    (void)state;
    if (skipped_without_public("published_vocabularies_agree"))
        return;
    static const char *const names[] = {"qwen2.5", "llama3"};
    for (size_t i = 0; i < 2; i++) {
        char path[512];
        snprintf(path, sizeof path, PUBLIC_DATA "/tokenizers/%s/ggml-vocab.gguf", names[i]);
        spry_tokenizer *gguf = from_gguf(path);
        snprintf(path, sizeof path, PUBLIC_DATA "/tokenizers/%s/tokenizer.json", names[i]);
        spry_tokenizer *json = open_tokenizer(path);
        check_same_behavior(gguf, json);
        spry_tokenizer_destroy(json);
        check_roundtrip(gguf);
    }
    check_roundtrip(open_tokenizer(PUBLIC_DATA "/tokenizers/llama2/tokenizer.model"));
    check_roundtrip(open_tokenizer(PUBLIC_DATA "/tokenizers/phi3-mini"));
    spry_tokenizer *stories = from_gguf(PUBLIC_DATA "/models/stories260K/stories260K-f32.gguf");
    assert_string_equal(spry_tokenizer_algorithm(stories), "SentencePiece BPE");
    check_list(stories, "Once upon a time", SPRY_ENCODE_BOS_EOS, IDS(1, 403, 407, 261, 378));
    check_roundtrip(stories);
}

/* ---- metadata by hand ---- */

enum { MINI_SIZE = 1 << 14 };

/* A file in memory with the strings given and, unless NULL, lists of tokens and merges. */
typedef struct mini {
    unsigned char data[MINI_SIZE];
    size_t size;
    uint64_t n_entries;
} mini;

static void put(mini *file, const void *data, size_t size)
{
    assert_true(file->size + size <= MINI_SIZE);
    memcpy(file->data + file->size, data, size);
    file->size += size;
}

static void put_number(mini *file, uint64_t value, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        unsigned char byte = (unsigned char)(i < 8 ? value >> (8 * i) & 0xff : 0);
        put(file, &byte, 1);
    }
}

static void put_text(mini *file, const char *text)
{
    put_number(file, strlen(text), 8);
    put(file, text, strlen(text));
}

static void mini_start(mini *file)
{
    *file = (mini){0};
    put(file, "GGUF", 4);
    put_number(file, 3, 4);
    put_number(file, 0, 8);
    put_number(file, 0, 8); /* entries; known at the end */
}

static void mini_key(mini *file, const char *key, unsigned kind)
{
    put_text(file, key);
    put_number(file, kind, 4);
    file->n_entries++;
}

static void mini_string(mini *file, const char *key, const char *value)
{
    mini_key(file, key, SPRY_GGUF_STRING);
    put_text(file, value);
}

static void mini_strings(mini *file, const char *key, const char *const *values)
{
    size_t count = 0;
    while (values[count])
        count++;
    mini_key(file, key, SPRY_GGUF_ARRAY);
    put_number(file, SPRY_GGUF_STRING, 4);
    put_number(file, count, 8);
    for (size_t i = 0; i < count; i++)
        put_text(file, values[i]);
}

static spry_status mini_open(mini *file, spry_tokenizer **out, spry_error *error)
{
    for (size_t i = 0; i < 8; i++)
        file->data[16 + i] = (unsigned char)(file->n_entries >> (8 * i));
    spry_gguf *gguf = NULL;
    if (spry_gguf_open_memory(&gguf, file->data, file->size, "mini.gguf", error))
        fail_msg("%s", error->message);
    spry_status status = spry_tokenizer_from_gguf(out, gguf, error);
    spry_gguf_close(gguf);
    return status;
}

static void check_refused(mini *file, spry_status status, const char *says)
{
    spry_tokenizer *tokenizer = NULL;
    spry_error error = {0};
    assert_int_equal(mini_open(file, &tokenizer, &error), status);
    assert_null(tokenizer);
    if (strncmp(error.message, "mini.gguf: ", 11) != 0 || !strstr(error.message, says))
        fail_msg("the sentence is \"%s\", without \"%s\"", error.message, says);
}

static const char *const abc[] = {"a", "b", "ab", NULL}, *const a_b[] = {"a b", NULL};

static void what_is_missing_or_unknown_is_named(void **state)
{
    (void)state;
    mini file;
    mini_start(&file);
    check_refused(&file, SPRY_ERR_FORMAT, "tokenizer.ggml.model is missing");
    mini_start(&file);
    mini_string(&file, "tokenizer.ggml.model", "rwkv");
    check_refused(&file, SPRY_ERR_UNSUPPORTED, "\"rwkv\"; known are \"gpt2\", \"llama\", \"bert\" and \"t5\"");
    mini_start(&file);
    mini_string(&file, "tokenizer.ggml.model", "gpt2");
    check_refused(&file, SPRY_ERR_FORMAT, "tokenizer.ggml.tokens");
    mini_strings(&file, "tokenizer.ggml.tokens", abc);
    check_refused(&file, SPRY_ERR_FORMAT, "tokenizer.ggml.merges");
    mini_strings(&file, "tokenizer.ggml.merges", a_b);
    mini_string(&file, "tokenizer.ggml.pre", "nonsense");
    check_refused(&file, SPRY_ERR_UNSUPPORTED, "\"nonsense\"; known are gpt-2, llama-bpe");
    mini_start(&file);
    mini_string(&file, "tokenizer.ggml.model", "llama");
    mini_strings(&file, "tokenizer.ggml.tokens", abc);
    check_refused(&file, SPRY_ERR_FORMAT, "tokenizer.ggml.scores");
}

static void sizes_and_ids_are_checked(void **state)
{
    (void)state;
    static const char *const no_pair[] = {"ab", NULL}, *const other[] = {"b a", NULL};
    mini file;
    mini_start(&file);
    mini_string(&file, "tokenizer.ggml.model", "gpt2");
    mini_strings(&file, "tokenizer.ggml.tokens", abc);
    mini start = file;
    mini_strings(&file, "tokenizer.ggml.merges", no_pair);
    check_refused(&file, SPRY_ERR_FORMAT, "element 0 is not two tokens");
    file = start;
    mini_strings(&file, "tokenizer.ggml.merges", other);
    check_refused(&file, SPRY_ERR_FORMAT, "makes \"ba\"");
    file = start;
    mini_strings(&file, "tokenizer.ggml.merges", a_b);
    start = file;
    mini_key(&file, "tokenizer.ggml.token_type", SPRY_GGUF_ARRAY);
    put_number(&file, SPRY_GGUF_I32, 4);
    put_number(&file, 1, 8);
    put_number(&file, 1, 4);
    check_refused(&file, SPRY_ERR_FORMAT, "token_type has 1 elements for 3 tokens");
    file = start;
    mini_key(&file, "tokenizer.ggml.eos_token_id", SPRY_GGUF_U32);
    put_number(&file, 3, 4);
    check_refused(&file, SPRY_ERR_FORMAT, "the eos token's id 3 is outside the vocabulary of 3");
    file = start;
    mini_string(&file, "spry.tokenizer.settings", "{\"added_tokens\":[{\"id\":9,\"content\":\"x\"}]}");
    check_refused(&file, SPRY_ERR_FORMAT, "spry.tokenizer.settings");
    file = start;
    mini_string(&file, "spry.tokenizer.settings", "{");
    check_refused(&file, SPRY_ERR_FORMAT, "spry.tokenizer.settings");
    spry_tokenizer *tokenizer = NULL;
    spry_error error = {0};
    assert_int_equal(mini_open(&start, &tokenizer, &error), SPRY_OK); /* nothing is wrong with the start */
    check_list(tokenizer, "aab", 0, IDS(0, 2));
    assert_string_equal(spry_tokenizer_algorithm(tokenizer), "BPE (gpt-2 pattern)");
    spry_tokenizer_destroy(tokenizer);
}

/* llama.cpp's converter spells the spaces of user-defined tokens as spaces. */
static void user_defined_tokens_may_have_plain_spaces(void **state)
{
    (void)state;
    static const char *const tokens[] = {"\xE2\x96\x81", "a", "b", "  ", "<x y>", NULL};
    static const unsigned types[] = {1, 1, 1, 4, 4};
    mini file;
    mini_start(&file);
    mini_string(&file, "tokenizer.ggml.model", "llama");
    mini_strings(&file, "tokenizer.ggml.tokens", tokens);
    mini_key(&file, "tokenizer.ggml.token_type", SPRY_GGUF_ARRAY);
    put_number(&file, SPRY_GGUF_I32, 4);
    put_number(&file, 5, 8);
    for (size_t i = 0; i < 5; i++)
        put_number(&file, types[i], 4);
    mini_key(&file, "tokenizer.ggml.scores", SPRY_GGUF_ARRAY);
    put_number(&file, SPRY_GGUF_F32, 4);
    put_number(&file, 5, 8);
    put_number(&file, 0, 20);
    mini_key(&file, "tokenizer.ggml.add_space_prefix", SPRY_GGUF_BOOL);
    put_number(&file, 0, 1);
    spry_tokenizer *tokenizer = NULL;
    spry_error error = {0};
    if (mini_open(&file, &tokenizer, &error))
        fail_msg("%s", error.message);
    check_list(tokenizer, "a  b a   <x y>", 0, IDS(1, 3, 2, 0, 1, 3, 0, 4));
    check_roundtrip(tokenizer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fixtures_come_back),
        cmocka_unit_test(nothing_is_lost),
        cmocka_unit_test(rows_without_a_token_are_unused),
        cmocka_unit_test(models_tokenise_alike_from_either_file),
        cmocka_unit_test(published_vocabularies_agree),
        cmocka_unit_test(what_is_missing_or_unknown_is_named),
        cmocka_unit_test(sizes_and_ids_are_checked),
        cmocka_unit_test(user_defined_tokens_may_have_plain_spaces),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
