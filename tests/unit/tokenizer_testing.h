/* What the tokenizer tests share: opening, encoding with checks, comparing, random text. */
#ifndef SPRY_TESTS_TOKENIZER_TESTING_H
#define SPRY_TESTS_TOKENIZER_TESTING_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "base/utf8.h"
#include "support/made_tokenizer.h"
#include "tokenizer/tokenizer.h"

enum { TEXT_MAX = 64 << 20 };

/* A small generator whose sequence is the same everywhere. */
static inline uint32_t random_next(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 33);
}

static inline bool file_exists(const char *path)
{
    struct stat facts;
    return stat(path, &facts) == 0;
}

/* True, with a line that says so, when data of other projects is not there. */
static inline bool skipped_without_public(const char *test)
{
    if (file_exists(PUBLIC_DATA "/tokenizers"))
        return false;
    printf("SKIPPED %s: ../shared/public is not there\n", test);
    return true;
}

/* A whole file, zero-terminated; the caller frees it. */
static inline char *read_file(const char *path, size_t *size)
{
    FILE *file = fopen(path, "rb");
    if (!file)
        fail_msg("cannot open %s", path);
    fseek(file, 0, SEEK_END);
    *size = (size_t)ftell(file);
    rewind(file);
    char *data = malloc(*size + 1);
    assert_non_null(data);
    assert_int_equal(fread(data, 1, *size, file), *size);
    data[*size] = 0;
    fclose(file);
    return data;
}

static inline json_t *read_json(const char *path)
{
    json_error_t problem;
    json_t *root = json_load_file(path, JSON_ALLOW_NUL, &problem);
    if (!root)
        fail_msg("%s: %s", path, problem.text);
    return root;
}

static inline spry_view json_text(const json_t *value)
{
    assert_true(json_is_string(value));
    return (spry_view){json_string_value(value), json_string_length(value)};
}

static inline spry_tokenizer *open_tokenizer(const char *path)
{
    spry_tokenizer *tokenizer = NULL;
    spry_error error = {0};
    if (spry_tokenizer_open(&tokenizer, path, &error))
        fail_msg("%s", error.message);
    return tokenizer;
}

static inline spry_tokenizer *tokenizer_from_json(const char *json)
{
    spry_tokenizer *tokenizer = NULL;
    spry_error error = {0};
    if (make_tokenizer_json(&tokenizer, spry_view_of(json), "test.json", &error))
        fail_msg("%s", error.message);
    return tokenizer;
}

static inline spry_tokens encode(const spry_tokenizer *tokenizer, spry_view text, unsigned flags)
{
    spry_tokens tokens = {0};
    spry_error error = {0};
    if (spry_tokenizer_encode(tokenizer, &tokens, text, NULL, 0, flags, &error))
        fail_msg("%s", error.message);
    return tokens;
}

/* The decoded text; the caller deinits it. */
static inline spry_buffer decode(const spry_tokenizer *tokenizer, const spry_tokens *tokens, bool special)
{
    spry_buffer text;
    spry_error error = {0};
    spry_buffer_init(&text, TEXT_MAX);
    if (spry_tokenizer_decode(tokenizer, &text, tokens->ids, tokens->count, special, &error))
        fail_msg("%s", error.message);
    return text;
}

static inline bool same_ids(const spry_tokens *tokens, const json_t *expected)
{
    if (tokens->count != json_array_size(expected))
        return false;
    for (size_t i = 0; i < tokens->count; i++)
        if (tokens->ids[i] != json_integer_value(json_array_get(expected, i)))
            return false;
    return true;
}

static inline void print_ids(const char *label, const spry_tokens *tokens)
{
    printf("%s", label);
    for (size_t i = 0; i < tokens->count; i++)
        printf(" %d", (int)tokens->ids[i]);
    printf("\n");
}

/* Fails with both lists of ids when they differ. */
static inline void check_ids(const spry_tokenizer *tokenizer, spry_view text, const json_t *expected, unsigned flags,
                             const char *where)
{
    spry_tokens tokens = encode(tokenizer, text, flags);
    if (!same_ids(&tokens, expected)) {
        char *wanted = json_dumps(expected, JSON_COMPACT);
        printf("%s: \"%.*s\"\n", where, (int)text.size, text.data);
        print_ids("got   ", &tokens);
        printf("wanted %s\n", wanted);
        free(wanted);
        fail_msg("%s", where);
    }
    spry_tokens_deinit(&tokens);
}

/* Checks against a list of ids that ends with -1. */
static inline void check_list(const spry_tokenizer *tokenizer, const char *text, unsigned flags,
                              const int32_t *expected)
{
    spry_tokens tokens = encode(tokenizer, spry_view_of(text), flags);
    size_t count = 0;
    while (expected[count] >= 0)
        count++;
    bool same = tokens.count == count;
    for (size_t i = 0; i < count && same; i++)
        same = tokens.ids[i] == expected[i];
    if (!same) {
        print_ids(text, &tokens);
        fail_msg("\"%s\" has other ids", text);
    }
    spry_tokens_deinit(&tokens);
}

#define IDS(...) ((const int32_t[]){__VA_ARGS__, -1})

static inline void check_decoded(const spry_tokenizer *tokenizer, const spry_tokens *tokens, bool special,
                                 spry_view expected, const char *where)
{
    spry_buffer raw = decode(tokenizer, tokens, special), text;
    spry_buffer_init(&text, TEXT_MAX);
    spry_utf8_append_valid(&text, spry_buffer_view(&raw));
    if (!spry_view_equal(spry_buffer_view(&text), expected))
        fail_msg("%s: decoded to \"%s\", not to \"%.*s\"", where, text.data ? text.data : "", (int)expected.size,
                 expected.data);
    spry_buffer_deinit(&text);
    spry_buffer_deinit(&raw);
}

/* Characters that pre-tokenizers and normalisers treat differently, and some bytes that are none. */
static inline size_t random_text(char *out, size_t capacity, uint64_t *state, bool valid_only)
{
    static const uint32_t odd[] = {
        ' ',    ' ',    ' ',    '\n',   '\r',    '\t',    0x0B,    0x0C,     '\'',    '\'',    's',     't',
        'r',    'e',    'v',    'm',    'l',     'd',     'S',     'T',      'R',     'E',     'V',     'M',
        'L',    'D',    '0',    '1',    '9',     '.',     ',',     '!',      '_',     '-',     '/',     '<',
        '|',    '>',    0x85,   0xA0,   0xB2,    0xBD,    0xE9,    0xDF,     0x17F,   0x130,   0x1C5,   0x300,
        0x301,  0x316,  0x345,  0x378,  0x660,   0x966,   0x9BE,   0xE01,    0x1100,  0x1161,  0x11A8,  0x1680,
        0x180E, 0x2000, 0x2028, 0x2029, 0x202F,  0x200B,  0x200D,  0x2160,   0x2581,  0x3000,  0x4E00,  0xAC00,
        0xD7A3, 0xFEFF, 0xFF11, 0xFFFD, 0x1D400, 0x1D7CE, 0x1F600, 0x10FFFF, 0x20000, 0x2F800, 0xE0001,
    };
    size_t size = 0;
    while (size + 4 <= capacity) {
        uint32_t pick = random_next(state) % 100;
        if (pick < 60) {
            size += spry_utf8_encode(out + size, odd[random_next(state) % (sizeof odd / sizeof odd[0])]);
        } else if (pick < 80) {
            out[size++] = (char)(' ' + random_next(state) % 95);
        } else if (pick < 97 || valid_only) {
            uint32_t character = random_next(state) % 0x3100;
            size += spry_utf8_encode(out + size, character);
        } else {
            out[size++] = (char)(0x80 + random_next(state) % 0x80);
        }
    }
    return size;
}

#endif
