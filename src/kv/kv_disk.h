/* The disk tier: full pages in a folder, so that they can be restored after a restart.
 *
 * There is one file per page, named by fingerprint and key, with everything needed to verify it: format version,
 * fingerprint, key, parent key, tokens, codec, sizes and checksums. Files are written to a temporary name and renamed,
 * by one background thread; the index (SQLite) stores sizes and times of last use, and can be rebuilt from the files.
 * A file that fails verification is removed, counted and treated as a miss: never an error, with at most one warning
 * per process and kind of failure. Several processes may use one folder, and several fingerprints (models, KV types)
 * share its byte budget.
 *
 * All functions are for the thread that owns the pool; the background thread is internal. */
#ifndef SPRY_KV_KV_DISK_H
#define SPRY_KV_KV_DISK_H

#include "base/error.h"
#include "kernels/ops.h"
#include "kv/kv_key.h"
#include "kv/kv_pool.h"
#include "platform/threads.h"

typedef struct spry_kv_disk spry_kv_disk;

typedef struct spry_kv_disk_options {
    const char *folder;      /* created if missing */
    uint64_t max_bytes;      /* limit for all files in it, evicted least recently used first; 0: no limit */
    uint64_t ttl_seconds;    /* files not used for this long are removed; 0: never. Clocks may jump in either
                              * direction. */
    spry_kv_key fingerprint; /* hash of model, kernels, KV type and layout */
    size_t page_bytes;
    const spry_kv_mover *mover;   /* reads stored pages by number; NULL: pages are passed as bytes */
    spry_threads *const *threads; /* restore several pages at once; NULL: the owner's alone */
    spry_log log;                 /* borrowed pointers inside */
} spry_kv_disk_options;

/* A page to store or restore. */
typedef struct spry_kv_disk_page {
    spry_kv_key key, parent;
    const int32_t *tokens; /* [SPRY_PAGE_TOKENS] */
} spry_kv_disk_page;

/* Fails only when the folder can neither be read nor created, or memory is short. A read-only folder is used for
 * reading, with a warning. */
spry_status spry_kv_disk_open(spry_kv_disk **out, const spry_kv_disk_options *options, spry_error *error);

/* Waits until every stored page is on disk. */
void spry_kv_disk_close(spry_kv_disk *disk);

/* Whether a page with this key is expected to exist. Makes no system call. */
bool spry_kv_disk_has(const spry_kv_disk *disk, spry_kv_key key);

/* Queues a page for writing. `bytes` (page_bytes of them) is borrowed until spry_kv_disk_collect returns `ticket`;
 * NULL: the background thread reads page number `ticket` through the mover, and the caller holds a reference until
 * then. False, with nothing borrowed, when the page already exists, the folder is not writable, or the queue is full.
 * Never blocks on the disk. */
bool spry_kv_disk_store(spry_kv_disk *disk, const spry_kv_disk_page *page, const void *bytes, uint32_t ticket);

/* Tickets whose bytes are no longer needed, at most `capacity`; with `wait` blocks until there is one, unless the queue
 * is empty. Returns their number. */
size_t spry_kv_disk_collect(spry_kv_disk *disk, uint32_t *tickets, size_t capacity, bool wait);

enum { SPRY_KV_DISK_LOADS = 16 };

/* Restores n pages, at most SPRY_KV_DISK_LOADS, each into its `bytes`, by as many threads as there are, and verifies
 * them: fingerprint, key, parent, tokens, checksum. loaded[i] is false where page i does not exist or failed
 * verification (then it is removed); its bytes may have changed. */
void spry_kv_disk_load(spry_kv_disk *disk, bool *loaded, const spry_kv_disk_page *pages, void *const *bytes, size_t n);

typedef struct spry_kv_disk_figures {
    uint64_t files, bytes;          /* files in the folder with any fingerprint, according to the index */
    uint64_t stored, stored_bytes;  /* written by this process; bytes on disk */
    uint64_t packed;                /* number of stored files that are compressed */
    uint64_t loaded, load_failures; /* pages restored; files that failed verification */
    uint64_t skipped;               /* not stored: the queue or the disk was full */
    uint64_t removed;               /* evicted by age or budget */
    double load_seconds;            /* spent in successful loads */
} spry_kv_disk_figures;

void spry_kv_disk_describe(spry_kv_disk *disk, spry_kv_disk_figures *figures);

#endif
