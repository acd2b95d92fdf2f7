/* Numbers: checked arithmetic, conversion to and from text, random numbers. */
#ifndef SPRY_BASE_NUMBER_H
#define SPRY_BASE_NUMBER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/view.h"

/* Arithmetic on untrusted sizes. Each function returns false and leaves *out unchanged when the result does not fit. */

static inline bool spry_checked_add(size_t *out, size_t a, size_t b)
{
    if (a > SIZE_MAX - b)
        return false;
    *out = a + b;
    return true;
}

static inline bool spry_checked_mul(size_t *out, size_t a, size_t b)
{
    if (b != 0 && a > SIZE_MAX / b)
        return false;
    *out = a * b;
    return true;
}

/* Rounds up to a multiple of `step`, a power of two. */
static inline bool spry_checked_align(size_t *out, size_t a, size_t step)
{
    size_t sum;
    if (!spry_checked_add(&sum, a, step - 1))
        return false;
    *out = sum & ~(step - 1);
    return true;
}

/* Converts numbers to and from text, strictly and independently of the locale: the whole text must be the number, the
 * decimal sign is a point; spaces, hexadecimal forms, NaN and infinity are refused. */

/* Digits only; false when the text is empty or the number does not fit. */
bool spry_number_u64(uint64_t *out, spry_view text);

/* An integer, optionally followed by K, M, G or T (either case): powers of 1024. */
bool spry_number_bytes(uint64_t *out, spry_view text);

enum { SPRY_NUMBER_READ = 1100 }; /* every double has an exact decimal form that is shorter */

/* [+-] digits [. digits] [e [+-] digits], shorter than SPRY_NUMBER_READ; false when the result is not finite. */
bool spry_number_double(double *out, spry_view text);

enum { SPRY_NUMBER_TEXT = 32 };

/* Writes a number with the fewest digits that read back as the same float32 (outside its range: the same double);
 * integers below 1e15 are written in full. */
void spry_number_print(char out[SPRY_NUMBER_TEXT], double value);

/* Writes a byte count as an integer, with K, M, G or T when that is exact. */
void spry_number_print_bytes(char out[SPRY_NUMBER_TEXT], uint64_t bytes);

/* The generator: xoshiro256**, its state filled from the seed by splitmix64. Integers only, so that a seed gives the
 * same stream on every platform. Not for secrets. */

typedef struct spry_random {
    uint64_t state[4];
} spry_random;

void spry_random_seed(spry_random *random, uint64_t seed);
uint64_t spry_random_next(spry_random *random);
double spry_random_unit(spry_random *random); /* [0, 1), 53 bits */

#endif
