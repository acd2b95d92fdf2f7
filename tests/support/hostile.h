/* What tests of parsers of untrusted files share. Include after cmocka.h. */
#ifndef SPRY_TESTS_HOSTILE_H
#define SPRY_TESTS_HOSTILE_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "base/compiler.h"
#include "spry.h"

enum { HOSTILE_MEMORY_BYTES = 256 << 20 };

/* From here on a parser that believes a large count gets no memory, and its test sees SPRY_ERR_MEMORY. The address
 * sanitizer reserves terabytes of addresses itself, so there its own limit must do. */
static inline void hostile_limit_memory(void)
{
#if !SPRY_SANITIZE_ADDRESS
    struct rlimit limit = {HOSTILE_MEMORY_BYTES, HOSTILE_MEMORY_BYTES};
    assert_int_equal(setrlimit(RLIMIT_AS, &limit), 0);
#endif
}

/* Fails, showing the whole sentence, unless status and words are as expected. `words` are separated by '|'. */
static inline void hostile_expect(spry_status status, const spry_error *error, spry_status expected, const char *words)
{
    if (status != expected)
        fail_msg("status %s, not %s: %s", spry_status_name(status), spry_status_name(expected),
                 status == SPRY_OK ? "(no message)" : error->message);
    assert_int_equal(error->status, expected);
    assert_null(strchr(error->message, '\n'));
    while (*words) {
        char word[256];
        size_t length = strcspn(words, "|");
        assert_true(length < sizeof word);
        memcpy(word, words, length);
        word[length] = 0;
        if (!strstr(error->message, word))
            fail_msg("'%s' is not in the sentence: %s", word, error->message);
        words += length + (words[length] == '|');
    }
}

/* splitmix64: the same numbers everywhere. */
static inline uint64_t hostile_random(uint64_t *state)
{
    uint64_t x = *state += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* A block of exactly `size` bytes, so that the sanitizer sees one byte too many. */
static inline unsigned char *hostile_copy(const void *data, size_t size)
{
    unsigned char *copy = malloc(size ? size : 1);
    assert_non_null(copy);
    if (size)
        memcpy(copy, data, size);
    return copy;
}

#endif
