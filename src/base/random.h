/* The generator: xoshiro256**, its state filled from the seed by splitmix64. Integers only, so that a seed gives the
 * same stream on every platform. Not for secrets. */
#ifndef SPRY_BASE_RANDOM_H
#define SPRY_BASE_RANDOM_H

#include <stddef.h>
#include <stdint.h>

typedef struct spry_random {
    uint64_t state[4];
} spry_random;

void spry_random_seed(spry_random *random, uint64_t seed);
uint64_t spry_random_next(spry_random *random);
double spry_random_unit(spry_random *random); /* [0, 1), 53 bits */

#endif
