/* Numbers from text and back, strictly and in every locale: the whole text must be the number, the decimal sign is a
 * point, there are no spaces, no hexadecimal forms, no NaN and no infinity. */
#ifndef SPRY_BASE_NUMBER_H
#define SPRY_BASE_NUMBER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/view.h"

/* Digits only; false when there are none or the number does not fit. */
bool spry_number_u64(uint64_t *out, spry_view text);

/* A whole number, or one followed by K, M, G or T (either case): powers of 1024. */
bool spry_number_bytes(uint64_t *out, spry_view text);

/* [+-] digits [. digits] [e [+-] digits], at most 63 characters; false when the result is not finite. */
bool spry_number_double(double *out, spry_view text);

enum { SPRY_NUMBER_TEXT = 32 };

/* Writes a number with the fewest digits that still name the same float32 (beyond its range, the same double); whole
 * numbers below 1e15 in full. */
void spry_number_print(char out[SPRY_NUMBER_TEXT], double value);

/* Writes bytes as a whole number, with K, M, G or T where that loses nothing. */
void spry_number_print_bytes(char out[SPRY_NUMBER_TEXT], uint64_t bytes);

#endif
