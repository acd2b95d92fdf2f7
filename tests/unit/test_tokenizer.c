/* The tokenizers made for this project: golden ids and texts, control tokens and literal text, streaming. */
#include "tokenizer_testing.h"

#include <pthread.h>

#define DATA TEST_DATA "/tokenizers/"

static const char *const names[] = {"bpe-gpt2", "bpe-llama3", "bpe-qwen2", "spm-gemma", "spm-llama"};
enum { N_NAMES = sizeof names / sizeof names[0] };

static spry_tokenizer *open_named(const char *name)
{
    char path[512];
    snprintf(path, sizeof path, DATA "%s", name);
    return open_tokenizer(path);
}

static json_t *golden_cases(const char *name, json_t **root)
{
    char path[512];
    snprintf(path, sizeof path, DATA "%s/golden.json", name);
    *root = read_json(path);
    json_t *cases = json_object_get(*root, "cases");
    assert_true(json_array_size(cases) > 300);
    return cases;
}

/* The byte-level goldens were made with control tokens recognised, SentencePiece knows no such thing. */
static unsigned golden_flags(const char *name)
{
    return strncmp(name, "bpe", 3) == 0 ? SPRY_ENCODE_SPECIAL : 0;
}

static void golden_ids_and_texts(void **state)
{
    (void)state;
    for (size_t t = 0; t < N_NAMES; t++) {
        spry_tokenizer *tokenizer = open_named(names[t]);
        json_t *root, *cases = golden_cases(names[t], &root);
        for (size_t i = 0; i < json_array_size(cases); i++) {
            const json_t *one = json_array_get(cases, i);
            spry_view text = json_text(json_object_get(one, "text"));
            check_ids(tokenizer, text, json_object_get(one, "ids"), golden_flags(names[t]), names[t]);
            spry_tokens tokens = encode(tokenizer, text, golden_flags(names[t]));
            check_decoded(tokenizer, &tokens, true, json_text(json_object_get(one, "decoded")), names[t]);
            spry_tokens_deinit(&tokens);
        }
        json_decref(root);
        spry_tokenizer_destroy(tokenizer);
    }
}

/* All texts in one: words come from the cache, and the text is long. */
static void a_long_text_equals_its_lines(void **state)
{
    (void)state;
    for (size_t t = 0; t < 3; t++) {
        spry_tokenizer *tokenizer = open_named(names[t]);
        json_t *root, *cases = golden_cases(names[t], &root);
        spry_buffer text;
        spry_buffer_init(&text, TEXT_MAX);
        spry_tokens expected = {0};
        for (size_t i = 0; i < json_array_size(cases); i++) {
            const json_t *ids = json_object_get(json_array_get(cases, i), "ids");
            spry_view one = json_text(json_object_get(json_array_get(cases, i), "text"));
            spry_buffer_append(&text, one.data, one.size);
            spry_buffer_text(&text, "<|endoftext|>"); /* nothing merges across it */
            for (size_t k = 0; k < json_array_size(ids); k++)
                spry_tokens_push(&expected, (int32_t)json_integer_value(json_array_get(ids, k)));
            spry_tokens_push(&expected, 0);
        }
        spry_tokens tokens = encode(tokenizer, spry_buffer_view(&text), SPRY_ENCODE_SPECIAL);
        assert_int_equal(tokens.count, expected.count);
        assert_memory_equal(tokens.ids, expected.ids, expected.count * sizeof *expected.ids);
        spry_tokens_deinit(&tokens);
        spry_tokens_deinit(&expected);
        spry_buffer_deinit(&text);
        json_decref(root);
        spry_tokenizer_destroy(tokenizer);
    }
}

static void model_prompts_have_their_ids(void **state)
{
    (void)state;
    static const char *const models[] = {"llama", "qwen3", "gemma3", "phi3"};
    for (size_t m = 0; m < 4; m++) {
        char path[512];
        snprintf(path, sizeof path, TEST_DATA "/models/%s", models[m]);
        spry_tokenizer *tokenizer = open_tokenizer(path);
        assert_int_equal(spry_tokenizer_eos(tokenizer), 2);
        assert_int_equal(spry_tokenizer_bos(tokenizer), -1);
        snprintf(path, sizeof path, TEST_DATA "/models/%s/golden.json", models[m]);
        json_t *root = read_json(path), *cases = json_object_get(root, "cases");
        assert_true(json_array_size(cases) > 0);
        for (size_t i = 0; i < json_array_size(cases); i++) {
            const json_t *one = json_array_get(cases, i), *prompt = json_object_get(one, "prompt");
            if (json_is_string(prompt))
                check_ids(tokenizer, json_text(prompt), json_object_get(one, "ids"),
                          SPRY_ENCODE_SPECIAL | SPRY_ENCODE_BOS_EOS, models[m]);
        }
        json_decref(root);
        spry_tokenizer_destroy(tokenizer);
    }
}

/* ---- control tokens ---- */

static bool has_control(const spry_tokenizer *tokenizer, const spry_tokens *tokens)
{
    for (size_t i = 0; i < tokens->count; i++)
        if (spry_tokenizer_kind(tokenizer, tokens->ids[i]) == SPRY_TOKEN_CONTROL)
            return true;
    return false;
}

static void control_tokens_only_on_request(void **state)
{
    (void)state;
    for (size_t t = 0; t < N_NAMES; t++) {
        spry_tokenizer *tokenizer = open_named(names[t]);
        spry_view text = t < 3 ? SPRY_VIEW("hi<|im_start|>there") : SPRY_VIEW("hi<s>there");
        spry_tokens plain = encode(tokenizer, text, 0), asked = encode(tokenizer, text, SPRY_ENCODE_SPECIAL);
        assert_false(has_control(tokenizer, &plain));
        assert_true(has_control(tokenizer, &asked));
        check_decoded(tokenizer, &plain, false, text, names[t]);
        spry_tokens_deinit(&plain);
        spry_tokens_deinit(&asked);
        spry_tokenizer_destroy(tokenizer);
    }
}

static void literal_text_never_becomes_control_tokens(void **state)
{
    (void)state;
    spry_tokenizer *tokenizer = open_named("bpe-qwen2");
    spry_view text = SPRY_VIEW("<|im_start|>a<|im_end|>b<|im_start|><|im_end|>");
    spry_text_range ranges[] = {{13, 23}, {30, 36}}; /* the second token; the middle of the third */
    spry_error error = {0};
    spry_tokens tokens = {0};
    assert_int_equal(spry_tokenizer_encode(tokenizer, &tokens, text, ranges, 2, SPRY_ENCODE_SPECIAL, &error), SPRY_OK);
    size_t controls = 0;
    for (size_t i = 0; i < tokens.count; i++)
        controls += spry_tokenizer_kind(tokenizer, tokens.ids[i]) == SPRY_TOKEN_CONTROL;
    assert_int_equal(controls, 2);
    assert_int_equal(tokens.ids[0], 1);
    assert_int_equal(tokens.ids[tokens.count - 1], 2);
    check_decoded(tokenizer, &tokens, true, text, "literal");
    check_decoded(tokenizer, &tokens, false, SPRY_VIEW("a<|im_end|>b<|im_start|>"), "literal");
    spry_tokens_deinit(&tokens);
    spry_tokenizer_destroy(tokenizer);
}

/* Every single byte of a control token, taken literally, is enough. */
static void one_literal_byte_is_enough(void **state)
{
    (void)state;
    spry_tokenizer *tokenizer = open_named("bpe-llama3");
    spry_view text = SPRY_VIEW("x<|im_start|>y");
    for (size_t i = 0; i < text.size; i++) {
        spry_text_range range = {i, i + 1};
        spry_tokens tokens = {0};
        assert_int_equal(spry_tokenizer_encode(tokenizer, &tokens, text, &range, 1, SPRY_ENCODE_SPECIAL, NULL),
                         SPRY_OK);
        assert_int_equal(has_control(tokenizer, &tokens), i == 0 || i == text.size - 1);
        spry_tokens_deinit(&tokens);
    }
    spry_tokenizer_destroy(tokenizer);
}

/* ---- questions about ids ---- */

static void ids_answer_questions(void **state)
{
    (void)state;
    spry_tokenizer *tokenizer = open_named("spm-llama");
    assert_int_equal(spry_tokenizer_size(tokenizer), 2000);
    assert_int_equal(spry_tokenizer_bos(tokenizer), 1);
    assert_int_equal(spry_tokenizer_eos(tokenizer), 2);
    assert_true(spry_tokenizer_is_end(tokenizer, 2));
    assert_false(spry_tokenizer_is_end(tokenizer, 1));
    assert_int_equal(spry_tokenizer_kind(tokenizer, 0), SPRY_TOKEN_UNKNOWN);
    assert_int_equal(spry_tokenizer_kind(tokenizer, 1), SPRY_TOKEN_CONTROL);
    assert_int_equal(spry_tokenizer_kind(tokenizer, 3), SPRY_TOKEN_BYTE);
    assert_int_equal(spry_tokenizer_kind(tokenizer, 300), SPRY_TOKEN_NORMAL);
    assert_int_equal(spry_tokenizer_kind(tokenizer, -1), SPRY_TOKEN_UNUSED);
    assert_int_equal(spry_tokenizer_kind(tokenizer, 2000), SPRY_TOKEN_UNUSED);
    assert_true(spry_view_equal(spry_tokenizer_bytes(tokenizer, 3), (spry_view){"\0", 1}));
    assert_true(spry_view_is(spry_tokenizer_name(tokenizer, 3), "<0x00>"));
    int32_t the = spry_vocab_find(&tokenizer->vocab, SPRY_VIEW("\xE2\x96\x81the"));
    assert_true(the > 0);
    assert_true(spry_view_is(spry_tokenizer_bytes(tokenizer, the), " the"));
    assert_int_equal(spry_vocab_find(&tokenizer->vocab, SPRY_VIEW("no such token")), -1);
    assert_string_equal(spry_tokenizer_algorithm(tokenizer), "SentencePiece BPE");
    spry_tokenizer_destroy(tokenizer);

    tokenizer = open_named("bpe-qwen2");
    assert_string_equal(spry_tokenizer_algorithm(tokenizer), "BPE (qwen2 pattern)");
    assert_true(spry_tokenizer_is_end(tokenizer, spry_vocab_find(&tokenizer->vocab, SPRY_VIEW("<|im_end|>"))));
    assert_true(spry_tokenizer_is_end(tokenizer, spry_vocab_find(&tokenizer->vocab, SPRY_VIEW("<|endoftext|>"))));
    assert_false(spry_tokenizer_is_end(tokenizer, spry_vocab_find(&tokenizer->vocab, SPRY_VIEW("<|im_start|>"))));
    assert_true(spry_view_is(spry_tokenizer_bytes(tokenizer, 223), " "));
    spry_tokenizer_destroy(tokenizer);
}

static void an_id_out_of_range_is_named(void **state)
{
    (void)state;
    spry_tokenizer *tokenizer = open_named("bpe-gpt2");
    static const int32_t bad[] = {2000, -1, INT32_MAX, INT32_MIN};
    for (size_t i = 0; i < 4; i++) {
        spry_buffer out;
        spry_buffer_init(&out, 100);
        spry_error error = {0};
        char spelled[16];
        snprintf(spelled, sizeof spelled, " %d ", (int)bad[i]);
        assert_int_equal(spry_tokenizer_decode(tokenizer, &out, &bad[i], 1, true, &error), SPRY_ERR_INPUT);
        assert_non_null(strstr(error.message, spelled));
        spry_decoder decoder;
        spry_decoder_init(&decoder, tokenizer, true);
        assert_int_equal(spry_decoder_push(&decoder, &out, bad[i], &error), SPRY_ERR_INPUT);
        spry_buffer_deinit(&out);
    }
    spry_tokenizer_destroy(tokenizer);
}

/* ---- any bytes ---- */

static void any_bytes_come_back(void **state)
{
    (void)state;
    static const size_t exact[] = {0, 1, 3, 4}; /* Qwen2 normalises */
    char text[600];
    for (size_t t = 0; t < 4; t++) {
        spry_tokenizer *tokenizer = open_named(names[exact[t]]);
        uint64_t seed = 40 + t;
        for (int round = 0; round < 300; round++) {
            spry_view view = {text, random_text(text, 4 + random_next(&seed) % 590, &seed, false)};
            if (memmem(view.data, view.size, "\xE2\x96\x81", 3))
                continue; /* SentencePiece cannot tell it from a space */
            spry_tokens tokens = encode(tokenizer, view, 0);
            spry_buffer back = decode(tokenizer, &tokens, true);
            assert_int_equal(back.size, view.size);
            assert_memory_equal(back.data, view.data, view.size);
            spry_buffer_deinit(&back);
            spry_tokens_deinit(&tokens);
        }
        spry_tokenizer_destroy(tokenizer);
    }
}

/* ---- streaming ---- */

/* Pushes ids one by one. `out` never holds half a character on the way. */
static void stream(const spry_tokenizer *tokenizer, spry_buffer *out, const int32_t *ids, size_t count, bool special)
{
    spry_decoder decoder;
    spry_decoder_init(&decoder, tokenizer, special);
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(spry_decoder_push(&decoder, out, ids[i], NULL), SPRY_OK);
        assert_true(spry_utf8_valid(spry_buffer_view(out)));
    }
    spry_decoder_finish(&decoder, out);
    assert_true(spry_utf8_valid(spry_buffer_view(out)));
}

static void check_stream(const spry_tokenizer *tokenizer, const spry_tokens *tokens, bool special)
{
    spry_buffer whole = decode(tokenizer, tokens, special), expected, streamed;
    spry_buffer_init(&expected, TEXT_MAX);
    spry_buffer_init(&streamed, TEXT_MAX);
    spry_utf8_append_valid(&expected, spry_buffer_view(&whole));
    stream(tokenizer, &streamed, tokens->ids, tokens->count, special);
    assert_true(spry_view_equal(spry_buffer_view(&expected), spry_buffer_view(&streamed)));
    spry_buffer_deinit(&whole);
    spry_buffer_deinit(&expected);
    spry_buffer_deinit(&streamed);
}

static void streaming_equals_decoding(void **state)
{
    (void)state;
    for (size_t t = 0; t < N_NAMES; t++) {
        spry_tokenizer *tokenizer = open_named(names[t]);
        json_t *root, *cases = golden_cases(names[t], &root);
        for (size_t i = 0; i < json_array_size(cases); i++) {
            spry_tokens tokens =
                encode(tokenizer, json_text(json_object_get(json_array_get(cases, i), "text")), SPRY_ENCODE_SPECIAL);
            check_stream(tokenizer, &tokens, i % 2);
            spry_tokens_deinit(&tokens);
        }
        json_decref(root);
        uint64_t seed = t;
        for (int round = 0; round < 500; round++) { /* ids in any order: bytes that make no sense */
            spry_tokens tokens = {0};
            for (uint32_t n = random_next(&seed) % 40; n > 0; n--) {
                uint32_t range = round % 2 ? 2000 : 300; /* the first hold the single bytes */
                assert_true(spry_tokens_push(&tokens, (int32_t)(random_next(&seed) % range)));
            }
            check_stream(tokenizer, &tokens, round % 3 == 0);
            spry_tokens_deinit(&tokens);
        }
        spry_tokenizer_destroy(tokenizer);
    }
}

static void a_continued_text_keeps_its_space(void **state)
{
    (void)state;
    spry_tokenizer *tokenizer = open_named("spm-llama");
    int32_t the = spry_vocab_find(&tokenizer->vocab, SPRY_VIEW("\xE2\x96\x81the"));
    spry_buffer out;
    spry_buffer_init(&out, 100);
    stream(tokenizer, &out, &the, 1, false);
    assert_string_equal(out.data, "the");
    spry_decoder decoder;
    spry_decoder_init(&decoder, tokenizer, false);
    spry_decoder_continue(&decoder);
    assert_int_equal(spry_decoder_push(&decoder, &out, the, NULL), SPRY_OK);
    assert_string_equal(out.data, "the the");
    spry_buffer_deinit(&out);
    spry_tokenizer_destroy(tokenizer);
}

/* ---- threads ---- */

typedef struct encoding_thread {
    const spry_tokenizer *tokenizer;
    json_t *cases;
    size_t wrong;
} encoding_thread;

static void *encode_cases(void *argument)
{
    encoding_thread *work = argument;
    for (size_t i = 0; i < json_array_size(work->cases); i++) {
        const json_t *one = json_array_get(work->cases, i), *text = json_object_get(one, "text");
        spry_tokens tokens = {0};
        spry_tokenizer_encode(work->tokenizer, &tokens, (spry_view){json_string_value(text), json_string_length(text)},
                              NULL, 0, SPRY_ENCODE_SPECIAL, NULL);
        work->wrong += !same_ids(&tokens, json_object_get(one, "ids"));
        spry_tokens_deinit(&tokens);
    }
    return NULL;
}

static void threads_share_a_tokenizer(void **state)
{
    (void)state;
    spry_tokenizer *tokenizer = open_named("bpe-gpt2");
    json_t *root, *cases = golden_cases("bpe-gpt2", &root);
    pthread_t threads[4];
    encoding_thread work[4];
    for (size_t i = 0; i < 4; i++) {
        work[i] = (encoding_thread){tokenizer, cases, 0};
        assert_int_equal(pthread_create(&threads[i], NULL, encode_cases, &work[i]), 0);
    }
    for (size_t i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(work[i].wrong, 0);
    }
    json_decref(root);
    spry_tokenizer_destroy(tokenizer);
}

static void a_missing_file_is_named(void **state)
{
    (void)state;
    spry_tokenizer *tokenizer = NULL;
    spry_error error = {0};
    assert_int_equal(spry_tokenizer_open(&tokenizer, DATA "nowhere.json", &error), SPRY_ERR_FILE);
    assert_non_null(strstr(error.message, "nowhere.json"));
    assert_int_equal(spry_tokenizer_open(&tokenizer, TEST_DATA, &error), SPRY_ERR_FILE);
    assert_non_null(strstr(error.message, "neither tokenizer.json nor tokenizer.model"));
    assert_null(tokenizer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden_ids_and_texts),
        cmocka_unit_test(a_long_text_equals_its_lines),
        cmocka_unit_test(model_prompts_have_their_ids),
        cmocka_unit_test(control_tokens_only_on_request),
        cmocka_unit_test(literal_text_never_becomes_control_tokens),
        cmocka_unit_test(one_literal_byte_is_enough),
        cmocka_unit_test(ids_answer_questions),
        cmocka_unit_test(an_id_out_of_range_is_named),
        cmocka_unit_test(any_bytes_come_back),
        cmocka_unit_test(streaming_equals_decoding),
        cmocka_unit_test(a_continued_text_keeps_its_space),
        cmocka_unit_test(threads_share_a_tokenizer),
        cmocka_unit_test(a_missing_file_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
