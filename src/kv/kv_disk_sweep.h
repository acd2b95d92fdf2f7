/* Makes folder and index consistent when a folder is opened: pages missing in the index (their process was killed, or
 * the index was lost) are added, rows without a file are removed, and unfinished files are removed. Costs one listing
 * of the folder; only files missing in the index are examined. */
#ifndef SPRY_KV_KV_DISK_SWEEP_H
#define SPRY_KV_KV_DISK_SWEEP_H

#include "kv/kv_disk_index.h"

/* Unfinished files younger than this may still be written by another process. */
enum { SPRY_KV_SWEEP_AGE_SECONDS = 600 };

/* One transaction. A listing that takes longer than two seconds is stopped; entries not seen stay unchanged. */
spry_status spry_kv_sweep(spry_kv_index *index, const spry_directory *directory, int64_t now, spry_error *error);

#endif
