/* Exact decimal numbers for JSON schemas: bounds, constants, divisors. */
#ifndef SPRY_GRAMMAR_SCHEMA_DECIMAL_H
#define SPRY_GRAMMAR_SCHEMA_DECIMAL_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

enum { SPRY_DECIMAL_DIGITS = 24 };

/* digits[0].digits[1]digits[2]... times 10^exponent; the first and last digits are not 0. Zero has no digits. */
typedef struct spry_decimal {
    bool negative;
    uint8_t n_digits;
    int16_t exponent;
    char digits[SPRY_DECIMAL_DIGITS]; /* '0' to '9' */
} spry_decimal;

/* A JSON number: integers exactly, reals as the shortest decimal that reads back as the same double. */
spry_decimal spry_decimal_of(const json_t *number);
spry_decimal spry_decimal_from_u64(uint64_t value, bool negative);

/* Negative, zero or positive when `a` is less than, equal to or greater than `b`. */
int spry_decimal_compare(const spry_decimal *a, const spry_decimal *b);
bool spry_decimal_is_integer(const spry_decimal *a);
spry_decimal spry_decimal_negate(spry_decimal a);

#endif
