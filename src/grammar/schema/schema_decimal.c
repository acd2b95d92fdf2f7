/* Exact decimals: conversion from JSON numbers, and comparison. */
#include "grammar/schema/schema_decimal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"

/* Parses [-]digits[.digits][e[+-]digits]; the input has no more digits than there is room for. */
static spry_decimal from_text(const char *text)
{
    spry_decimal out = {0};
    out.negative = *text == '-';
    text += out.negative;
    int point = 0, exponent = 0;
    bool behind_point = false;
    for (; *text && *text != 'e'; text++) {
        if (*text < '0' || *text > '9') {
            behind_point = true;
            continue;
        }
        if (out.n_digits == 0 && *text == '0') {
            point -= behind_point;
            continue;
        }
        point += !behind_point;
        if (out.n_digits < SPRY_DECIMAL_DIGITS)
            out.digits[out.n_digits++] = *text;
    }
    if (*text == 'e')
        exponent = (int)strtol(text + 1, NULL, 10);
    while (out.n_digits > 0 && out.digits[out.n_digits - 1] == '0')
        out.n_digits--;
    if (out.n_digits == 0)
        return (spry_decimal){0};
    out.exponent = (int16_t)(exponent + point - 1);
    return out;
}

spry_decimal spry_decimal_from_u64(uint64_t value, bool negative)
{
    char text[32];
    snprintf(text, sizeof text, "%s%" PRIu64, negative ? "-" : "", value);
    return from_text(text);
}

spry_decimal spry_decimal_of(const json_t *number)
{
    if (json_is_integer(number)) {
        json_int_t value = json_integer_value(number);
        return spry_decimal_from_u64(value < 0 ? 0 - (uint64_t)value : (uint64_t)value, value < 0);
    }
    double value = json_real_value(number);
    char text[40];
    if (value > -1e22 && value < 1e22 && (value <= -0x1p63 || value >= 0x1p63)) { /* an integer of more than 64 bits */
        snprintf(text, sizeof text, "%.0f", value);
        return from_text(text);
    }
    for (int digits = 15; digits <= 17; digits++) {
        double back;
        snprintf(text, sizeof text, "%.*e", digits - 1, value);
        for (char *c = text; *c; c++)
            if (*c == ',') /* decimal sign of the locale */
                *c = '.';
        if (spry_number_double(&back, spry_view_of(text)) && back == value)
            break;
    }
    return from_text(text);
}

static int compare_magnitude(const spry_decimal *a, const spry_decimal *b)
{
    if (a->n_digits == 0 || b->n_digits == 0)
        return (a->n_digits != 0) - (b->n_digits != 0);
    if (a->exponent != b->exponent)
        return a->exponent < b->exponent ? -1 : 1;
    size_t shared = a->n_digits < b->n_digits ? a->n_digits : b->n_digits;
    int order = memcmp(a->digits, b->digits, shared);
    return order ? order : (int)a->n_digits - (int)b->n_digits;
}

int spry_decimal_compare(const spry_decimal *a, const spry_decimal *b)
{
    if (a->negative != b->negative)
        return a->negative ? -1 : 1;
    return a->negative ? -compare_magnitude(a, b) : compare_magnitude(a, b);
}

bool spry_decimal_is_integer(const spry_decimal *a)
{
    return a->n_digits == 0 || a->exponent >= a->n_digits - 1;
}

spry_decimal spry_decimal_negate(spry_decimal a)
{
    a.negative = a.n_digits != 0 && !a.negative;
    return a;
}
