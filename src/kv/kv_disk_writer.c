/* The background thread. It processes the queue in batches: space is freed within the byte budget, the files are
 * written, then one transaction updates the index. A page's bytes are released as soon as its file exists.
 *
 * The order makes a kill harmless: a file is renamed before its row is written, and a row is deleted before its file,
 * so at worst a file without a row remains, which the next opening finds. After a failed write nothing is tried for a
 * second, then two, four and so on; pages queued meanwhile are refused. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <zstd.h>

#include "kv/kv_disk_index.h"
#include "kv/kv_disk_state.h"
#include "platform/clock.h"
#include "platform/threads.h"

/* ---- raw or compressed ------------------------------------------------------------------------------------------- */

static const double weight = 0.25;   /* weight of the newest measurement in the average */
static const double advantage = 0.9; /* pages are packed if reading them takes less than this share of the time */

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

enum { BATCH = 16, VICTIMS = 256, PACK_LEVEL = 1, MINUTE = 60 };

static const uint64_t pause_first_ns = 1000000000u, pause_most_ns = 300000000000u;
static const uint64_t notes_wait_ns = 5000000000u, expiry_ns = 60000000000u;
/* 2025-01-01. A clock before it was never set. */
static const int64_t clock_is_set = 1735689600;

typedef struct batch {
    spry_kv_disk_job jobs[BATCH];
    uint64_t bytes[BATCH]; /* bytes of each file; 0: not written */
    size_t count;
    spry_kv_disk_note notes[SPRY_KV_DISK_NOTES]; /* all older than the files: taken before the first is written */
    size_t n_notes;
} batch;

/* ---- the index -------------------------------------------------------------------------------------------------- */

/* If the system's clock was never set, the newest page gives a better time. */
static spry_status set_clock(spry_kv_disk *disk, spry_error *error)
{
    int64_t newest, now = (int64_t)time(NULL);
    spry_status status = spry_kv_index_newest(&disk->writer.index, &newest, error);
    if (status == SPRY_OK && !disk->opened_at)
        disk->opened_at = now < clock_is_set && newest > now ? newest : now;
    return status;
}

static spry_status count_total(spry_kv_disk *disk, spry_error *error)
{
    uint64_t files, bytes;
    spry_status status = spry_kv_index_total(&disk->writer.index, &files, &bytes, error);
    if (status != SPRY_OK)
        return status;
    pthread_mutex_lock(&disk->lock);
    disk->figures.files = files;
    disk->figures.bytes = bytes;
    pthread_mutex_unlock(&disk->lock);
    return SPRY_OK;
}

static spry_status try_index(spry_kv_disk *disk, const char *path, spry_error *error)
{
    spry_kv_index *index = &disk->writer.index;
    spry_status status = spry_kv_index_open(index, path, error);
    if (status == SPRY_OK)
        status = set_clock(disk, error);
    if (status == SPRY_OK)
        status = spry_kv_sweep(index, &disk->directory, spry_kv_disk_now(disk), error);
    if (status == SPRY_OK)
        status = count_total(disk, error);
    if (status != SPRY_OK)
        spry_kv_index_close(index);
    return status;
}

static void remove_index(const spry_kv_disk *disk)
{
    static const char *const names[] = {SPRY_KV_INDEX_FILE, SPRY_KV_INDEX_FILE "-wal", SPRY_KV_INDEX_FILE "-shm",
                                        SPRY_KV_INDEX_FILE "-journal"};
    for (size_t i = 0; i < SPRY_COUNT(names); i++)
        spry_directory_remove(&disk->directory, names[i]);
}

spry_status spry_kv_disk_open_index(spry_kv_disk *disk, spry_error *error)
{
    spry_error trouble = {0};
    spry_status status = SPRY_ERR_FILE;
    if (disk->writable) {
        status = try_index(disk, disk->index_path, &trouble);
        if (status == SPRY_ERR_FORMAT) {
            spry_kv_disk_raise(disk, SPRY_KV_DISK_INDEX, "%s; a new one was made from the files", trouble.message);
            remove_index(disk);
            status = try_index(disk, disk->index_path, &trouble);
        }
        if (status != SPRY_OK)
            spry_kv_disk_raise(disk, SPRY_KV_DISK_INDEX, "%s; this process keeps its own", trouble.message);
    }
    return status == SPRY_OK ? SPRY_OK : try_index(disk, SPRY_KV_INDEX_IN_MEMORY, error);
}

static int64_t this_minute(const spry_kv_disk *disk)
{
    return spry_kv_disk_now(disk) / MINUTE * MINUTE;
}

/* ---- trouble ---------------------------------------------------------------------------------------------------- */

static void pause_writing(spry_kv_disk *disk, const char *why)
{
    spry_kv_disk_raise(disk, SPRY_KV_DISK_UNWRITTEN, "the cache cannot be written now, pages are skipped: %s", why);
    pthread_mutex_lock(&disk->lock);
    disk->pause_ns = disk->pause_ns ? disk->pause_ns * 2 : pause_first_ns;
    if (disk->pause_ns > pause_most_ns)
        disk->pause_ns = pause_most_ns;
    disk->paused_until = spry_clock_ns() + disk->pause_ns;
    pthread_mutex_unlock(&disk->lock);
}

static bool is_paused(spry_kv_disk *disk)
{
    pthread_mutex_lock(&disk->lock);
    bool paused = spry_clock_ns() < disk->paused_until;
    pthread_mutex_unlock(&disk->lock);
    return paused;
}

static void end_pause(spry_kv_disk *disk)
{
    pthread_mutex_lock(&disk->lock);
    disk->pause_ns = disk->paused_until = 0;
    pthread_mutex_unlock(&disk->lock);
}

/* Handles a failed transaction. A damaged index is replaced at once, so that it fails only once. */
static void lose_transaction(spry_kv_disk *disk, const spry_error *trouble)
{
    spry_kv_index_rollback(&disk->writer.index);
    pause_writing(disk, trouble->message);
    if (trouble->status != SPRY_ERR_FORMAT)
        return;
    spry_kv_disk_raise(disk, SPRY_KV_DISK_INDEX, "%s; a new one was made from the files", trouble->message);
    spry_kv_index_close(&disk->writer.index);
    remove_index(disk);
    spry_kv_disk_open_index(disk, NULL);
}

/* ---- removing --------------------------------------------------------------------------------------------------- */

typedef struct victims {
    spry_kv_file_id ids[VICTIMS];
    size_t count;
    uint64_t bytes, wanted;
} victims;

static bool choose(void *context, const spry_kv_file_id *id, uint64_t bytes)
{
    victims *v = context;
    v->ids[v->count++] = *id;
    v->bytes += bytes;
    return v->count < VICTIMS && v->bytes < v->wanted;
}

/* Deletes rows last used before `before` until the total is within `limit`, or up to the limit of one transaction. */
static spry_status take_rows(spry_kv_index *index, victims *v, int64_t before, uint64_t limit, spry_error *error)
{
    uint64_t files, total;
    spry_status status = spry_kv_index_begin(index, error);
    if (status == SPRY_OK)
        status = spry_kv_index_total(index, &files, &total, error);
    if (status == SPRY_OK && total > limit) {
        v->wanted = total - limit;
        status = spry_kv_index_each_old(index, before, choose, v, error);
    }
    for (size_t i = 0; i < v->count && status == SPRY_OK; i++)
        status = spry_kv_index_remove(index, &v->ids[i], error);
    return status == SPRY_OK ? spry_kv_index_commit(index, error) : status;
}

static void remove_files(spry_kv_disk *disk, const victims *v)
{
    for (size_t i = 0; i < v->count; i++) {
        const spry_kv_file_id *id = &v->ids[i];
        pthread_mutex_lock(&disk->lock);
        if (spry_kv_key_equal(id->fingerprint, disk->fingerprint) &&
            spry_kv_keys_find(&disk->keys, id->key) == SPRY_KV_DISK_THERE)
            spry_kv_keys_remove(&disk->keys, id->key);
        disk->figures.removed++;
        pthread_mutex_unlock(&disk->lock);
        char name[SPRY_KV_FILE_NAME];
        spry_kv_file_name(name, id);
        spry_directory_remove(&disk->directory, name);
    }
}

/* Removes pages last used before `before`, least recently used first, until the total is at most `limit` bytes. */
static bool remove_pages(spry_kv_disk *disk, int64_t before, uint64_t limit)
{
    victims v;
    do {
        spry_error trouble = {0};
        v.count = 0;
        v.bytes = 0;
        if (take_rows(&disk->writer.index, &v, before, limit, &trouble) != SPRY_OK) {
            lose_transaction(disk, &trouble);
            return false;
        }
        remove_files(disk, &v);
    } while (v.count == VICTIMS);
    count_total(disk, NULL);
    return true;
}

static bool make_room(spry_kv_disk *disk, uint64_t bytes)
{
    return !disk->max_bytes || remove_pages(disk, INT64_MAX, disk->max_bytes - bytes);
}

/* Times have a resolution of one minute, so a page may live a minute longer. */
static void expire(spry_kv_disk *disk)
{
    int64_t now = spry_kv_disk_now(disk);
    disk->writer.last_expiry_ns = spry_clock_ns();
    if (disk->ttl_seconds && !is_paused(disk) && now > MINUTE && disk->ttl_seconds < (uint64_t)(now - MINUTE))
        remove_pages(disk, now - MINUTE - (int64_t)disk->ttl_seconds, 0);
}

/* ---- one page --------------------------------------------------------------------------------------------------- */

static bool writer_reserve(spry_kv_disk *disk)
{
    spry_kv_disk_writer *writer = &disk->writer;
    if (!writer->packer)
        writer->packer = ZSTD_createCCtx();
    if (!writer->packed) {
        writer->packed_capacity = ZSTD_compressBound(disk->page_bytes);
        writer->packed = malloc(writer->packed_capacity);
    }
    if (!writer->probed)
        writer->probed = malloc(disk->page_bytes);
    return writer->packer && writer->packed && writer->probed;
}

/* A page that does not shrink stays raw. */
static void pack(spry_kv_disk *disk, spry_kv_file_body *body)
{
    spry_kv_disk_writer *writer = &disk->writer;
    size_t size = ZSTD_compressCCtx(writer->packer, writer->packed, writer->packed_capacity, body->page,
                                    body->page_bytes, PACK_LEVEL);
    if (ZSTD_isError(size) || size >= body->page_bytes)
        return;
    body->packed = writer->packed;
    body->packed_bytes = size;
}

static void probe_unpacking(spry_kv_disk *disk, const spry_kv_file_body *body)
{
    size_t size = body->packed ? body->packed_bytes : body->page_bytes;
    uint64_t start = spry_clock_ns();
    if (body->packed)
        ZSTD_decompress(disk->writer.probed, disk->page_bytes, body->packed, size);
    uint64_t ns = spry_clock_ns() - start;
    pthread_mutex_lock(&disk->lock);
    spry_kv_pace_unpack(&disk->pace, disk->page_bytes, size, ns);
    pthread_mutex_unlock(&disk->lock);
}

static void probe_reading(spry_kv_disk *disk, const spry_kv_disk_page *page)
{
    char name[SPRY_KV_FILE_NAME];
    spry_kv_file_name(name, &(spry_kv_file_id){disk->fingerprint, page->key});
    spry_opened opened;
    if (spry_opened_open(&opened, &disk->directory, name) != 0)
        return;
    spry_opened_forget(&opened);
    spry_opened_close(&opened);
    spry_kv_file_cost cost;
    if (spry_kv_file_read(&disk->directory, disk->fingerprint, page, disk->writer.probed, disk->page_bytes,
                          &disk->writer.scratch, &cost) != SPRY_KV_FILE_OK)
        return;
    pthread_mutex_lock(&disk->lock);
    spry_kv_pace_read(&disk->pace, cost.stored_bytes, cost.read_ns);
    pthread_mutex_unlock(&disk->lock);
}

/* NULL when memory is short or the page cannot be read. */
static const void *page_of(spry_kv_disk *disk, const spry_kv_disk_job *job)
{
    spry_kv_disk_writer *writer = &disk->writer;
    if (job->bytes)
        return job->bytes;
    if (!writer->room)
        writer->room = malloc(disk->page_bytes); /* not touched when the mover lends its memory */
    return writer->room ? disk->mover->read(disk->mover->self, job->ticket, writer->room) : NULL;
}

/* Returns an error number; *file_bytes is the size of the file. */
static int write_page(spry_kv_disk *disk, const spry_kv_disk_job *job, uint64_t *file_bytes)
{
    pthread_mutex_lock(&disk->lock);
    bool probes = spry_kv_pace_probes(&disk->pace), packs = spry_kv_pace_packs(&disk->pace);
    pthread_mutex_unlock(&disk->lock);
    spry_kv_disk_page page = {job->key, job->parent, job->tokens};
    spry_kv_file_body body = {.page = page_of(disk, job), .page_bytes = disk->page_bytes};
    if (!body.page)
        return EIO;
    if ((probes || packs) && !writer_reserve(disk))
        probes = packs = false;
    if (probes || packs)
        pack(disk, &body);
    if (probes)
        probe_unpacking(disk, &body);
    if (!packs)
        body.packed = NULL;
    int failure = spry_kv_file_write(&disk->directory, disk->fingerprint, &page, &body);
    *file_bytes = SPRY_KV_FILE_HEAD + (body.packed ? body.packed_bytes : body.page_bytes);
    if (!failure && probes)
        probe_reading(disk, &page);
    return failure;
}

/* ---- batches ---------------------------------------------------------------------------------------------------- */

/* Returns a page to the owner; `bytes` is 0 when it was not written. */
static void finish_job(spry_kv_disk *disk, const spry_kv_disk_job *job, uint64_t bytes)
{
    pthread_mutex_lock(&disk->lock);
    if (bytes) {
        spry_kv_keys_put(&disk->keys, job->key, SPRY_KV_DISK_THERE);
        disk->figures.stored++;
        disk->figures.stored_bytes += bytes;
        disk->figures.packed += bytes < disk->file_bytes;
    } else {
        spry_kv_keys_remove(&disk->keys, job->key);
        disk->figures.skipped++;
    }
    disk->n_writing--;
    disk->finished[disk->n_finished++] = job->ticket;
    pthread_cond_signal(&disk->done);
    pthread_mutex_unlock(&disk->lock);
}

static void write_files(spry_kv_disk *disk, batch *b)
{
    bool writes = !is_paused(disk) && make_room(disk, b->count * disk->file_bytes);
    for (size_t i = 0; i < b->count; i++) {
        int failure = writes ? write_page(disk, &b->jobs[i], &b->bytes[i]) : 0;
        if (failure) {
            pause_writing(disk, strerror(failure));
            writes = false;
        }
        if (!writes)
            b->bytes[i] = 0;
        finish_job(disk, &b->jobs[i], b->bytes[i]);
    }
}

/* Removes files that the index could not record: they would never be counted. */
static void take_back(spry_kv_disk *disk, const batch *b)
{
    for (size_t i = 0; i < b->count; i++) {
        if (!b->bytes[i])
            continue;
        char name[SPRY_KV_FILE_NAME];
        spry_kv_file_name(name, &(spry_kv_file_id){disk->fingerprint, b->jobs[i].key});
        spry_directory_remove(&disk->directory, name);
        pthread_mutex_lock(&disk->lock);
        spry_kv_keys_remove(&disk->keys, b->jobs[i].key);
        disk->figures.stored--;
        disk->figures.stored_bytes -= b->bytes[i];
        disk->figures.packed -= b->bytes[i] < disk->file_bytes;
        disk->figures.skipped++;
        pthread_mutex_unlock(&disk->lock);
    }
}

/* Notes first: a page that was found damaged may have been stored again since. */
static spry_status record_rows(spry_kv_disk *disk, const batch *b, spry_error *error)
{
    spry_kv_index *index = &disk->writer.index;
    int64_t used = this_minute(disk);
    spry_status status = spry_kv_index_begin(index, error);
    for (size_t i = 0; i < b->n_notes && status == SPRY_OK; i++) {
        spry_kv_file_id id = {disk->fingerprint, b->notes[i].key};
        status =
            b->notes[i].used ? spry_kv_index_use(index, &id, used, error) : spry_kv_index_remove(index, &id, error);
    }
    for (size_t i = 0; i < b->count && status == SPRY_OK; i++) {
        spry_kv_file_id id = {disk->fingerprint, b->jobs[i].key};
        if (b->bytes[i])
            status = spry_kv_index_put(index, &id, b->bytes[i], used, error);
    }
    return status == SPRY_OK ? spry_kv_index_commit(index, error) : status;
}

static void record(spry_kv_disk *disk, const batch *b)
{
    size_t n_written = 0;
    for (size_t i = 0; i < b->count; i++)
        n_written += b->bytes[i] != 0;
    if (!n_written && (!b->n_notes || is_paused(disk)))
        return;
    spry_error trouble = {0};
    if (record_rows(disk, b, &trouble) != SPRY_OK) {
        take_back(disk, b);
        lose_transaction(disk, &trouble);
        return;
    }
    count_total(disk, NULL);
    if (n_written && n_written == b->count)
        end_pause(disk);
}

/* ---- the thread ------------------------------------------------------------------------------------------------- */

/* Called with the lock held. */
static void take_work(spry_kv_disk *disk, batch *b)
{
    size_t most = BATCH;
    if (disk->max_bytes && disk->max_bytes / disk->file_bytes < most)
        most = (size_t)(disk->max_bytes / disk->file_bytes);
    while (b->count < most && disk->n_queued) {
        b->jobs[b->count++] = disk->queue[disk->queue_first];
        disk->queue_first = (disk->queue_first + 1) % SPRY_KV_DISK_WAITING;
        disk->n_queued--;
        disk->n_writing++;
    }
    memcpy(b->notes, disk->notes, disk->n_notes * sizeof *disk->notes);
    b->n_notes = disk->n_notes;
    disk->n_notes = 0;
}

/* The next time to wake up without new work; 0: never. */
static uint64_t next_wake(const spry_kv_disk *disk, uint64_t notes_since)
{
    if (disk->n_notes)
        return notes_since + notes_wait_ns;
    return disk->ttl_seconds ? disk->writer.last_expiry_ns + expiry_ns : 0;
}

/* Waits for pages, for old records, or for the next check of ages. False: the thread should exit. */
static bool wait_for_work(spry_kv_disk *disk, batch *b)
{
    uint64_t notes_since = spry_clock_ns();
    b->count = 0;
    pthread_mutex_lock(&disk->lock);
    bool leaves = false;
    while (!disk->n_queued && !leaves && disk->n_notes < SPRY_KV_DISK_NOTES / 2) {
        uint64_t now = spry_clock_ns();
        if (!disk->n_notes)
            notes_since = now;
        uint64_t look = next_wake(disk, notes_since);
        leaves = disk->stopping;
        if (leaves || (look && now >= look))
            break;
        if (look)
            spry_background_wait(&disk->work, &disk->lock, look - now);
        else
            pthread_cond_wait(&disk->work, &disk->lock);
    }
    take_work(disk, b);
    pthread_mutex_unlock(&disk->lock);
    return !leaves;
}

static void writer_release(spry_kv_disk_writer *writer)
{
    ZSTD_freeCCtx(writer->packer);
    free(writer->packed);
    free(writer->room);
    free(writer->probed);
    spry_kv_file_scratch_deinit(&writer->scratch);
}

void *spry_kv_disk_writer_main(void *argument)
{
    spry_kv_disk *disk = argument;
    batch b = {.count = 0};
    expire(disk);
    make_room(disk, 0); /* the budget may be smaller than before */
    while (wait_for_work(disk, &b)) {
        write_files(disk, &b);
        record(disk, &b);
        if (spry_clock_ns() - disk->writer.last_expiry_ns >= expiry_ns)
            expire(disk);
    }
    record(disk, &b);
    writer_release(&disk->writer);
    return NULL;
}
