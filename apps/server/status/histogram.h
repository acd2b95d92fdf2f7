/* Histograms of seconds, with the buckets that /metrics shows. */
#ifndef SPRY_SERVER_HISTOGRAM_H
#define SPRY_SERVER_HISTOGRAM_H

#include <stddef.h>
#include <stdint.h>

enum { SPRY_HISTOGRAM_BUCKETS = 15 };

typedef struct spry_histogram {
    uint64_t buckets[SPRY_HISTOGRAM_BUCKETS + 1]; /* the last one: above every limit */
    uint64_t count;
    double sum; /* seconds */
} spry_histogram;

/* The upper limits of the buckets, in seconds, ascending. */
extern const double spry_histogram_limits[SPRY_HISTOGRAM_BUCKETS];

void spry_histogram_add(spry_histogram *histogram, double seconds);
void spry_histogram_merge(spry_histogram *into, const spry_histogram *from);

#endif
