/* xoshiro256** seeded by splitmix64 (Blackman and Vigna): integers only, so every platform sees the same stream. */
#include "base/random.h"

#include "base/compiler.h"

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
