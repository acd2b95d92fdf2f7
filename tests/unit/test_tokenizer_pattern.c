/* Unicode classes and normal forms, scanners against the regular expressions they stand for, splitting. */
#include "tokenizer_testing.h"

#include <time.h>
#include <utf8proc.h>

#include "tokenizer/split.h"

static spry_unicode unicode;

static spry_pattern *pattern_of(const char *regex)
{
    spry_pattern *pattern = NULL;
    spry_error error = {0};
    if (spry_pattern_create(&pattern, spry_view_of(regex), false, &error))
        fail_msg("%s", error.message);
    return pattern;
}

/* ---- classes ---- */

/* Every character once, and where each starts. */
static char *all_characters(size_t *size, uint32_t **starts)
{
    char *text = malloc(4 * 0x110000);
    *starts = calloc(0x110001, sizeof **starts);
    *size = 0;
    for (uint32_t c = 0; c < 0x110000; c++) {
        (*starts)[c] = (uint32_t)*size;
        if (c < 0xD800 || c > 0xDFFF)
            *size += spry_utf8_encode(text + *size, c);
    }
    (*starts)[0x110000] = (uint32_t)*size;
    return text;
}

/* Marks in `matches` the characters a one-character expression matches. */
static void mark_matches(bool *matches, const char *regex, spry_view text)
{
    spry_pattern *pattern = pattern_of(regex);
    spry_pattern_scratch scratch = {0};
    spry_text_range match;
    bool found;
    size_t from = 0;
    memset(matches, 0, text.size);
    while (!spry_pattern_find(pattern, &scratch, text, from, &found, &match, NULL) && found) {
        matches[match.begin] = true;
        from = match.end;
    }
    spry_pattern_scratch_deinit(&scratch);
    spry_pattern_destroy(pattern);
}

/* PCRE2 and utf8proc may know different versions of Unicode: what one takes for unassigned is not compared. */
static void classes_agree_with_pcre(void **state)
{
    (void)state;
    static const struct {
        const char *regex;
        unsigned class;
    } classes[] = {{"\\p{L}", SPRY_CHAR_LETTER}, {"\\p{N}", SPRY_CHAR_NUMBER}, {"\\s", SPRY_CHAR_SPACE}};
    uint32_t *starts;
    size_t size;
    char *text = all_characters(&size, &starts);
    bool *unassigned = malloc(size), *matches = malloc(size);
    mark_matches(unassigned, "\\p{Cn}", (spry_view){text, size});
    for (size_t k = 0; k < 3; k++) {
        size_t compared = 0;
        mark_matches(matches, classes[k].regex, (spry_view){text, size});
        for (uint32_t c = 0; c < 0x110000; c++) {
            if ((c >= 0xD800 && c <= 0xDFFF) || unassigned[starts[c]])
                continue;
            size_t length;
            unsigned found = spry_unicode_next(&unicode, text + starts[c], size - starts[c], &length);
            if (((found & classes[k].class) != 0) != matches[starts[c]])
                fail_msg("U+%04X and %s", (unsigned)c, classes[k].regex);
            compared++;
        }
        assert_true(compared > 100000);
    }
    free(text);
    free(starts);
    free(unassigned);
    free(matches);
}

static void previous_mirrors_next(void **state)
{
    (void)state;
    char text[400];
    uint64_t seed = 7;
    for (int round = 0; round < 200; round++) {
        size_t size = random_text(text, sizeof text, &seed, true), length, back;
        for (size_t i = 0; i < size; i += length) {
            unsigned forward = spry_unicode_next(&unicode, text + i, size - i, &length);
            assert_int_equal(spry_unicode_previous(&unicode, text, i + length, &back), forward);
            assert_int_equal(back, length);
        }
    }
}

/* ---- normal forms ---- */

static void check_form(spry_view text, spry_normal_form form, spry_view expected)
{
    spry_buffer out;
    spry_buffer_init(&out, TEXT_MAX);
    assert_true(spry_unicode_normalize(&out, &unicode, text, form));
    if (!spry_view_equal(spry_buffer_view(&out), expected))
        fail_msg("form %d of \"%.*s\" is \"%s\", not \"%.*s\"", (int)form, (int)text.size, text.data, out.data,
                 (int)expected.size, expected.data);
    spry_buffer_deinit(&out);
}

static void forms_agree_with_utf8proc(void **state)
{
    (void)state;
    static const unsigned options[] = {
        [SPRY_NFC] = UTF8PROC_COMPOSE,
        [SPRY_NFD] = UTF8PROC_DECOMPOSE,
        [SPRY_NFKC] = UTF8PROC_COMPOSE | UTF8PROC_COMPAT,
        [SPRY_NFKD] = UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT,
    };
    char text[120];
    uint64_t seed = 11;
    for (int round = 0; round < 4000; round++) {
        size_t size = random_text(text, sizeof text, &seed, true);
        spry_normal_form form = (spry_normal_form)(round % 4);
        utf8proc_uint8_t *expected = NULL;
        utf8proc_ssize_t length = utf8proc_map((const utf8proc_uint8_t *)text, (utf8proc_ssize_t)size, &expected,
                                               (utf8proc_option_t)(UTF8PROC_STABLE | options[form]));
        assert_true(length >= 0);
        spry_view view = {text, size}, wanted = {(const char *)expected, (size_t)length};
        check_form(view, form, wanted);
        if (form == SPRY_NFC && spry_unicode_settled(&unicode, view))
            assert_true(spry_view_equal(view, wanted));
        free(expected);
    }
}

/* No character that NFC changes passes for settled. */
static void unsettled_characters_are_known(void **state)
{
    (void)state;
    for (uint32_t c = 0; c < 0x30000; c++) {
        if (c >= 0xD800 && c <= 0xDFFF)
            continue;
        char text[8];
        size_t size = spry_utf8_encode(text, c);
        utf8proc_uint8_t *expected = NULL;
        utf8proc_ssize_t length = utf8proc_map((const utf8proc_uint8_t *)text, (utf8proc_ssize_t)size, &expected,
                                               (utf8proc_option_t)(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
        assert_true(length >= 0);
        bool same = (size_t)length == size && memcmp(expected, text, size) == 0;
        free(expected);
        if (!same && spry_unicode_settled(&unicode, (spry_view){text, size}))
            fail_msg("U+%04X is not settled", (unsigned)c);
    }
}

/* Takes a column of code points, as hexadecimal numbers; returns what follows its semicolon. */
static const char *take_column(const char *line, char *out, size_t *size)
{
    *size = 0;
    while (*line != ';') {
        char *end;
        *size += spry_utf8_encode(out + *size, (uint32_t)strtoul(line, &end, 16));
        line = *end == ' ' ? end + 1 : end;
    }
    return line + 1;
}

static void unicode_own_normalisation_test(void **state)
{
    (void)state;
    if (skipped_without_public("unicode_own_normalisation_test"))
        return;
    FILE *file = fopen(PUBLIC_DATA "/badinput/utf8/NormalizationTest.txt", "r");
    assert_non_null(file);
    char line[2048];
    size_t checked = 0;
    while (fgets(line, sizeof line, file)) {
        if (line[0] == '#' || line[0] == '@' || line[0] == '\n')
            continue;
        char text[5][256];
        size_t sizes[5];
        const char *rest = line;
        for (size_t i = 0; i < 5; i++)
            rest = take_column(rest, text[i], &sizes[i]);
        bool known = true; /* to this utf8proc */
        for (size_t i = 0, n; i < sizes[0]; i += n) {
            uint32_t character = 0;
            n = spry_utf8_decode(&character, text[0] + i, sizes[0] - i);
            known &= utf8proc_category((utf8proc_int32_t)character) != UTF8PROC_CATEGORY_CN;
        }
        if (!known)
            continue;
        for (size_t form = 0; form < 4; form++) {
            static const size_t column[] = {[SPRY_NFC] = 1, [SPRY_NFD] = 2, [SPRY_NFKC] = 3, [SPRY_NFKD] = 4};
            check_form((spry_view){text[0], sizes[0]}, (spry_normal_form)form,
                       (spry_view){text[column[form]], sizes[column[form]]});
        }
        checked++;
    }
    fclose(file);
    assert_true(checked > 10000);
}

/* Alternating marks are the worst case of sorting by insertion. */
static void long_runs_of_marks_take_linear_time(void **state)
{
    (void)state;
    size_t count = 1 << 18;
    char *text = malloc(4 * count + 1);
    text[0] = 'a';
    for (size_t i = 0; i < count; i++)
        memcpy(text + 1 + 4 * i, "\xCC\x81\xCC\x96", 4); /* U+0301 (class 230), U+0316 (class 220) */
    spry_buffer out;
    spry_buffer_init(&out, TEXT_MAX);
    clock_t start = clock();
    assert_true(spry_unicode_normalize(&out, &unicode, (spry_view){text, 4 * count + 1}, SPRY_NFC));
    assert_true(clock() - start < 5 * CLOCKS_PER_SEC);
    /* All the 220s come first; the first 230 then joins the letter. */
    assert_memory_equal(out.data, "\xC3\xA1\xCC\x96\xCC\x96", 6);
    assert_int_equal(out.size, 4 * count);
    spry_buffer_deinit(&out);
    free(text);
}

static void bytes_that_are_not_utf8_stay(void **state)
{
    (void)state;
    check_form(SPRY_VIEW("e\xCC\x81\xFF\xCC\x81"), SPRY_NFC, SPRY_VIEW("\xC3\xA9\xFF\xCC\x81"));
    check_form(SPRY_VIEW("\xC3\xA9\x80\xE2\x82"), SPRY_NFD, SPRY_VIEW("e\xCC\x81\x80\xE2\x82"));
}

/* ---- scanners ---- */

/* The end of the piece at `begin` by the expression: its match, or the text before the next match. */
static size_t pcre_end(const spry_pattern *pattern, spry_pattern_scratch *scratch, spry_view text, size_t begin)
{
    bool found;
    spry_text_range match;
    assert_int_equal(spry_pattern_find(pattern, scratch, text, begin, &found, &match, NULL), SPRY_OK);
    if (!found)
        return text.size;
    return match.begin > begin ? match.begin : match.end;
}

static void check_scan(const char *regex, const spry_scan *scan, const spry_pattern *pattern,
                       spry_pattern_scratch *scratch, spry_view text)
{
    size_t end;
    for (size_t at = 0; at < text.size; at = end) {
        end = spry_scan_next(scan, &unicode, text, at);
        size_t expected = pcre_end(pattern, scratch, text, at);
        if (end != expected) {
            printf("text:");
            for (size_t i = at; i < text.size && i < at + 40; i++)
                printf(" %02X", (unsigned char)text.data[i]);
            fail_msg("\n%s: a piece of %zu bytes, not of %zu", regex, end - at, expected - at);
        }
    }
}

static const char *const scanned[] = {
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+",
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)",
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| "
    "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+"
    "|\\s+(?!\\S)|\\s+",
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+"
    "|\\s+(?!\\S)|\\s+",
    "(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}"
    "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
    "(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}"
    "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
    "'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*|\\s*[\\r\\n]"
    "|\\s+(?!\\S)|\\s+",
    "'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*|\\s*[\\r\\n]"
    "|\\s+(?!\\S)|\\s+",
};

static void scanners_equal_their_patterns(void **state)
{
    (void)state;
    for (size_t k = 0; k < sizeof scanned / sizeof scanned[0]; k++) {
        spry_scan scan;
        assert_true(spry_scan_find(&scan, spry_view_of(scanned[k])));
        spry_pattern *pattern = pattern_of(scanned[k]);
        spry_pattern_scratch scratch = {0};
        uint64_t seed = 100 + k;
        char text[300];
        for (int round = 0; round < 2500; round++) {
            size_t size = random_text(text, 4 + random_next(&seed) % (sizeof text - 4), &seed, true);
            check_scan(scanned[k], &scan, pattern, &scratch, (spry_view){text, size});
        }
        spry_pattern_scratch_deinit(&scratch);
        spry_pattern_destroy(pattern);
    }
}

/* All strings of five characters over a small alphabet that reaches every branch. */
static void scanners_equal_their_patterns_on_all_short_texts(void **state)
{
    (void)state;
    static const char *const letters[] = {" ", "\n", "\t", "'", "s", "L", "7", "!", "\xC5\xBF"};
    enum { N = sizeof letters / sizeof letters[0] };
    static const size_t patterns[] = {0, 2, 3};
    for (size_t k = 0; k < 3; k++) {
        spry_scan scan;
        assert_true(spry_scan_find(&scan, spry_view_of(scanned[patterns[k]])));
        spry_pattern *pattern = pattern_of(scanned[patterns[k]]);
        spry_pattern_scratch scratch = {0};
        for (uint32_t code = 0; code < N * N * N * N * N; code++) {
            char text[16];
            size_t size = 0;
            for (uint32_t rest = code, i = 0; i < 5; i++, rest /= N) {
                size_t length = strlen(letters[rest % N]);
                memcpy(text + size, letters[rest % N], length);
                size += length;
            }
            check_scan(scanned[patterns[k]], &scan, pattern, &scratch, (spry_view){text, size});
        }
        spry_pattern_scratch_deinit(&scratch);
        spry_pattern_destroy(pattern);
    }
}

static void scanners_tile_any_bytes(void **state)
{
    (void)state;
    char text[200];
    uint64_t seed = 3;
    for (size_t k = 0; k < 4; k++) {
        spry_scan scan;
        assert_true(spry_scan_find(&scan, spry_view_of(scanned[k])));
        for (int round = 0; round < 2000; round++) {
            size_t size = random_text(text, sizeof text, &seed, false), end;
            for (size_t at = 0; at < size; at = end) {
                end = spry_scan_next(&scan, &unicode, (spry_view){text, size}, at);
                assert_true(end > at && end <= size);
            }
        }
    }
}

/* ---- splitting ---- */

static void check_split(const spry_splitter *splitter, const char *text, const char *expected)
{
    spry_split_scratch scratch = {0};
    const spry_text_range *pieces;
    size_t count;
    char joined[256] = "";
    assert_int_equal(spry_splitter_run(splitter, &scratch, &unicode, spry_view_of(text), &pieces, &count, NULL),
                     SPRY_OK);
    for (size_t i = 0; i < count; i++)
        snprintf(joined + strlen(joined), sizeof joined - strlen(joined), "%s%.*s", i ? "|" : "",
                 (int)(pieces[i].end - pieces[i].begin), text + pieces[i].begin);
    assert_string_equal(joined, expected);
    spry_split_scratch_deinit(&scratch);
}

static void check_one_split(const char *regex, spry_split_behavior behavior, bool invert, const char *text,
                            const char *expected)
{
    spry_splitter splitter = {0};
    spry_error error = {0};
    if (spry_splitter_add(&splitter, spry_view_of(regex), false, behavior, invert, &error))
        fail_msg("%s", error.message);
    check_split(&splitter, text, expected);
    spry_splitter_deinit(&splitter);
}

/* Expected pieces are what the tokenizers library documents for each behavior. */
static void behaviors_split_as_documented(void **state)
{
    (void)state;
    const char *text = "the-final--countdown";
    check_one_split("-", SPRY_SPLIT_REMOVED, false, text, "the|final|countdown");
    check_one_split("-", SPRY_SPLIT_ISOLATED, false, text, "the|-|final|-|-|countdown");
    check_one_split("-", SPRY_SPLIT_WITH_PREVIOUS, false, text, "the-|final-|-|countdown");
    check_one_split("-", SPRY_SPLIT_WITH_NEXT, false, text, "the|-final|-|-countdown");
    check_one_split("-", SPRY_SPLIT_CONTIGUOUS, false, text, "the|-|final|--|countdown");
    check_one_split("[a-z]+", SPRY_SPLIT_REMOVED, true, text, "the|final|countdown");
    check_one_split("\\w+|[^\\w\\s]+", SPRY_SPLIT_REMOVED, true, " How are you?", "How|are|you|?");
}

static void steps_follow_each_other(void **state)
{
    (void)state;
    spry_splitter splitter = {0};
    spry_error error = {0};
    static const char *const regexes[] = {"\\p{N}{1,3}", "[A-Z]", "(?=(?:\\d{2})+(?!\\d))"};
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(
            spry_splitter_add(&splitter, spry_view_of(regexes[i]), false, SPRY_SPLIT_ISOLATED, false, &error), SPRY_OK);
    check_split(&splitter, "ab12345Cd", "ab|1|23|45|C|d"); /* the last pattern only matches empty places */
    spry_splitter_deinit(&splitter);
}

static void oniguruma_is_translated(void **state)
{
    (void)state;
    /* A bracket inside a class starts a set, whose members join it. */
    check_one_split(" ?[^(\\s|[.,!?])]+", SPRY_SPLIT_ISOLATED, false, "one two.(3)", "one| two|.(|3|)");
    check_one_split("[[:digit:]x]", SPRY_SPLIT_ISOLATED, false, "a1x]", "a|1|x|]");
    check_one_split("[]a]", SPRY_SPLIT_ISOLATED, false, "]ab", "]|a|b");
    check_one_split("[\\]a]", SPRY_SPLIT_ISOLATED, false, "]ab", "]|a|b");
    check_one_split("\\s", SPRY_SPLIT_ISOLATED, false,
                    "a\xE1\xA0\x8E"
                    "b",
                    "a\xE1\xA0\x8E"
                    "b"); /* not U+180E */
}

static void bad_patterns_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *regex, *says;
    } bad[] = {
        {"(", "cannot be compiled"},
        {"[a-z&&[aeiou]]", "intersection"},
        {"[a[^b]]", "negated set"},
        {"\\C", "cannot be compiled"},
        {"", "0 bytes"},
        {"[", "cannot be compiled"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        spry_pattern *pattern = NULL;
        spry_error error = {0};
        assert_int_not_equal(spry_pattern_create(&pattern, spry_view_of(bad[i].regex), false, &error), SPRY_OK);
        assert_null(pattern);
        assert_non_null(strstr(error.message, bad[i].says));
    }
}

/* An expression with exponential backtracking ends with an error, soon. */
static void a_hostile_pattern_does_not_hang(void **state)
{
    (void)state;
    spry_splitter splitter = {0};
    spry_error error = {0};
    assert_int_equal(
        spry_splitter_add(&splitter, SPRY_VIEW("(?:a|aa|a+)+$"), false, SPRY_SPLIT_ISOLATED, false, &error), SPRY_OK);
    char text[65];
    memset(text, 'a', 64);
    text[64] = 'b';
    spry_split_scratch scratch = {0};
    const spry_text_range *pieces;
    size_t count;
    clock_t start = clock();
    assert_int_equal(spry_splitter_run(&splitter, &scratch, &unicode, (spry_view){text, 65}, &pieces, &count, &error),
                     SPRY_ERR_INPUT);
    assert_true(clock() - start < 5 * CLOCKS_PER_SEC);
    assert_non_null(strstr(error.message, "pattern"));
    spry_split_scratch_deinit(&scratch);
    spry_splitter_deinit(&splitter);
}

static void named_patterns_compile(void **state)
{
    (void)state;
    static const char *const names[] = {"gpt-2",  "llama-bpe", "qwen2",  "deepseek-r1-qwen", "qwen35",
                                        "smollm", "tekken",    "gpt-4o", "deepseek-v3",      "deepseek-coder",
                                        "falcon", "bloom",     "viking", "default",          "llama3",
                                        "phi-2",  "smaug-bpe"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const spry_named_pattern *named = spry_named_pattern_find(spry_view_of(names[i]));
        if (!named)
            fail_msg("%s is not known", names[i]);
        spry_splitter splitter = {0};
        spry_error error = {0};
        size_t count = 0;
        spry_view regexes[SPRY_NAMED_REGEXES_MAX];
        for (; count < SPRY_NAMED_REGEXES_MAX && named->regexes[count]; count++) {
            regexes[count] = spry_view_of(named->regexes[count]);
            if (spry_splitter_add(&splitter, regexes[count], false, SPRY_SPLIT_ISOLATED, false, &error))
                fail_msg("%s: %s", names[i], error.message);
        }
        assert_ptr_equal(spry_named_pattern_of(regexes, count, named->nfc, named->ignore_merges), named);
        check_split(&splitter, "x", "x");
        spry_splitter_deinit(&splitter);
    }
    assert_null(spry_named_pattern_find(SPRY_VIEW("nonsense")));
}

static int prepare(void **state)
{
    (void)state;
    spry_unicode_init(&unicode);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(classes_agree_with_pcre),
        cmocka_unit_test(previous_mirrors_next),
        cmocka_unit_test(forms_agree_with_utf8proc),
        cmocka_unit_test(unsettled_characters_are_known),
        cmocka_unit_test(unicode_own_normalisation_test),
        cmocka_unit_test(long_runs_of_marks_take_linear_time),
        cmocka_unit_test(bytes_that_are_not_utf8_stay),
        cmocka_unit_test(scanners_equal_their_patterns),
        cmocka_unit_test(scanners_equal_their_patterns_on_all_short_texts),
        cmocka_unit_test(scanners_tile_any_bytes),
        cmocka_unit_test(behaviors_split_as_documented),
        cmocka_unit_test(steps_follow_each_other),
        cmocka_unit_test(oniguruma_is_translated),
        cmocka_unit_test(bad_patterns_are_refused),
        cmocka_unit_test(a_hostile_pattern_does_not_hang),
        cmocka_unit_test(named_patterns_compile),
    };
    return cmocka_run_group_tests(tests, prepare, NULL);
}
