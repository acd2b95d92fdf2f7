/* Sums over a workgroup, in one order for a device; every thread gets the result. Included after the size of the
 * workgroup is declared. */
shared float reduced[256];

float block_sum(float value)
{
    float own = subgroupAdd(value);
    barrier();
    if (subgroupElect())
        reduced[gl_SubgroupID] = own;
    barrier();
    float sum = reduced[0];
    for (uint i = 1; i < gl_NumSubgroups; i++)
        sum += reduced[i];
    return sum;
}

/* Mean, and 1 / deviation or 1 / rms, of the n floats at an address. */
vec2 norm_of(uint64_t x, uint n, float eps, bool centre)
{
    uint thread = gl_LocalInvocationIndex, threads = gl_WorkGroupSize.x;
    precise float mean = 0, sum = 0;
    if (centre) {
        for (uint i = thread; i < n; i += threads)
            sum += float_at(x, i);
        mean = block_sum(sum) / float(n);
    }
    sum = 0;
    for (uint i = thread; i < n; i += threads) {
        float apart = float_at(x, i) - mean;
        sum += apart * apart;
    }
    return vec2(mean, 1 / sqrt(block_sum(sum) / float(n) + eps));
}

float normalised(float value, vec2 norm, uint64_t weight, uint64_t bias, uint i)
{
    precise float scaled = (value - norm.x) * norm.y * (weight != 0 ? float_at(weight, i) : 1);
    return bias != 0 ? scaled + float_at(bias, i) : scaled;
}
