/* The shared state of the disk tier: the owner (kv_disk.c), which queues pages and restores them, and the writer
 * (kv_disk_writer.c), the only thread that writes files and uses the index. Shared members are protected by `lock`,
 * which is never held during file or index operations; the folder and the settings never change. */
#ifndef SPRY_KV_KV_DISK_STATE_H
#define SPRY_KV_KV_DISK_STATE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "kv/kv_disk_index.h"
#include "kv/kv_key.h"

/* Chooses between raw and compressed pages, from measurements. A page of P bytes is restored in P / read when raw, and
 * in P * ratio / read + P / unpack when compressed; the smaller wins, and compression must win by 10 %, because it also
 * costs the writer time. The first pages are probed (compressed, decompressed, and read back from the device instead of
 * the page cache), then one of every few hundred; every restored page counts as well. */

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

enum {
    SPRY_KV_DISK_WAITING = 64, /* maximum of queued and uncollected pages */
    SPRY_KV_DISK_NOTES = 512,
    SPRY_KV_DISK_SENTENCE = 256,
};

/* The state of a key. */
enum { SPRY_KV_DISK_COMING = 1, SPRY_KV_DISK_THERE };

/* Kinds of failures. Each is logged once. */
typedef enum spry_kv_disk_trouble {
    SPRY_KV_DISK_READ_ONLY,
    SPRY_KV_DISK_SMALL,
    SPRY_KV_DISK_INDEX,
    SPRY_KV_DISK_UNWRITTEN,
    SPRY_KV_DISK_DAMAGED,
    SPRY_KV_DISK_TROUBLES,
} spry_kv_disk_trouble;

typedef struct spry_kv_disk_job {
    spry_kv_key key, parent;
    int32_t tokens[SPRY_PAGE_TOKENS];
    const void *bytes; /* NULL: the mover reads page number `ticket` */
    uint32_t ticket;
} spry_kv_disk_job;

/* An event for the index, recorded by the owner. */
typedef struct spry_kv_disk_note {
    spry_kv_key key;
    bool used; /* restored; otherwise the file no longer exists */
} spry_kv_disk_note;

/* State of the writer thread. */
typedef struct spry_kv_disk_writer {
    pthread_t thread;
    spry_kv_index index;
    struct ZSTD_CCtx_s *packer;
    void *packed; /* [packed_capacity], NULL until a page is compressed */
    size_t packed_capacity;
    void *room;   /* [page_bytes] for pages that the mover copies, NULL until the first */
    void *probed; /* [page_bytes], NULL until a page is probed */
    spry_kv_file_scratch scratch;
    uint64_t last_expiry_ns;
} spry_kv_disk_writer;

struct spry_kv_disk {
    char *folder, *index_path;
    spry_directory directory;
    spry_kv_key fingerprint;
    size_t page_bytes;
    const spry_kv_mover *mover;
    uint64_t file_bytes; /* bytes of a raw page's file */
    uint64_t max_bytes;  /* 0: no limit */
    uint64_t ttl_seconds;
    bool writable;
    int64_t opened_at; /* seconds since 1970 at the monotonic time opened_ns */
    uint64_t opened_ns;
    spry_log log;

    spry_threads *const *threads;                     /* NULL: none */
    spry_kv_file_scratch scratch[SPRY_KV_DISK_LOADS]; /* one for each page that is restored at the same time */
    spry_kv_disk_writer writer;

    pthread_mutex_t lock;
    pthread_cond_t work, done;
    bool stopping;
    spry_kv_keys keys;
    spry_kv_disk_job queue[SPRY_KV_DISK_WAITING]; /* a ring */
    size_t queue_first, n_queued, n_writing;
    uint32_t finished[SPRY_KV_DISK_WAITING];
    size_t n_finished;
    spry_kv_disk_note notes[SPRY_KV_DISK_NOTES];
    size_t n_notes;
    uint64_t paused_until, pause_ns; /* after a failure nothing is accepted until then; 0: no failure */
    spry_kv_pace pace;
    spry_kv_disk_figures figures;
    bool raised[SPRY_KV_DISK_TROUBLES], said[SPRY_KV_DISK_TROUBLES];
    char sentences[SPRY_KV_DISK_TROUBLES][SPRY_KV_DISK_SENTENCE];
};

/* Opens the index, or creates a new one in place of a damaged one, or one in memory; then sweeps the folder. Fails only
 * when memory is short. */
spry_status spry_kv_disk_open_index(spry_kv_disk *disk, spry_error *error);

/* Seconds since 1970. After opening, only the monotonic clock is used. */
int64_t spry_kv_disk_now(const spry_kv_disk *disk);

/* Stores a message for the owner to log, unless this kind was raised before. Takes the lock. */
void spry_kv_disk_raise(spry_kv_disk *disk, spry_kv_disk_trouble kind, const char *format, ...) SPRY_PRINTF(3, 4);

/* The writer's thread; returns when the queue is empty and `stopping` set. */
void *spry_kv_disk_writer_main(void *disk);

#endif
