/* Converts numbers to and from text, strictly and independently of the locale: the whole text must be the number, the
 * decimal sign is a point; spaces, hexadecimal forms, NaN and infinity are refused. */
#ifndef SPRY_BASE_NUMBER_H
#define SPRY_BASE_NUMBER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/view.h"

/* Digits only; false when the text is empty or the number does not fit. */
bool spry_number_u64(uint64_t *out, spry_view text);

/* An integer, optionally followed by K, M, G or T (either case): powers of 1024. */
bool spry_number_bytes(uint64_t *out, spry_view text);

/* [+-] digits [. digits] [e [+-] digits], at most 63 characters; false when the result is not finite. */
bool spry_number_double(double *out, spry_view text);

enum { SPRY_NUMBER_TEXT = 32 };

/* Writes a number with the fewest digits that read back as the same float32 (outside its range: the same double);
 * integers below 1e15 are written in full. */
void spry_number_print(char out[SPRY_NUMBER_TEXT], double value);

/* Writes a byte count as an integer, with K, M, G or T when that is exact. */
void spry_number_print_bytes(char out[SPRY_NUMBER_TEXT], uint64_t bytes);

#endif
