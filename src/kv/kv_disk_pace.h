/* Chooses between raw and compressed pages, from measurements. A page of P bytes is restored in P / read when raw, and
 * in P * ratio / read + P / unpack when compressed; the smaller wins, and compression must win by 10 %, because it also
 * costs the writer time. The first pages are probed (compressed, decompressed, and read back from the device instead of
 * the page cache), then one of every few hundred; every restored page counts as well. */
#ifndef SPRY_KV_KV_DISK_PACE_H
#define SPRY_KV_KV_DISK_PACE_H

#include <stdbool.h>
#include <stdint.h>

enum { SPRY_KV_PACE_FIRST = 3, SPRY_KV_PACE_EVERY = 256 };

/* Moving averages; 0: not measured. */
typedef struct spry_kv_pace {
    double read_ns;   /* per byte of a file */
    double unpack_ns; /* per byte of a page */
    double ratio;     /* compressed size relative to the page */
    uint64_t stored;  /* pages considered */
} spry_kv_pace;

/* Called once for each page to be stored: whether to probe it. */
bool spry_kv_pace_probes(spry_kv_pace *pace);

void spry_kv_pace_read(spry_kv_pace *pace, uint64_t bytes, uint64_t ns);
void spry_kv_pace_unpack(spry_kv_pace *pace, uint64_t page_bytes, uint64_t packed_bytes, uint64_t ns);

/* Whether to compress a page. False until everything is measured. */
bool spry_kv_pace_packs(const spry_kv_pace *pace);

#endif
