/* WordPiece and Unigram: known cases, all segmentations tried for random texts, and what happens to text before. */
#include <math.h>
#include <string.h>

#include "tokenizer/normalize.h"
#include "tokenizer/symbols.h"
#include "unit/tokenizer_testing.h"

/* Ids as text: "3 1 4". */
static void expect(const spry_tokenizer *tokenizer, const char *text, const char *ids)
{
    spry_tokens out = {0};
    spry_error error = {0};
    char got[512] = "";
    assert_int_equal(spry_tokenizer_encode(tokenizer, &out, spry_view_of(text), NULL, 0, 0, &error), SPRY_OK);
    for (size_t i = 0, used = 0; i < out.count; i++)
        used += (size_t)snprintf(got + used, sizeof got - used, "%s%d", i ? " " : "", (int)out.ids[i]);
    assert_string_equal(got, ids);
    spry_tokens_deinit(&out);
}

static spry_tokenizer *from_text(const char *json)
{
    spry_tokenizer *tokenizer = NULL;
    spry_error error = {0};
    if (make_tokenizer_json(&tokenizer, spry_view_of(json), "words", &error))
        fail_msg("%s", error.message);
    return tokenizer;
}

static const char wordpiece[] =
    "{\"normalizer\":{\"type\":\"BertNormalizer\"},\"pre_tokenizer\":{\"type\":\"BertPreTokenizer\"},"
    "\"decoder\":{\"type\":\"WordPiece\"},\"model\":{\"type\":\"WordPiece\",\"unk_token\":\"[UNK]\","
    "\"max_input_chars_per_word\":6,\"vocab\":{\"[UNK]\":0,\"un\":1,\"##aff\":2,\"##able\":3,\"##a\":4,\"cafe\":5,"
    "\"!\":6,\"\xE4\xBD\xA0\":7,\"u\":8}}}";

static void test_wordpiece(void **state)
{
    (void)state;
    spry_tokenizer *t = from_text(wordpiece);
    assert_string_equal(spry_tokenizer_algorithm(t), "WordPiece");
    expect(t, "unaffa", "1 2 4");
    expect(t, "UnaFF un!!u", "1 2 1 6 6 8");
    expect(t, "unx un", "0 1");     /* a word whose rest is no token is unknown as a whole */
    expect(t, "unaffaa un", "0 1"); /* longer than 6 characters */
    expect(t, "caf\xC3\xA9 CAFE\xCC\x81", "5 5");
    expect(t, "u\xE4\xBD\xA0u", "8 7 8");
    expect(t, "un\x01\t\n\xE3\x80\x80u", "1 8");
    expect(t, "", "");
    spry_buffer text;
    spry_buffer_init(&text, 64);
    assert_int_equal(spry_tokenizer_decode(t, &text, (const int32_t[]){1, 2, 6}, 3, false, NULL), SPRY_OK);
    assert_string_equal(text.data, "unaff !");
    spry_buffer_deinit(&text);
    spry_tokenizer_destroy(t);
}

static const char unigram[] =
    "{\"normalizer\":null,\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"WhitespaceSplit\"},"
    "{\"type\":\"Metaspace\",\"replacement\":\"\xE2\x96\x81\",\"prepend_scheme\":\"always\"}]},"
    "\"model\":{\"type\":\"Unigram\",\"unk_id\":0,\"vocab\":[[\"<unk>\",0.0],[\"\xE2\x96\x81\",-2.0],[\"a\",-1.5],"
    "[\"b\",-1.75],[\"ab\",-2.5],[\"aba\",-4.75],[\"\xE2\x96\x81"
    "a\",-3.0],[\"bb\",-3.25]]}}";

/* The best score of a text from `at` on, trying everything. */
static double best(const char *text, size_t at)
{
    static const struct {
        const char *name;
        double score;
    } pieces[] = {{"_", -2}, {"a", -1.5}, {"b", -1.75}, {"ab", -2.5}, {"aba", -4.75}, {"_a", -3}, {"bb", -3.25}};
    double most = text[at] ? -INFINITY : 0;
    for (size_t i = 0; text[at] && i < SPRY_COUNT(pieces); i++)
        if (!strncmp(text + at, pieces[i].name, strlen(pieces[i].name)))
            most = fmax(most, pieces[i].score + best(text, at + strlen(pieces[i].name)));
    return most;
}

static void test_unigram(void **state)
{
    (void)state;
    static const double scores[] = {0, -2, -1.5, -1.75, -2.5, -4.75, -3, -3.25};
    spry_tokenizer *t = from_text(unigram);
    assert_string_equal(spry_tokenizer_algorithm(t), "Unigram");
    expect(t, "ab  a\n", "1 4 6");
    expect(t, "zzb", "1 0 3"); /* a run of unknown characters is one token */
    expect(t, "bzb", "1 3 0 3");
    uint64_t random = 5;
    for (int round = 0; round < 200; round++) {
        char text[16], plain[18] = "_";
        size_t n = 1 + random_next(&random) % 12;
        for (size_t i = 0; i < n; i++)
            text[i] = "ab"[random_next(&random) % 2];
        text[n] = 0;
        memcpy(plain + 1, text, n + 1);
        spry_tokens ids = {0};
        double score = 0;
        assert_int_equal(spry_tokenizer_encode(t, &ids, spry_view_of(text), NULL, 0, 0, NULL), SPRY_OK);
        for (size_t i = 0; i < ids.count; i++)
            score += scores[ids.ids[i]];
        assert_float_equal(score, best(plain, 0), 1e-9);
        spry_tokens_deinit(&ids);
    }
    spry_tokenizer_destroy(t);
}

/* A map with one spelling: A becomes "xy". */
static void test_charsmap(void **state)
{
    (void)state;
    enum { UNITS = 0x142 };
    struct {
        uint32_t size, units[UNITS];
        char texts[4];
    } map = {.size = UNITS * 4, .texts = "xy"};
    map.units[0] = 0x100 << 10;
    map.units[0x141] = 'A' | 0x100 | 1 << 10;
    map.units[0x140] = 0x80000000;
    spry_charsmap chars;
    spry_buffer out;
    spry_error error = {0};
    spry_buffer_init(&out, 64);
    assert_int_equal(spry_charsmap_init(&chars, (spry_view){(char *)&map, sizeof map}, &error), SPRY_OK);
    assert_true(spry_charsmap_apply(&out, &chars, SPRY_VIEW("bA\xC3\xA9 A\xFF")));
    assert_string_equal(out.data, "bxy\xC3\xA9 xy\xFF");
    map.units[0x141] |= 0x7FFu << 20; /* a way out of the trie ends the search */
    spry_buffer_clear(&out);
    assert_true(spry_charsmap_apply(&out, &chars, SPRY_VIEW("A")));
    assert_string_equal(out.data, "A");
    spry_buffer_deinit(&out);
    for (size_t cut = 0; cut < sizeof map - 1; cut += 97)
        if (cut < 4 + UNITS * 4)
            assert_int_equal(spry_charsmap_init(&chars, (spry_view){(char *)&map, cut}, &error), SPRY_ERR_FORMAT);
    map.texts[3] = 'z';
    assert_int_equal(spry_charsmap_init(&chars, (spry_view){(char *)&map, sizeof map}, &error), SPRY_ERR_FORMAT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_wordpiece),
        cmocka_unit_test(test_unigram),
        cmocka_unit_test(test_charsmap),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
