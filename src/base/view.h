/* A string view: borrowed bytes, not zero-terminated. */
#ifndef SPRY_BASE_VIEW_H
#define SPRY_BASE_VIEW_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

typedef struct spry_view {
    const char *data;
    size_t size;
} spry_view;

/* Bytes [begin, end) of a text. */
typedef struct spry_text_range {
    size_t begin, end;
} spry_text_range;

#define SPRY_VIEW(literal) ((spry_view){(literal), sizeof(literal) - 1})

/* For printf: printf("%.*s", SPRY_VIEW_ARG(v)); truncated to 200 bytes, so that a hostile name cannot flood a
 * message. */
#define SPRY_VIEW_ARG(v) (int)((v).size < 200 ? (v).size : 200), (v).data

static inline spry_view spry_view_of(const char *zero_terminated)
{
    return (spry_view){zero_terminated, strlen(zero_terminated)};
}

static inline bool spry_view_equal(spry_view a, spry_view b)
{
    return a.size == b.size && (a.size == 0 || memcmp(a.data, b.data, a.size) == 0);
}

static inline bool spry_view_is(spry_view a, const char *zero_terminated)
{
    return spry_view_equal(a, spry_view_of(zero_terminated));
}

static inline bool spry_view_starts(spry_view a, spry_view prefix)
{
    return a.size >= prefix.size && (prefix.size == 0 || memcmp(a.data, prefix.data, prefix.size) == 0);
}

static inline bool spry_view_ends(spry_view a, spry_view suffix)
{
    return a.size >= suffix.size &&
           (suffix.size == 0 || memcmp(a.data + (a.size - suffix.size), suffix.data, suffix.size) == 0);
}

/* The text without these bytes at its beginning and end. */
static inline spry_view spry_view_trim(spry_view text, const char *blanks)
{
    size_t n = strlen(blanks);
    while (text.size && memchr(blanks, text.data[0], n))
        text = (spry_view){text.data + 1, text.size - 1};
    while (text.size && memchr(blanks, text.data[text.size - 1], n))
        text.size--;
    return text;
}

#endif
