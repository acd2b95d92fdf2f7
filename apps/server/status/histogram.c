#include "server/status/histogram.h"

#include "base/compiler.h"

const double spry_histogram_limits[SPRY_HISTOGRAM_BUCKETS] = {0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2,
                                                              0.5,   1,     2,     5,    10,   30,   60};

void spry_histogram_add(spry_histogram *h, double seconds)
{
    size_t bucket = 0;
    while (bucket < SPRY_HISTOGRAM_BUCKETS && seconds > spry_histogram_limits[bucket])
        bucket++;
    h->buckets[bucket]++;
    h->count++;
    h->sum += seconds;
}

void spry_histogram_merge(spry_histogram *into, const spry_histogram *from)
{
    for (size_t i = 0; i < SPRY_COUNT(into->buckets); i++)
        into->buckets[i] += from->buckets[i];
    into->count += from->count;
    into->sum += from->sum;
}
