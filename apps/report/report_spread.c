/* Buckets on a logarithmic scale. */
#include "report/report_spread.h"

#include <math.h>
#include <stdlib.h>

static const double smallest = 1e-6, largest = 1e9, width = 1e-3;
enum { BUCKETS = 34541 }; /* ln(largest / smallest) / width, and one for the end */

bool spry_spread_add(spry_spread *spread, double value)
{
    if (!spread->buckets)
        spread->buckets = calloc(BUCKETS, sizeof *spread->buckets);
    if (!spread->buckets)
        return false;
    const double within = fmin(fmax(value, smallest), largest);
    const size_t bucket = (size_t)(log(within / smallest) / width + 0.5);
    uint32_t *count = &spread->buckets[bucket < BUCKETS ? bucket : BUCKETS - 1];
    *count += *count < UINT32_MAX;
    spread->least = spread->count ? fmin(spread->least, value) : value;
    spread->most = spread->count ? fmax(spread->most, value) : value;
    spread->sum += value;
    spread->count++;
    return true;
}

double spry_spread_at(const spry_spread *spread, double share)
{
    if (!spread->count)
        return NAN;
    const double wanted = fmax(1, ceil(share * (double)spread->count - 1e-9));
    double seen = 0;
    for (size_t i = 0; i < BUCKETS; i++) {
        seen += spread->buckets[i];
        if (seen >= wanted)
            return fmin(fmax(smallest * exp((double)i * width), spread->least), spread->most);
    }
    return spread->most;
}

void spry_spread_deinit(spry_spread *spread)
{
    free(spread->buckets);
    *spread = (spry_spread){0};
}
