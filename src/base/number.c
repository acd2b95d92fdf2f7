/* Numbers: conversion to and from text, and a generator of random ones. */
#include "base/number.h"

#include <float.h>
#include <inttypes.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"

/* ---- numbers as text --------------------------------------------------------------------------------------------- */

/* strtod and printf use the locale's decimal sign; it is replaced before and after each call. */

static const char byte_units[] = "KMGT";

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

bool spry_number_u64(uint64_t *out, spry_view text)
{
    uint64_t value = 0;
    if (text.size == 0)
        return false;
    for (size_t i = 0; i < text.size; i++) {
        if (!is_digit(text.data[i]))
            return false;
        uint64_t digit = (uint64_t)(text.data[i] - '0');
        if (value > (UINT64_MAX - digit) / 10)
            return false;
        value = value * 10 + digit;
    }
    *out = value;
    return true;
}

bool spry_number_bytes(uint64_t *out, spry_view text)
{
    unsigned shift = 0;
    if (text.size != 0) {
        char last = text.data[text.size - 1];
        for (unsigned i = 0; byte_units[i]; i++)
            if (last == byte_units[i] || last == byte_units[i] + ('a' - 'A'))
                shift = 10 * (i + 1);
    }
    text.size -= shift != 0;
    uint64_t value;
    if (!spry_number_u64(&value, text) || value > UINT64_MAX >> shift)
        return false;
    *out = value << shift;
    return true;
}

static size_t skip_digits(spry_view text, size_t at)
{
    while (at < text.size && is_digit(text.data[at]))
        at++;
    return at;
}

static size_t skip_sign(spry_view text, size_t at)
{
    return at + (at < text.size && (text.data[at] == '+' || text.data[at] == '-'));
}

/* Whether the text is a decimal number; *point is the index of its decimal point, or text.size. */
static bool is_decimal(spry_view text, size_t *point)
{
    size_t start = skip_sign(text, 0);
    size_t at = skip_digits(text, start);
    size_t digits = at - start;
    *point = text.size;
    if (at < text.size && text.data[at] == '.') {
        *point = at;
        size_t end = skip_digits(text, at + 1);
        digits += end - at - 1;
        at = end;
    }
    if (digits == 0)
        return false;
    if (at < text.size && (text.data[at] == 'e' || text.data[at] == 'E')) {
        start = skip_sign(text, at + 1);
        at = skip_digits(text, start);
        if (at == start)
            return false;
    }
    return at == text.size;
}

bool spry_number_double(double *out, spry_view text)
{
    char copy[SPRY_NUMBER_READ];
    size_t point;
    if (text.size >= sizeof copy || !is_decimal(text, &point))
        return false;
    const char *sign = localeconv()->decimal_point;
    if (point < text.size)
        snprintf(copy, sizeof copy, "%.*s%s%.*s", (int)point, text.data, sign, (int)(text.size - point - 1),
                 text.data + point + 1);
    else
        snprintf(copy, sizeof copy, "%.*s", (int)text.size, text.data);
    double value = strtod(copy, NULL);
    if (!isfinite(value))
        return false;
    *out = value;
    return true;
}

void spry_number_print(char out[SPRY_NUMBER_TEXT], double value)
{
    if (fabs(value) < 1e15 && value == floor(value)) {
        snprintf(out, SPRY_NUMBER_TEXT, "%.0f", value + 0.0); /* no "-0" */
        return;
    }
    bool is_float = fabs(value) <= (double)FLT_MAX;
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(out, SPRY_NUMBER_TEXT, "%.*g", digits, value);
        double back = strtod(out, NULL);
        if (is_float ? (float)back == (float)value : back == value)
            break;
    }
    const char *sign = localeconv()->decimal_point;
    size_t size = strlen(sign);
    char *found = strstr(out, sign);
    if (found && size != 0) {
        *found = '.';
        memmove(found + 1, found + size, strlen(found + size) + 1);
    }
}

void spry_number_print_bytes(char out[SPRY_NUMBER_TEXT], uint64_t bytes)
{
    size_t unit = 0;
    while (unit < sizeof byte_units - 1 && bytes != 0 && bytes % 1024 == 0) {
        bytes /= 1024;
        unit++;
    }
    snprintf(out, SPRY_NUMBER_TEXT, "%" PRIu64 "%.*s", bytes, unit != 0, unit ? &byte_units[unit - 1] : "");
}

/* ---- random numbers ---------------------------------------------------------------------------------------------- */

/* xoshiro256** seeded by splitmix64 (Blackman and Vigna): integers only, so every platform sees the same stream. */

static uint64_t splitmix(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static uint64_t rotate_left(uint64_t x, int bits)
{
    return (x << bits) | (x >> (64 - bits));
}

void spry_random_seed(spry_random *random, uint64_t seed)
{
    for (size_t i = 0; i < SPRY_COUNT(random->state); i++)
        random->state[i] = splitmix(&seed);
}

uint64_t spry_random_next(spry_random *random)
{
    uint64_t *s = random->state;
    uint64_t result = rotate_left(s[1] * 5, 7) * 9;
    uint64_t shifted = s[1] << 17;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= shifted;
    s[3] = rotate_left(s[3], 45);
    return result;
}

double spry_random_unit(spry_random *random)
{
    return (double)(spry_random_next(random) >> 11) * 0x1p-53;
}
