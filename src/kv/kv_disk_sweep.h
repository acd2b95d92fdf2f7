/* Making folder and index agree, when a folder is opened: pages that are not in the index (their process was killed
 * before it said so, or the index was lost) are added, rows without a file are dropped, and files that were never
 * finished are removed. Costs one listing of the folder; only files the index does not know are looked at. */
#ifndef SPRY_KV_KV_DISK_SWEEP_H
#define SPRY_KV_KV_DISK_SWEEP_H

#include "kv/kv_disk_index.h"

/* Unfinished files younger than this may still be somebody's. */
enum { SPRY_KV_SWEEP_AGE_SECONDS = 600 };

/* One transaction. A listing that takes longer than two seconds is cut short: what was not seen stays as it is. */
spry_status spry_kv_sweep(spry_kv_index *index, const spry_directory *directory, int64_t now, spry_error *error);

#endif
