/* Tokenizers and test vectors of other projects, where they lie beside the checkout.
 *
 * Three things in that data contradict the tokenizer files and are handled where they occur:
 * - llama2/tokenizer.json has lost the no-break spaces of three merges, so texts with U+00A0 differ from the vectors;
 *   the same vectors run in full against llama2/tokenizer.model.
 * - transformers.js's and swift-transformers' decoded texts of GPT-2 and Llama 3 went through transformers' clean-up
 *   of spaces before punctuation, which is no part of the tokenizer.
 * - vectors of tokenizers that are not there (bert, falcon, gemma, t5, ...) are not used. */
#include "tokenizer_testing.h"

#define TOKENIZERS PUBLIC_DATA "/tokenizers/"
#define VECTORS    PUBLIC_DATA "/tokenizers/testvectors/"

/* Opening takes longer than most tests, so each is opened once. */
static struct {
    char path[256];
    spry_tokenizer *tokenizer;
} opened[16];

static spry_tokenizer *open_once(const char *path)
{
    size_t i = 0;
    while (opened[i].tokenizer && strcmp(opened[i].path, path) != 0)
        assert_true(++i < sizeof opened / sizeof opened[0]);
    if (!opened[i].tokenizer) {
        snprintf(opened[i].path, sizeof opened[i].path, "%s", path);
        opened[i].tokenizer = open_tokenizer(path);
    }
    return opened[i].tokenizer;
}

static int close_all(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof opened / sizeof opened[0]; i++)
        spry_tokenizer_destroy(opened[i].tokenizer);
    return 0;
}

static const char no_break_space[] = "\xC2\xA0";

static bool contains(spry_view text, const char *needle)
{
    return memmem(text.data, text.size, needle, strlen(needle)) != NULL;
}

/* ---- llama.cpp: texts parted by a line, ids a line each ---- */

static size_t check_llama_cpp(const char *tokenizer_path, const char *vector, bool lost_spaces)
{
    static const char separator[] = "\n__ggml_vocab_test__\n";
    char path[512];
    size_t in_size, out_size, count = 0;
    snprintf(path, sizeof path, VECTORS "llama.cpp/%s.inp", vector);
    char *in = read_file(path, &in_size);
    snprintf(path, sizeof path, VECTORS "llama.cpp/%s.out", vector);
    char *out = read_file(path, &out_size);
    spry_tokenizer *tokenizer = open_once(tokenizer_path);
    char *line = out;
    for (char *text = in, *end; (end = strstr(text, separator)); text = end + sizeof separator - 1) {
        json_t *expected = json_array();
        char *next = strchr(line, '\n'), *rest;
        assert_non_null(next);
        *next = 0;
        for (long id = strtol(line, &rest, 10); rest != line; id = strtol(line, &rest, 10)) {
            json_array_append_new(expected, json_integer(id));
            line = rest;
        }
        line = next + 1;
        spry_view view = {text, (size_t)(end - text)};
        if (!lost_spaces || !contains(view, no_break_space)) {
            check_ids(tokenizer, view, expected, 0, tokenizer_path);
            count++;
        }
        json_decref(expected);
    }
    free(in);
    free(out);
    assert_true(count > 30);
    return count;
}

static void llama_cpp_vectors(void **state)
{
    (void)state;
    if (skipped_without_public("llama_cpp_vectors"))
        return;
    check_llama_cpp(TOKENIZERS "gpt2/tokenizer.json", "ggml-vocab-gpt-2.gguf", false);
    check_llama_cpp(TOKENIZERS "llama3/tokenizer.json", "ggml-vocab-llama-bpe.gguf", false);
    check_llama_cpp(TOKENIZERS "qwen2.5/tokenizer.json", "ggml-vocab-qwen2.gguf", false);
    check_llama_cpp(TOKENIZERS "phi3-mini/tokenizer.json", "ggml-vocab-phi-3.gguf", false);
    check_llama_cpp(TOKENIZERS "llama2/tokenizer.model", "ggml-vocab-llama-spm.gguf", false);
    check_llama_cpp(TOKENIZERS "llama2/tokenizer.json", "ggml-vocab-llama-spm.gguf", true);
}

/* ---- transformers.js and swift-transformers: JSON ---- */

/* transformers' clean_up_tokenization. */
static void clean_up(spry_buffer *text)
{
    static const char *const pairs[][2] = {{" .", "."},     {" ?", "?"},     {" !", "!"},   {" ,", ","},
                                           {" ' ", "'"},    {" n't", "n't"}, {" 'm", "'m"}, {" 's", "'s"},
                                           {" 've", "'ve"}, {" 're", "'re"}};
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        size_t from = strlen(pairs[i][0]), to = strlen(pairs[i][1]);
        for (char *hit = text->data; text->data && (hit = strstr(hit, pairs[i][0]));) {
            memcpy(hit, pairs[i][1], to);
            memmove(hit + to, hit + from, text->size - (size_t)(hit - text->data) - from + 1);
            text->size -= from - to;
            hit += to;
        }
    }
}

typedef struct vector_rules {
    unsigned flags;
    bool cleaned;     /* the decoded text went through clean_up */
    bool lost_spaces; /* see above */
} vector_rules;

static void check_case(const spry_tokenizer *tokenizer, spry_view text, const json_t *ids, const json_t *decoded,
                       bool special, vector_rules rules, const char *where)
{
    if (rules.lost_spaces && contains(text, no_break_space))
        return;
    check_ids(tokenizer, text, ids, rules.flags, where);
    if (!decoded)
        return;
    spry_tokens tokens = encode(tokenizer, text, rules.flags);
    spry_buffer got = decode(tokenizer, &tokens, special);
    if (rules.cleaned)
        clean_up(&got);
    if (!spry_view_equal(spry_buffer_view(&got), json_text(decoded)))
        fail_msg("%s: \"%.*s\" decoded to \"%s\"", where, (int)text.size, text.data, got.data ? got.data : "");
    spry_buffer_deinit(&got);
    spry_tokens_deinit(&tokens);
}

static void check_transformers_js(const char *tokenizer_path, const char *file, const char *model, vector_rules rules)
{
    char path[512];
    snprintf(path, sizeof path, VECTORS "transformers.js/%s.json", file);
    json_t *root = read_json(path), *cases = json_object_get(root, model);
    spry_tokenizer *tokenizer = open_once(tokenizer_path);
    assert_true(json_array_size(cases) > 10);
    for (size_t i = 0; i < json_array_size(cases); i++) {
        const json_t *one = json_array_get(cases, i);
        check_case(tokenizer, json_text(json_object_get(one, "text")), json_object_get(one, "ids"),
                   json_object_get(one, "decoded"), true, rules, model);
    }
    json_decref(root);
}

/* Phi-3's vocabulary is Llama 2's; its post-processor adds no bos. */
static void check_phi3_against_llama(void)
{
    json_t *root = read_json(VECTORS "transformers.js/llama.json");
    json_t *cases = json_object_get(root, "Xenova/llama-tokenizer");
    spry_tokenizer *tokenizer = open_once(TOKENIZERS "phi3-mini/tokenizer.json");
    for (size_t i = 0; i < json_array_size(cases); i++) {
        json_t *ids = json_object_get(json_array_get(cases, i), "ids");
        json_array_remove(ids, 0);
        check_ids(tokenizer, json_text(json_object_get(json_array_get(cases, i), "text")), ids, SPRY_ENCODE_BOS_EOS,
                  "phi3-mini");
    }
    json_decref(root);
}

static void transformers_js_vectors(void **state)
{
    (void)state;
    if (skipped_without_public("transformers_js_vectors"))
        return;
    vector_rules plain = {.flags = SPRY_ENCODE_SPECIAL}, framed = {.flags = SPRY_ENCODE_SPECIAL | SPRY_ENCODE_BOS_EOS};
    vector_rules cleaned = plain, framed_cleaned = framed, lost = framed;
    cleaned.cleaned = framed_cleaned.cleaned = true;
    lost.lost_spaces = true;
    check_transformers_js(TOKENIZERS "gpt2/tokenizer.json", "gpt2", "Xenova/gpt2", cleaned);
    check_transformers_js(TOKENIZERS "gpt2/tokenizer.json", "gpt2", "openai-community/gpt2", cleaned);
    check_transformers_js(TOKENIZERS "qwen2.5/tokenizer.json", "qwen2", "Xenova/Qwen1.5-0.5B-Chat", framed);
    check_transformers_js(TOKENIZERS "llama3/tokenizer.json", "llama", "Xenova/llama3-tokenizer", cleaned);
    check_transformers_js(TOKENIZERS "llama3/tokenizer.json", "llama", "Xenova/llama3-tokenizer-new", framed_cleaned);
    check_transformers_js(TOKENIZERS "llama2/tokenizer.model", "llama", "Xenova/llama-tokenizer", framed);
    check_transformers_js(TOKENIZERS "llama2/tokenizer.json", "llama", "Xenova/llama-tokenizer", lost);
    check_phi3_against_llama();
}

static void check_swift(const char *tokenizer_path, const char *model, vector_rules rules)
{
    json_t *root = read_json(VECTORS "swift-transformers/tokenizer_tests.json"), *cases = json_object_get(root, model);
    spry_tokenizer *tokenizer = open_once(tokenizer_path);
    assert_true(json_array_size(cases) > 10);
    for (size_t i = 0; i < json_array_size(cases); i++) {
        const json_t *one = json_array_get(cases, i);
        const json_t *ids = json_object_get(json_object_get(one, "encoded"), "input_ids");
        spry_view text = json_text(json_object_get(one, "input"));
        check_case(tokenizer, text, ids, json_object_get(one, "decoded_with_special"), true, rules, model);
        check_case(tokenizer, text, ids, json_object_get(one, "decoded_without_special"), false, rules, model);
    }
    json_decref(root);
}

/* One long text with the spellings of its tokens. */
static void check_swift_text(const char *tokenizer_path, const char *file, const char *ids_key, vector_rules rules)
{
    char path[512];
    snprintf(path, sizeof path, VECTORS "swift-transformers/%s.json", file);
    json_t *root = read_json(path);
    spry_tokenizer *tokenizer = open_once(tokenizer_path);
    check_case(tokenizer, json_text(json_object_get(root, "text")), json_object_get(root, ids_key),
               json_object_get(root, "decoded_text"), true, rules, file);
    json_decref(root);
}

static void swift_vectors(void **state)
{
    (void)state;
    if (skipped_without_public("swift_vectors"))
        return;
    vector_rules plain = {.flags = SPRY_ENCODE_SPECIAL}, framed = {.flags = SPRY_ENCODE_SPECIAL | SPRY_ENCODE_BOS_EOS};
    vector_rules cleaned = plain, framed_cleaned = framed;
    cleaned.cleaned = framed_cleaned.cleaned = true;
    check_swift(TOKENIZERS "gpt2/tokenizer.json", "distilgpt2", cleaned);
    check_swift(TOKENIZERS "llama3/tokenizer.json", "pcuenq/Llama-3.2-1B-Instruct-tokenizer", framed_cleaned);
    check_swift(TOKENIZERS "llama2/tokenizer.model", "coreml-projects/Llama-2-7b-chat-coreml", framed);
    check_swift_text(TOKENIZERS "gpt2/tokenizer.json", "gpt2_encoded_tokens", "token_ids", plain);
    check_swift_text(TOKENIZERS "llama3/tokenizer.json", "llama_3.2_encoded", "token_ids", framed);
    check_swift_text(TOKENIZERS "llama2/tokenizer.model", "llama_encoded", "token_ids", framed);
}

/* ---- roundtrips ---- */

static const char *const every_tokenizer[] = {
    TOKENIZERS "gpt2/tokenizer.json",
    TOKENIZERS "qwen2.5/tokenizer.json",
    TOKENIZERS "llama3/tokenizer.json",
    TOKENIZERS "llama2",
    TOKENIZERS "llama2/tokenizer.model",
    TOKENIZERS "phi3-mini",
    TOKENIZERS "mistral/tokenizer.model.v1",
    TOKENIZERS "mistral/mistral_instruct_tokenizer_240216.model.v2",
    TOKENIZERS "mistral/mistral_instruct_tokenizer_240323.model.v3",
    TOKENIZERS "mistral/mistral_instruct_tokenizer_241114.model.v7",
};

static const char *const odd_files[] = {
    PUBLIC_DATA "/badinput/blns/blns.txt",
    PUBLIC_DATA "/badinput/utf8/GraphemeBreakTest.txt",
    PUBLIC_DATA "/badinput/utf8/UTF-8-demo.txt",
    PUBLIC_DATA "/badinput/utf8/UTF-8-test-2003.txt",
    PUBLIC_DATA "/badinput/utf8/UTF-8-test.txt",
    PUBLIC_DATA "/badinput/utf8/flenniken_utf8tests.bin",
    PUBLIC_DATA "/badinput/utf8/utf8_sequence_assigned_printable.txt",
};

/* SentencePiece cannot tell U+2581 from a space. */
static void append_unmarked(spry_buffer *out, spry_view text, bool sentence_piece)
{
    for (size_t i = 0; i < text.size; i++) {
        bool mark = sentence_piece && text.size - i >= 3 && memcmp(text.data + i, "\xE2\x96\x81", 3) == 0;
        spry_buffer_append(out, mark ? " " : text.data + i, 1);
        i += mark ? 2 : 0;
    }
}

/* What is decoded has the bytes of what was encoded. `changes` tells that the tokenizer normalises (Qwen's NFC) or has
 * an added token that swallows white space (Phi-3): then encoding again must find the same ids. */
static void check_roundtrip(const spry_tokenizer *tokenizer, spry_view text, bool changes, const char *where)
{
    spry_tokens tokens = encode(tokenizer, text, 0);
    spry_buffer back = decode(tokenizer, &tokens, true);
    spry_buffer expected;
    spry_buffer_init(&expected, TEXT_MAX);
    append_unmarked(&expected, text, strstr(spry_tokenizer_algorithm(tokenizer), "SentencePiece") != NULL);
    if (!changes && !spry_view_equal(spry_buffer_view(&back), spry_buffer_view(&expected)))
        fail_msg("%s: a text of %zu bytes does not come back", where, text.size);
    if (changes) {
        spry_tokens again = encode(tokenizer, spry_buffer_view(&back), 0);
        assert_int_equal(again.count, tokens.count);
        assert_memory_equal(again.ids, tokens.ids, tokens.count * sizeof *tokens.ids);
        spry_tokens_deinit(&again);
    }
    spry_buffer_deinit(&back);
    spry_buffer_deinit(&expected);
    spry_tokens_deinit(&tokens);
}

static void odd_texts_come_back(void **state)
{
    (void)state;
    if (skipped_without_public("odd_texts_come_back"))
        return;
    json_t *strings = read_json(PUBLIC_DATA "/badinput/blns/blns.json");
    for (size_t t = 0; t < sizeof every_tokenizer / sizeof every_tokenizer[0]; t++) {
        const char *path = every_tokenizer[t];
        spry_tokenizer *tokenizer = open_once(path);
        bool changes = strstr(path, "qwen") || strstr(path, "phi3");
        for (size_t f = 0; f < sizeof odd_files / sizeof odd_files[0]; f++) {
            size_t size;
            char *text = read_file(odd_files[f], &size);
            check_roundtrip(tokenizer, (spry_view){text, size}, changes, path);
            free(text);
        }
        for (size_t i = 0; i < json_array_size(strings); i++)
            check_roundtrip(tokenizer, json_text(json_array_get(strings, i)), changes, path);
    }
    json_decref(strings);
}

/* Every control token's spelling is itself where control tokens are asked for, and plain text where they are not. */
static void control_tokens_stay_apart(void **state)
{
    (void)state;
    if (skipped_without_public("control_tokens_stay_apart"))
        return;
    for (size_t t = 0; t < sizeof every_tokenizer / sizeof every_tokenizer[0]; t++) {
        spry_tokenizer *tokenizer = open_once(every_tokenizer[t]);
        size_t seen = 0;
        for (size_t id = 0; id < spry_tokenizer_size(tokenizer); id++) {
            if (spry_tokenizer_kind(tokenizer, (int32_t)id) != SPRY_TOKEN_CONTROL)
                continue;
            spry_view name = spry_tokenizer_name(tokenizer, (int32_t)id);
            spry_tokens asked = encode(tokenizer, name, SPRY_ENCODE_SPECIAL), plain = encode(tokenizer, name, 0);
            assert_int_equal(asked.count, 1);
            assert_int_equal(asked.ids[0], id);
            for (size_t i = 0; i < plain.count; i++)
                assert_int_not_equal(spry_tokenizer_kind(tokenizer, plain.ids[i]), SPRY_TOKEN_CONTROL);
            spry_tokens_deinit(&asked);
            spry_tokens_deinit(&plain);
            seen++;
        }
        assert_true(seen > 0);
    }
}

static void a_folder_has_its_configuration(void **state)
{
    (void)state;
    if (skipped_without_public("a_folder_has_its_configuration"))
        return;
    spry_tokenizer *tokenizer = open_once(TOKENIZERS "llama2");
    assert_int_equal(spry_tokenizer_bos(tokenizer), 1);
    assert_int_equal(spry_tokenizer_eos(tokenizer), 2);
    check_list(tokenizer, "Hello World", SPRY_ENCODE_BOS_EOS, IDS(1, 15043, 2787));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(llama_cpp_vectors),
        cmocka_unit_test(transformers_js_vectors),
        cmocka_unit_test(swift_vectors),
        cmocka_unit_test(odd_texts_come_back),
        cmocka_unit_test(control_tokens_stay_apart),
        cmocka_unit_test(a_folder_has_its_configuration),
    };
    return cmocka_run_group_tests(tests, NULL, close_all);
}
