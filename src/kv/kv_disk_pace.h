/* Whether pages are better stored as they are or compressed, from what was measured here. A page of P bytes is restored
 * in P / read when raw, and in P * ratio / read + P / unpack when compressed; the smaller wins, and compression must
 * win by a tenth, as it also costs the writer time. The first pages are probed (compressed, decompressed, and read back
 * from the device rather than from memory), then one of every few hundred; every page restored counts as well. */
#ifndef SPRY_KV_KV_DISK_PACE_H
#define SPRY_KV_KV_DISK_PACE_H

#include <stdbool.h>
#include <stdint.h>

enum { SPRY_KV_PACE_FIRST = 3, SPRY_KV_PACE_EVERY = 256 };

/* Moving averages; 0: not measured yet. */
typedef struct spry_kv_pace {
    double read_ns;   /* for a byte of a file */
    double unpack_ns; /* for a byte of a page */
    double ratio;     /* bytes compressed to bytes of the page */
    uint64_t stored;  /* pages asked about */
} spry_kv_pace;

/* Called once for each page that is to be stored: whether this one is to be probed. */
bool spry_kv_pace_probes(spry_kv_pace *pace);

void spry_kv_pace_read(spry_kv_pace *pace, uint64_t bytes, uint64_t ns);
void spry_kv_pace_unpack(spry_kv_pace *pace, uint64_t page_bytes, uint64_t packed_bytes, uint64_t ns);

/* Whether a page should be compressed. False until everything is known. */
bool spry_kv_pace_packs(const spry_kv_pace *pace);

#endif
