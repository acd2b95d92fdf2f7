/* UTF-8 against an independent decoder over every character and every mix of boundary bytes, and against Unicode's own
 * examples and a public collection of good and bad sequences. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "base/utf8.h"

/* Both sides of every boundary that the definition of UTF-8 has. */
static const unsigned char boundary_bytes[] = {0x00, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0,
                                               0xC1, 0xC2, 0xDF, 0xE0, 0xE1, 0xEC, 0xED, 0xEE, 0xEF,
                                               0xF0, 0xF1, 0xF4, 0xF5, 0xF7, 0xF8, 0xFF};

/* The definition the other way round: take the bits, then refuse what a shorter form or no character has. */
static size_t plain_decode(uint32_t *character, const unsigned char *data, size_t size)
{
    static const uint32_t smallest[] = {0, 0, 0x80, 0x800, 0x10000};
    if (!size)
        return 0;
    size_t length = data[0] < 0x80 ? 1 : data[0] >> 5 == 6 ? 2 : data[0] >> 4 == 14 ? 3 : data[0] >> 3 == 30 ? 4 : 0;
    if (!length || length > size)
        return 0;
    uint32_t value = length == 1 ? data[0] : data[0] & (0x7Fu >> length);
    for (size_t i = 1; i < length; i++) {
        if (data[i] >> 6 != 2)
            return 0;
        value = value << 6 | (data[i] & 0x3F);
    }
    if (value < smallest[length] || value > 0x10FFFF || (value >= 0xD800 && value <= 0xDFFF))
        return 0;
    *character = value;
    return length;
}

static void assert_decodes_alike(const char *bytes, size_t size)
{
    uint32_t expected = 0, got = 0;
    size_t length = plain_decode(&expected, (const unsigned char *)bytes, size);
    assert_int_equal(spry_utf8_decode(&got, bytes, size), length);
    assert_int_equal(got, expected);
}

static void every_character_survives(void **state)
{
    (void)state;
    for (uint32_t c = 0; c <= 0x10FFFF; c++) {
        if (c >= 0xD800 && c <= 0xDFFF)
            continue;
        char bytes[4];
        uint32_t back = 0, plain = 0;
        size_t length = spry_utf8_encode(bytes, c);
        size_t expected = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
        if (length != expected || plain_decode(&plain, (unsigned char *)bytes, 4) != length || plain != c ||
            spry_utf8_decode(&back, bytes, length) != length || back != c ||
            spry_utf8_decode(&back, bytes, length - 1) != 0)
            fail_msg("U+%04X", (unsigned)c);
    }
}

static void boundary_bytes_decode_alike(void **state)
{
    (void)state;
    enum { N = SPRY_COUNT(boundary_bytes) };
    for (size_t code = 0; code < (size_t)N * N * N * N; code++) {
        char bytes[4];
        size_t rest = code;
        for (size_t i = 0; i < 4; i++, rest /= N)
            bytes[i] = (char)boundary_bytes[rest % N];
        assert_decodes_alike(bytes, 4);
    }
}

static void every_pair_and_length_decodes_alike(void **state)
{
    (void)state;
    assert_decodes_alike("", 0);
    for (unsigned pair = 0; pair < 65536; pair++) {
        char bytes[4] = {(char)(pair >> 8), (char)(pair & 0xFF), (char)0x80, (char)0xBF};
        for (size_t size = 1; size <= 4; size++)
            assert_decodes_alike(bytes, size);
    }
}

/* ---- streaming -------------------------------------------------------------------------------------------------- */

/* Bytes are an incomplete tail when appending some continuation bytes makes exactly one character. */
static bool can_be_completed(const unsigned char *data, size_t size)
{
    for (size_t first = 0x80; first <= 0xBF; first++) {
        unsigned char whole[8] = {0};
        memcpy(whole, data, size);
        whole[size] = (unsigned char)first;
        whole[size + 1] = whole[size + 2] = 0x80;
        uint32_t character;
        if (plain_decode(&character, whole, 8) > size)
            return true;
    }
    return false;
}

static void incomplete_tail_is_what_can_be_completed(void **state)
{
    (void)state;
    enum { N = SPRY_COUNT(boundary_bytes) };
    for (size_t code = 0; code < (size_t)N * N * N; code++) {
        unsigned char bytes[4] = {'a', boundary_bytes[code % N], boundary_bytes[code / N % N],
                                  boundary_bytes[code / N / N]};
        size_t expected = 0;
        for (size_t back = 1; back <= 3 && !expected; back++)
            if (can_be_completed(bytes + 4 - back, back))
                expected = back;
        assert_int_equal(spry_utf8_incomplete_tail((const char *)bytes, 4), expected);
    }
    assert_int_equal(spry_utf8_incomplete_tail("", 0), 0);
    assert_int_equal(spry_utf8_incomplete_tail("\xF0", 1), 1);
    assert_int_equal(spry_utf8_incomplete_tail("\xF0\x9F\x98", 3), 3);
    assert_int_equal(spry_utf8_incomplete_tail("\xF0\x9F\x98\x80", 4), 0);
    assert_int_equal(spry_utf8_incomplete_tail("\xF0\x9F\x98\x80\xE2\x82", 6), 2);
}

/* Text cut anywhere: what is held back plus what comes next is whole again. */
static void cut_text_is_never_torn(void **state)
{
    (void)state;
    static const char text[] = "a\xC3\xA9\xE2\x82\xAC\xF0\x9F\xA6\x8A z\xED\x9F\xBF\xEF\xBF\xBF\xF4\x8F\xBF\xBF";
    for (size_t cut = 0; cut < sizeof text; cut++) {
        size_t held = spry_utf8_incomplete_tail(text, cut);
        assert_true(spry_utf8_valid((spry_view){text, cut - held}));
        assert_true(spry_utf8_valid((spry_view){text + cut - held, sizeof text - 1 - (cut - held)}));
    }
}

/* ---- repair ----------------------------------------------------------------------------------------------------- */

static void assert_repaired(const char *name, spry_view text, spry_view expected)
{
    spry_buffer out;
    spry_buffer_init(&out, 4096);
    size_t replaced = spry_utf8_append_valid(&out, text);
    if (!spry_view_equal(spry_buffer_view(&out), expected))
        fail_msg("%s: got \"%.*s\"", name, SPRY_VIEW_ARG(spry_buffer_view(&out)));
    assert_int_equal(replaced == 0, spry_utf8_valid(text));
    assert_true(spry_utf8_valid(spry_buffer_view(&out)));
    spry_buffer_deinit(&out);
}

#define R "\xEF\xBF\xBD"

/* The examples of the Unicode standard, chapter 3, for one U+FFFD per maximal part, and the ends of text. */
static void ill_formed_parts_are_replaced(void **state)
{
    (void)state;
    static const struct {
        spry_view text, expected;
    } cases[] = {
        {SPRY_VIEW("\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41"), SPRY_VIEW(R R R R R R R R "A")},
        {SPRY_VIEW("\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41"), SPRY_VIEW(R R R R R R R R "A")},
        {SPRY_VIEW("\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42"), SPRY_VIEW(R R R R R "A" R R "B")},
        {SPRY_VIEW("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41"), SPRY_VIEW(R R R R "A")},
        {SPRY_VIEW("a\xF1\x80\x80"), SPRY_VIEW("a" R)},
        {SPRY_VIEW("\xE2\x82"), SPRY_VIEW(R)},
        {SPRY_VIEW("ok \xF0\x9F\xA6\x8A ok"), SPRY_VIEW("ok \xF0\x9F\xA6\x8A ok")},
        {SPRY_VIEW("a\0b\xFF"
                   "c"),
         SPRY_VIEW("a\0b" R "c")},
        {SPRY_VIEW(""), SPRY_VIEW("")},
    };
    for (size_t i = 0; i < SPRY_COUNT(cases); i++)
        assert_repaired("case", cases[i].text, cases[i].expected);
    assert_repaired("no bytes", (spry_view){NULL, 0}, SPRY_VIEW(""));
}

static void repair_respects_the_maximum(void **state)
{
    (void)state;
    spry_buffer out;
    spry_buffer_init(&out, 5);
    assert_int_equal(spry_utf8_append_valid(&out, SPRY_VIEW("abc\xFF")), 1);
    assert_true(out.failed);
    spry_buffer_deinit(&out);
}

/* ---- a public collection ---------------------------------------------------------------------------------------- */

/* The text of a line "number:valid:text" or "number:invalid:text". */
static spry_view text_of_line(char *line, ssize_t length, bool *valid)
{
    char *first = strchr(line, ':');
    assert_non_null(first);
    char *second = strchr(first + 1, ':');
    assert_non_null(second);
    *valid = strncmp(first + 1, "valid", 5) == 0;
    if (length && line[length - 1] == '\n')
        length--;
    return (spry_view){second + 1, (size_t)(line + length - (second + 1))};
}

static void public_collection_agrees(void **state)
{
    (void)state;
    FILE *texts = fopen(PUBLIC_DATA "/badinput/utf8/flenniken_utf8tests.bin", "r");
    FILE *repaired = fopen(PUBLIC_DATA "/badinput/utf8/flenniken_utf8.replace.ref.txt", "r");
    if (!texts || !repaired) {
        print_message("SKIPPED public_collection_agrees: ../shared/public is not there\n");
        skip();
    }
    char *line = NULL, *wanted = NULL;
    size_t line_capacity = 0, wanted_capacity = 0, count = 0;
    for (;;) {
        ssize_t length = getline(&line, &line_capacity, texts);
        ssize_t wanted_length = getline(&wanted, &wanted_capacity, repaired);
        assert_int_equal(length < 0, wanted_length < 0);
        if (length < 0)
            break;
        bool valid, wanted_valid;
        spry_view text = text_of_line(line, length, &valid);
        spry_view expected = text_of_line(wanted, wanted_length, &wanted_valid);
        if (spry_utf8_valid(text) != valid)
            fail_msg("%s", line);
        assert_repaired(line, text, expected);
        count++;
    }
    assert_int_equal(count, 222);
    free(line);
    free(wanted);
    fclose(texts);
    fclose(repaired);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_character_survives),
        cmocka_unit_test(boundary_bytes_decode_alike),
        cmocka_unit_test(every_pair_and_length_decodes_alike),
        cmocka_unit_test(incomplete_tail_is_what_can_be_completed),
        cmocka_unit_test(cut_text_is_never_torn),
        cmocka_unit_test(ill_formed_parts_are_replaced),
        cmocka_unit_test(repair_respects_the_maximum),
        cmocka_unit_test(public_collection_agrees),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
