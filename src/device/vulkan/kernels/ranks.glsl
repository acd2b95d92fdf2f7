/* Orders of tokens by logit, for draws. Smaller floats have smaller keys, and the two zeros are one. */
uint rising_key(float value)
{
    uint bits = floatBitsToUint(value + 0.0);
    bits = bits == 0x80000000u ? 0 : bits;
    return bits ^ ((0 - (bits >> 31)) | 0x80000000u);
}

float float_of_key(uint key)
{
    return uintBitsToFloat(key >> 31 != 0 ? key ^ 0x80000000u : ~key);
}

/* By value, the lower token first among equals: the largest is the best. */
uint64_t ranked(float value, uint token)
{
    return uint64_t(rising_key(value)) << 32 | (0xffffffffu - token);
}

uint ranked_token(uint64_t rank)
{
    return 0xffffffffu - uint(rank);
}

bool is_nan(float value)
{
    return (floatBitsToUint(value) & 0x7fffffff) > 0x7f800000;
}

const uint64_t RANK_NAN = ~uint64_t(0);
shared uint64_t exchanged[gl_WorkGroupSize.x];

uint64_t block_largest(uint64_t value)
{
    uint thread = gl_LocalInvocationIndex;
    barrier();
    exchanged[thread] = value;
    for (uint apart = gl_WorkGroupSize.x / 2; apart > 0; apart /= 2) {
        barrier();
        if (thread < apart && exchanged[thread + apart] > exchanged[thread])
            exchanged[thread] = exchanged[thread + apart];
    }
    barrier();
    return exchanged[0];
}

uint64_t block_total(uint64_t value)
{
    uint thread = gl_LocalInvocationIndex;
    barrier();
    exchanged[thread] = value;
    for (uint apart = gl_WorkGroupSize.x / 2; apart > 0; apart /= 2) {
        barrier();
        if (thread < apart)
            exchanged[thread] += exchanged[thread + apart];
    }
    barrier();
    return exchanged[0];
}
