/* The distribution of values in constant memory: each is counted in a bucket of width 0.1 %. */
#ifndef SPRY_REPORT_SPREAD_H
#define SPRY_REPORT_SPREAD_H

#include <stdbool.h>
#include <stdint.h>

typedef struct spry_spread {
    uint32_t *buckets; /* NULL until the first value */
    uint64_t count;
    double sum, least, most;
} spry_spread;

/* Values below 1e-6 and above 1e9 are clamped. False: memory is short. */
bool spry_spread_add(spry_spread *spread, double value);

/* The value that a share of them do not exceed, accurate to 0.1 %. NAN for none. */
double spry_spread_at(const spry_spread *spread, double share);

void spry_spread_deinit(spry_spread *spread);

#endif
