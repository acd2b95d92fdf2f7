/* Markdown on a terminal: what each construct looks like, whatever pieces it arrives in. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "cli/markdown_text.h"

/* Styles that can be read. */
static const spry_markdown_styles styles = {"<b>", "<i>", "<c>", "<d>", "<>"};

static void show(spry_buffer *out, const char *text, size_t width, size_t piece)
{
    spry_markdown m;
    size_t size = strlen(text);
    spry_buffer_init(out, 1 << 20);
    spry_buffer_text(out, "");
    spry_markdown_init(&m, &styles, width);
    for (size_t i = 0, n; i < size; i += n) {
        n = size - i < piece ? size - i : piece;
        while (i + n < size && ((unsigned char)text[i + n] & 0xC0) == 0x80)
            n++; /* whole characters, as the decoder gives them */
        spry_markdown_add(&m, out, (spry_view){text + i, n});
    }
    spry_markdown_finish(&m, out);
    spry_markdown_deinit(&m);
}

static const struct {
    const char *text, *shown;
    size_t width;
} cases[] = {
    {"Plain text.\nTwo lines.\n", "Plain text.\nTwo lines.\n", 80},
    {"no newline", "no newline", 80},
    {"", "", 80},
    {"\n\n", "\n\n", 80},
    {"# Title\ntext", "<><b>Title<>\ntext", 80},
    {"#hash ####### seven", "#hash ####### seven", 80},
    {"- one\n* two\n+ three\n  - four\n",
     "\xe2\x80\xa2 one\n\xe2\x80\xa2 two\n\xe2\x80\xa2 three\n  \xe2\x80\xa2 four\n", 80},
    {"1. one\n10) two\n1234. no\n3.14 no\n", "1. one\n10) two\n1234. no\n3.14 no\n", 80},
    {"- a list item that is long", "\xe2\x80\xa2 a list\n  item that\n  is long", 11},
    {"> said\n", "<><d>\xe2\x94\x82 said<>\n", 80},
    {"a **bold** b", "a <><b>bold<> b", 80},
    {"**bold** b", "<><b>bold<> b", 80},
    {"*it* 2 * 3 = 6 ** x", "<><i>it<> 2 * 3 = 6 ** x", 80},
    {"`a*b*c` *", "<><c>a*b*c<> *", 80},
    {"open **bold\nnext", "open <><b>bold<>\nnext", 80},
    {"snake_case_name __init__", "snake_case_name __init__", 80},
    {"***\n---\n", NULL, 3},
    {"```c\nint *a;\n  - b\n```\nend", "    <c>int *a;<>\n    <c>  - b<>\nend", 80},
    {"```\nunfinished", "    <c>unfinished<>\n", 80},
    {"| a | long |\n|---|:--:|\n| bb | c |\nend", "<b>a   long<>\nbb  c\nend", 80},
    {"| a | b |\n|---|---|\n| \xc3\xa9 | x |", "<b>a  b<>\n\xc3\xa9  x\n", 80},
    {"| one only\n", "| one only\n", 80},
    {"| wide table | here |\n", "| wide\ntable |\nhere |\n", 8},
    {"\xc3\xa4 **\xc3\xb6** \xe2\x82\xac", "\xc3\xa4 <><b>\xc3\xb6<> \xe2\x82\xac", 80},
};

static void constructs(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (size_t piece = 1; piece <= strlen(cases[i].text) + 1; piece++) {
            spry_buffer out;
            show(&out, cases[i].text, cases[i].width, piece);
            if (cases[i].shown && strcmp(out.data, cases[i].shown) != 0)
                fail_msg("%s\n  gave     %s\n  and not  %s", cases[i].text, out.data, cases[i].shown);
            if (!cases[i].shown) /* two rules of the width */
                assert_string_equal(out.data,
                                    "\xe2\x94\x80\xe2\x94\x80\xe2\x94\x80\n\xe2\x94\x80\xe2\x94\x80\xe2\x94\x80\n");
            spry_buffer_deinit(&out);
        }
}

/* Anything at all: no crash, and the same whatever the pieces; the letters are all there. */
static void anything(void **state)
{
    (void)state;
    static const char alphabet[] = "a *`|#->1.\n_~ ";
    uint32_t seed = 1;
    for (size_t round = 0; round < 3000; round++) {
        char text[64];
        size_t n = round % 63, letters = 0, shown = 0;
        for (size_t i = 0; i < n; i++) {
            seed = seed * 1664525u + 1013904223u;
            text[i] = alphabet[(seed >> 16) % (sizeof alphabet - 1)];
        }
        text[n] = 0;
        spry_buffer whole, pieces;
        show(&whole, text, 20, 64);
        show(&pieces, text, 20, 1 + round % 5);
        assert_string_equal(whole.data, pieces.data);
        bool fenced = strstr(text, "```") != NULL; /* the line of a fence is not shown */
        for (size_t i = 0; i < n; i++)
            letters += text[i] == 'a';
        for (const char *at = whole.data; *at; at++)
            shown += *at == 'a';
        assert_true(fenced || shown == letters);
        spry_buffer_deinit(&whole);
        spry_buffer_deinit(&pieces);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(constructs), cmocka_unit_test(anything)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
