/* The owner's side: opening, storing pages, restoring them. */
#include "kv/kv_disk.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "kv/kv_disk_state.h"
#include "platform/clock.h"
#include "platform/threads.h"

/* ---- talking ---------------------------------------------------------------------------------------------------- */

void spry_kv_disk_raise(spry_kv_disk *disk, spry_kv_disk_trouble kind, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    pthread_mutex_lock(&disk->lock);
    if (!disk->raised[kind])
        vsnprintf(disk->sentences[kind], SPRY_KV_DISK_SENTENCE, format, args);
    disk->raised[kind] = true;
    pthread_mutex_unlock(&disk->lock);
    va_end(args);
}

/* Only the owner's thread logs, so that the log callback need not be thread-safe. */
static void log_troubles(spry_kv_disk *disk)
{
    bool speaks[SPRY_KV_DISK_TROUBLES];
    pthread_mutex_lock(&disk->lock);
    for (int kind = 0; kind < SPRY_KV_DISK_TROUBLES; kind++) {
        speaks[kind] = disk->raised[kind] && !disk->said[kind];
        disk->said[kind] = disk->raised[kind];
    }
    pthread_mutex_unlock(&disk->lock);
    for (int kind = 0; kind < SPRY_KV_DISK_TROUBLES; kind++)
        if (speaks[kind]) /* a message once raised never changes, so it can be read without the lock */
            spry_log_write(&disk->log, SPRY_LOG_WARN, "%s: %s", disk->folder, disk->sentences[kind]);
}

/* ---- opening and closing ---------------------------------------------------------------------------------------- */

int64_t spry_kv_disk_now(const spry_kv_disk *disk)
{
    return disk->opened_at + (int64_t)((spry_clock_ns() - disk->opened_ns) / 1000000000u);
}

static spry_status copy_settings(spry_kv_disk *disk, const spry_kv_disk_options *options, spry_error *error)
{
    size_t file_bytes, path_bytes = strlen(options->folder) + sizeof SPRY_KV_INDEX_FILE + 1;
    if (!options->page_bytes || !spry_checked_add(&file_bytes, options->page_bytes, SPRY_KV_FILE_HEAD))
        return spry_fail(error, SPRY_ERR_INPUT, "%s: pages of %zu bytes cannot be stored", options->folder,
                         options->page_bytes);
    disk->folder = strdup(options->folder);
    disk->index_path = malloc(path_bytes);
    if (!disk->folder || !disk->index_path)
        return spry_fail_memory(error, "the cache folder's name", path_bytes);
    snprintf(disk->index_path, path_bytes, "%s/%s", options->folder, SPRY_KV_INDEX_FILE);
    disk->fingerprint = options->fingerprint;
    disk->page_bytes = options->page_bytes;
    disk->mover = options->mover;
    disk->threads = options->threads;
    disk->file_bytes = file_bytes;
    disk->log = options->log;
    return SPRY_OK;
}

/* A read-only folder is not cleaned up. */
static void find_limits(spry_kv_disk *disk, const spry_kv_disk_options *options)
{
    disk->writable = spry_directory_writable(&disk->directory);
    if (!disk->writable) {
        spry_kv_disk_raise(disk, SPRY_KV_DISK_READ_ONLY, "the cache can be read but not written");
        return;
    }
    disk->max_bytes = options->max_bytes;
    disk->ttl_seconds = options->ttl_seconds;
    if (disk->max_bytes && disk->max_bytes < disk->file_bytes)
        spry_kv_disk_raise(disk, SPRY_KV_DISK_SMALL,
                           "the cache may have %llu bytes and one page takes %llu: nothing is stored",
                           (unsigned long long)disk->max_bytes, (unsigned long long)disk->file_bytes);
}

static bool learn_key(void *context, const spry_kv_file_id *id, uint64_t bytes)
{
    (void)bytes;
    spry_kv_disk *disk = context;
    return spry_kv_keys_put(&disk->keys, id->key, SPRY_KV_DISK_THERE); /* fails if memory is short: a miss later */
}

/* Keys missing in the index are misses. */
static void learn_keys(spry_kv_disk *disk)
{
    spry_error trouble = {0};
    if (spry_kv_index_each_of(&disk->writer.index, disk->fingerprint, learn_key, disk, &trouble) != SPRY_OK)
        spry_kv_disk_raise(disk, SPRY_KV_DISK_INDEX, "%s; some pages are not used", trouble.message);
}

static void release(spry_kv_disk *disk)
{
    spry_kv_index_close(&disk->writer.index);
    for (size_t i = 0; i < SPRY_KV_DISK_LOADS; i++)
        spry_kv_file_scratch_deinit(&disk->scratch[i]);
    spry_kv_keys_deinit(&disk->keys);
    spry_directory_close(&disk->directory);
    pthread_cond_destroy(&disk->done);
    pthread_cond_destroy(&disk->work);
    pthread_mutex_destroy(&disk->lock);
    free(disk->folder);
    free(disk->index_path);
    free(disk);
}

static spry_kv_disk *create(void)
{
    spry_kv_disk *disk = calloc(1, sizeof *disk);
    if (!disk)
        return NULL;
    disk->directory.descriptor = -1;
    disk->opened_ns = spry_clock_ns();
    spry_kv_keys_init(&disk->keys);
    pthread_mutex_init(&disk->lock, NULL);
    spry_background_condition(&disk->work);
    pthread_cond_init(&disk->done, NULL);
    return disk;
}

spry_status spry_kv_disk_open(spry_kv_disk **out, const spry_kv_disk_options *options, spry_error *error)
{
    *out = NULL;
    spry_kv_disk *disk = create();
    if (!disk)
        return spry_fail_memory(error, "the disk cache", sizeof *disk);
    spry_status status = copy_settings(disk, options, error);
    if (status == SPRY_OK)
        status = spry_directory_open(&disk->directory, options->folder, error);
    if (status == SPRY_OK) {
        find_limits(disk, options);
        status = spry_kv_disk_open_index(disk, error);
    }
    if (status == SPRY_OK)
        learn_keys(disk);
    if (status == SPRY_OK)
        status = spry_background_start(&disk->writer.thread, spry_kv_disk_writer_main, disk, "the disk cache", error);
    if (status != SPRY_OK) {
        release(disk);
        return status;
    }
    log_troubles(disk);
    *out = disk;
    return SPRY_OK;
}

void spry_kv_disk_close(spry_kv_disk *disk)
{
    if (!disk)
        return;
    pthread_mutex_lock(&disk->lock);
    disk->stopping = true;
    pthread_cond_signal(&disk->work);
    pthread_mutex_unlock(&disk->lock);
    pthread_join(disk->writer.thread, NULL);
    log_troubles(disk);
    release(disk);
}

/* ---- storing ---------------------------------------------------------------------------------------------------- */

bool spry_kv_disk_has(const spry_kv_disk *disk, spry_kv_key key)
{
    pthread_mutex_t *lock = (pthread_mutex_t *)(uintptr_t)&disk->lock;
    pthread_mutex_lock(lock);
    bool has = spry_kv_keys_find(&disk->keys, key) == SPRY_KV_DISK_THERE;
    pthread_mutex_unlock(lock);
    return has;
}

/* Called with the lock held. */
static bool enqueue(spry_kv_disk *disk, const spry_kv_disk_page *page, const void *bytes, uint32_t ticket)
{
    if (spry_kv_keys_find(&disk->keys, page->key))
        return false;
    bool full = disk->n_queued + disk->n_writing + disk->n_finished == SPRY_KV_DISK_WAITING;
    if (full || spry_clock_ns() < disk->paused_until ||
        !spry_kv_keys_put(&disk->keys, page->key, SPRY_KV_DISK_COMING)) {
        disk->figures.skipped++;
        return false;
    }
    spry_kv_disk_job *job = &disk->queue[(disk->queue_first + disk->n_queued++) % SPRY_KV_DISK_WAITING];
    *job = (spry_kv_disk_job){.key = page->key, .parent = page->parent, .bytes = bytes, .ticket = ticket};
    memcpy(job->tokens, page->tokens, sizeof job->tokens);
    pthread_cond_signal(&disk->work);
    return true;
}

bool spry_kv_disk_store(spry_kv_disk *disk, const spry_kv_disk_page *page, const void *bytes, uint32_t ticket)
{
    if (!disk->writable || (disk->max_bytes && disk->max_bytes < disk->file_bytes))
        return false;
    pthread_mutex_lock(&disk->lock);
    bool taken = enqueue(disk, page, bytes, ticket);
    pthread_mutex_unlock(&disk->lock);
    log_troubles(disk);
    return taken;
}

size_t spry_kv_disk_collect(spry_kv_disk *disk, uint32_t *tickets, size_t capacity, bool wait)
{
    pthread_mutex_lock(&disk->lock);
    while (wait && capacity && !disk->n_finished && disk->n_queued + disk->n_writing)
        pthread_cond_wait(&disk->done, &disk->lock);
    size_t count = 0;
    while (count < capacity && disk->n_finished)
        tickets[count++] = disk->finished[--disk->n_finished];
    pthread_mutex_unlock(&disk->lock);
    log_troubles(disk);
    return count;
}

/* ---- restoring -------------------------------------------------------------------------------------------------- */

/* Called with the lock held. A record without room is dropped: the page then looks older than it is, or is missed
 * again. */
static void record(spry_kv_disk *disk, spry_kv_key key, bool used)
{
    if (disk->n_notes == SPRY_KV_DISK_NOTES)
        return;
    disk->notes[disk->n_notes++] = (spry_kv_disk_note){key, used};
    if (disk->n_notes == 1 || disk->n_notes == SPRY_KV_DISK_NOTES / 2)
        pthread_cond_signal(&disk->work);
}

static void count_load(spry_kv_disk *disk, spry_kv_key key, const spry_kv_file_cost *cost, uint64_t ns)
{
    pthread_mutex_lock(&disk->lock);
    disk->figures.loaded++;
    disk->figures.load_seconds += (double)ns * 1e-9;
    spry_kv_pace_read(&disk->pace, cost->stored_bytes, cost->read_ns);
    if (cost->stored_bytes < disk->page_bytes)
        spry_kv_pace_unpack(&disk->pace, disk->page_bytes, cost->stored_bytes, cost->unpack_ns);
    record(disk, key, true);
    pthread_mutex_unlock(&disk->lock);
}

static void drop(spry_kv_disk *disk, spry_kv_key key, spry_kv_file_result why)
{
    if (why == SPRY_KV_FILE_WRONG) {
        char name[SPRY_KV_FILE_NAME];
        spry_kv_file_name(name, &(spry_kv_file_id){disk->fingerprint, key});
        int failure = spry_directory_remove(&disk->directory, name);
        spry_kv_disk_raise(disk, SPRY_KV_DISK_DAMAGED, "%s is damaged or of another page and was %s", name,
                           failure ? "ignored" : "removed");
    }
    pthread_mutex_lock(&disk->lock);
    spry_kv_keys_remove(&disk->keys, key);
    disk->figures.load_failures += why == SPRY_KV_FILE_WRONG;
    if (why != SPRY_KV_FILE_REFUSED)
        record(disk, key, false);
    pthread_mutex_unlock(&disk->lock);
}

/* Pages that are read at once, and what became of each. */
typedef struct loads {
    spry_kv_disk *disk;
    const spry_kv_disk_page *pages;
    void *const *bytes;
    bool there[SPRY_KV_DISK_LOADS];
    spry_kv_file_result results[SPRY_KV_DISK_LOADS];
    spry_kv_file_cost costs[SPRY_KV_DISK_LOADS];
    uint64_t ns[SPRY_KV_DISK_LOADS];
} loads;

static void read_files(void *context, size_t begin, size_t end)
{
    loads *l = context;
    spry_kv_disk *disk = l->disk;
    for (size_t i = begin; i < end; i++) {
        uint64_t start = spry_clock_ns();
        if (l->there[i])
            l->results[i] = spry_kv_file_read(&disk->directory, disk->fingerprint, &l->pages[i], l->bytes[i],
                                              disk->page_bytes, &disk->scratch[i], &l->costs[i]);
        l->ns[i] = spry_clock_ns() - start;
    }
}

void spry_kv_disk_load(spry_kv_disk *disk, bool *loaded, const spry_kv_disk_page *pages, void *const *bytes, size_t n)
{
    loads l = {.disk = disk, .pages = pages, .bytes = bytes};
    for (size_t i = 0; i < n; i++)
        l.there[i] = spry_kv_disk_has(disk, pages[i].key);
    if (disk->threads && n > 1)
        spry_threads_share(*disk->threads, read_files, &l, n, 1);
    else
        read_files(&l, 0, n);
    for (size_t i = 0; i < n; i++) {
        loaded[i] = l.there[i] && l.results[i] == SPRY_KV_FILE_OK;
        if (loaded[i])
            count_load(disk, pages[i].key, &l.costs[i], l.ns[i]);
        else if (l.there[i])
            drop(disk, pages[i].key, l.results[i]);
    }
    log_troubles(disk);
}

void spry_kv_disk_describe(spry_kv_disk *disk, spry_kv_disk_figures *figures)
{
    pthread_mutex_lock(&disk->lock);
    *figures = disk->figures;
    pthread_mutex_unlock(&disk->lock);
    log_troubles(disk);
}
