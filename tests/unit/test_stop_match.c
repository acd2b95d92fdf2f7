/* Stop strings in a stream: whatever the text is cut into, what comes out is what searching the whole text gives, as
 * early as it is certain, and never half a character. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/utf8.h"
#include "engine/generation.h"
#include "support/hostile.h"

enum { MAX_TEXT = 120, MAX_STOPS = 4, MAX_STOP_BYTES = 24, N_TEXTS = 20000 };

/* Few characters, of every length, so that matches, near matches and overlaps abound. */
static const char *const characters[] = {
    "a", "b", "\n", "\xc3\xa9", "\xe2\x82\xac", "\xe2\x82\xad", "\xf0\x9f\x8c\x88"};

typedef struct stream {
    const char *const *stop;
    size_t n_stop;
    spry_buffer held, given;
    bool stopped;
} stream;

/* The loop of an answer: hold back what may become a stop string, give out the rest. */
static void give_out(stream *s, bool end)
{
    bool found;
    size_t ready = spry_stop_match(&found, spry_buffer_view(&s->held), s->stop, s->n_stop, end);
    assert_true(ready <= s->held.size);
    assert_true(!end || found || ready == s->held.size);
    spry_view part = {spry_buffer_view(&s->held).data, ready};
    assert_true(spry_utf8_valid(part));
    assert_true(spry_buffer_append(&s->given, part.data, part.size));
    spry_buffer_consume(&s->held, ready);
    s->stopped = found;
}

/* Where the earliest stop string begins in the whole text. */
static size_t first_stop(const char *text, const char *const *stop, size_t n_stop)
{
    size_t first = strlen(text);
    for (size_t i = 0; i < n_stop; i++) {
        const char *at = strstr(text, stop[i]);
        if (at && (size_t)(at - text) < first)
            first = (size_t)(at - text);
    }
    return first;
}

/* How much of a text is certain: nothing after it could become a stop string in a longer text. Written from the
 * definition: the earliest position where a stop string begins, or where what is left begins one. */
static size_t certain(const char *text, const char *const *stop, size_t n_stop)
{
    size_t size = strlen(text), first = first_stop(text, stop, n_stop);
    for (size_t at = 0; at < first; at++)
        for (size_t i = 0; i < n_stop; i++)
            if (strlen(stop[i]) > size - at && !strncmp(stop[i], text + at, size - at))
                return at;
    return first;
}

static size_t random_text(char *out, size_t max_characters, uint64_t *random)
{
    size_t used = 0, n = (size_t)(hostile_random(random) % (max_characters + 1));
    for (size_t i = 0; i < n; i++) {
        const char *c = characters[hostile_random(random) % SPRY_COUNT(characters)];
        memcpy(out + used, c, strlen(c));
        used += strlen(c);
    }
    out[used] = 0;
    return used;
}

/* Pieces end between characters, as a decoder's do. */
static size_t piece_size(const char *text, size_t left, uint64_t *random)
{
    size_t size = 0;
    for (size_t n = 1 + (size_t)(hostile_random(random) % 4); n && size < left; n--) {
        uint32_t character;
        size += spry_utf8_decode(&character, text + size, left - size);
    }
    return size;
}

static void stream_text(const char *text, const char *const *stop, size_t n_stop, uint64_t *random)
{
    stream s = {.stop = stop, .n_stop = n_stop};
    char so_far[MAX_TEXT * 4 + 1];
    size_t size = strlen(text), done = 0;
    spry_buffer_init(&s.held, 1 << 16);
    spry_buffer_init(&s.given, 1 << 16);
    while (done < size && !s.stopped) {
        size_t piece = piece_size(text + done, size - done, random);
        assert_true(spry_buffer_append(&s.held, text + done, piece));
        done += piece;
        give_out(&s, false);
        memcpy(so_far, text, done);
        so_far[done] = 0;
        assert_int_equal(s.given.size, certain(so_far, stop, n_stop)); /* neither late nor early */
    }
    if (!s.stopped)
        give_out(&s, true);
    size_t expected = first_stop(text, stop, n_stop);
    assert_int_equal(s.stopped, expected < size);
    assert_int_equal(s.given.size, expected);
    assert_memory_equal(spry_buffer_view(&s.given).data, text, expected);
    spry_buffer_deinit(&s.held);
    spry_buffer_deinit(&s.given);
}

static void test_random_streams(void **state)
{
    (void)state;
    uint64_t random = 7;
    size_t stopped = 0;
    for (size_t i = 0; i < N_TEXTS; i++) {
        char text[MAX_TEXT * 4 + 1], words[MAX_STOPS][MAX_STOP_BYTES * 4 + 1];
        const char *stop[MAX_STOPS];
        size_t n_stop = (size_t)(hostile_random(&random) % (MAX_STOPS + 1));
        random_text(text, 1 + (size_t)(hostile_random(&random) % MAX_TEXT), &random);
        for (size_t j = 0; j < n_stop; j++) {
            while (!random_text(words[j], 2 + (size_t)(hostile_random(&random) % 5), &random))
                ;
            stop[j] = words[j];
        }
        stream_text(text, stop, n_stop, &random);
        stopped += first_stop(text, stop, n_stop) < strlen(text);
    }
    assert_in_range(stopped, N_TEXTS / 10, N_TEXTS * 9 / 10); /* both outcomes were tried */
}

static void expect(const char *text, const char *const *stop, size_t n_stop, size_t ready, bool found, size_t at_end)
{
    bool really;
    assert_int_equal(spry_stop_match(&really, spry_view_of(text), stop, n_stop, false), ready);
    assert_int_equal(really, found);
    assert_int_equal(spry_stop_match(&really, spry_view_of(text), stop, n_stop, true), at_end);
    assert_int_equal(really, at_end < strlen(text));
}

static void test_single_cases(void **state)
{
    (void)state;
    const char *const one[] = {"END"}, *const two[] = {"abcd", "bc"}, *const nested[] = {"aab", "ab"};
    const char *const prefix[] = {"User:", "User"}, *const self[] = {"aaa"};
    expect("", one, 1, 0, false, 0);
    expect("hello", NULL, 0, 5, false, 5);
    expect("hello", one, 1, 5, false, 5);
    expect("the E", one, 1, 4, false, 5);
    expect("the EN", one, 1, 4, false, 6);
    expect("the END", one, 1, 4, true, 4);
    expect("the END of it", one, 1, 4, true, 4);
    expect("the ENE", one, 1, 6, false, 7);
    expect("E", one, 1, 0, false, 1);
    /* An earlier beginning that is not decided yet comes before a match inside it. */
    expect("abc", two, 2, 0, false, 1);
    expect("abcx", two, 2, 1, true, 1);
    expect("abcd", two, 2, 0, true, 0);
    expect("aab", nested, 2, 0, true, 0);
    expect("xab", nested, 2, 1, true, 1);
    expect("User", prefix, 2, 0, true, 0); /* the shorter of two is enough */
    expect("aab aa", self, 1, 4, false, 6);
    expect("aab aaa", self, 1, 4, true, 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_streams),
        cmocka_unit_test(test_single_cases),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
