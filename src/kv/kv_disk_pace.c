/* Three moving averages and one comparison. */
#include "kv/kv_disk_pace.h"

static const double weight = 0.25;   /* of the newest measurement */
static const double advantage = 0.9; /* what compression must get below */

static void average(double *mean, double value)
{
    *mean = *mean > 0 ? *mean + weight * (value - *mean) : value;
}

bool spry_kv_pace_probes(spry_kv_pace *pace)
{
    uint64_t index = pace->stored++;
    return index < SPRY_KV_PACE_FIRST || index % SPRY_KV_PACE_EVERY == 0;
}

void spry_kv_pace_read(spry_kv_pace *pace, uint64_t bytes, uint64_t ns)
{
    if (bytes)
        average(&pace->read_ns, (double)ns / (double)bytes);
}

void spry_kv_pace_unpack(spry_kv_pace *pace, uint64_t page_bytes, uint64_t packed_bytes, uint64_t ns)
{
    average(&pace->unpack_ns, (double)ns / (double)page_bytes);
    average(&pace->ratio, (double)packed_bytes / (double)page_bytes);
}

bool spry_kv_pace_packs(const spry_kv_pace *pace)
{
    double packed = pace->ratio * pace->read_ns + pace->unpack_ns;
    return pace->ratio > 0 && pace->read_ns > 0 && packed < advantage * pace->read_ns;
}
