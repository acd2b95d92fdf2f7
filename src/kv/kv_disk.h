/* The disk tier: full pages in a folder, so that a restart finds what was computed before it.
 *
 * One file a page, named by fingerprint and key, holding everything needed to verify it: format version, fingerprint,
 * key, parent key, tokens, codec, sizes and checksums. Files are written aside and renamed, by one background thread;
 * the index (SQLite) only says what is there, how large and when last used, and can be rebuilt from the files. Whatever
 * does not verify is removed, counted and is a miss: never an error, and one warning a process at most for each kind of
 * trouble. Several processes may use one folder, and several fingerprints (models, KV types) share its byte budget.
 *
 * All functions are for the thread that owns the pool; the background thread is inside. */
#ifndef SPRY_KV_KV_DISK_H
#define SPRY_KV_KV_DISK_H

#include "base/error.h"
#include "base/log.h"
#include "kernels/ops.h"
#include "kv/kv_key.h"
#include "kv/kv_pool.h"

typedef struct spry_kv_disk spry_kv_disk;

typedef struct spry_kv_disk_options {
    const char *folder;      /* made when it is not there */
    uint64_t max_bytes;      /* of all files in it, least recently used go first; 0: no limit */
    uint64_t ttl_seconds;    /* files not used for so long go; 0: never. Clocks may jump in either direction. */
    spry_kv_key fingerprint; /* of model, kernels, KV type and layout */
    size_t page_bytes;
    const spry_kv_mover *mover; /* reads pages that are stored by their number; NULL: none are */
    spry_log log;               /* borrowed pointers inside */
} spry_kv_disk_options;

/* A page to be stored or restored. */
typedef struct spry_kv_disk_page {
    spry_kv_key key, parent;
    const int32_t *tokens; /* [SPRY_PAGE_TOKENS] */
} spry_kv_disk_page;

/* Fails only when the folder can neither be read nor made, or memory is short. A folder that can only be read is used
 * for reading, with a warning. */
spry_status spry_kv_disk_open(spry_kv_disk **out, const spry_kv_disk_options *options, spry_error *error);

/* Waits until everything handed over is on disk. */
void spry_kv_disk_close(spry_kv_disk *disk);

/* Whether a page of this key is believed to be there. Costs no system call. */
bool spry_kv_disk_has(const spry_kv_disk *disk, spry_kv_key key);

/* Hands a page over for writing. `bytes` (page_bytes of them) and nothing else is borrowed, until spry_kv_disk_collect
 * returns `ticket`; NULL: they are those of page number `ticket`, which the background thread reads through the mover,
 * and the caller holds a reference until then. False, and nothing borrowed, when the page is there already, the folder
 * cannot be written, or too much is waiting. Never blocks on the disk. */
bool spry_kv_disk_store(spry_kv_disk *disk, const spry_kv_disk_page *page, const void *bytes, uint32_t ticket);

/* Tickets whose bytes are no longer needed, at most `capacity`; with `wait` blocks until there is one, unless nothing
 * is under way. Returns how many. */
size_t spry_kv_disk_collect(spry_kv_disk *disk, uint32_t *tickets, size_t capacity, bool wait);

/* Reads a page into `bytes` and checks all of it: fingerprint, key, parent, tokens, checksum. False: it was not there
 * or not right (then it is gone); `bytes` may have changed. */
bool spry_kv_disk_load(spry_kv_disk *disk, const spry_kv_disk_page *page, void *bytes);

typedef struct spry_kv_disk_figures {
    uint64_t files, bytes;          /* in the folder, all fingerprints, as the index knows them */
    uint64_t stored, stored_bytes;  /* written by this process; bytes on disk */
    uint64_t packed;                /* of those, compressed */
    uint64_t loaded, load_failures; /* pages restored; files found wrong and removed */
    uint64_t skipped;               /* not stored: too much was waiting, or the disk was full */
    uint64_t removed;               /* by age or budget */
    double load_seconds;            /* spent in successful loads */
} spry_kv_disk_figures;

void spry_kv_disk_describe(spry_kv_disk *disk, spry_kv_disk_figures *figures);

#endif
