/* The transaction is begun before the folder is listed. A writer renames its file first and writes its row afterwards,
 * so every row seen here has a file that the later listing shows; a row without one is stale. */
#include "kv/kv_disk_sweep.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "kv/kv_disk_keys.h"
#include "platform/clock.h"

enum { IN_INDEX = 1, IN_BOTH };

static const uint64_t listing_ns = 2000000000u;

typedef struct sweep {
    spry_kv_index *index;
    const spry_directory *directory;
    spry_kv_keys rows;
    int64_t now;
    uint64_t deadline;
    bool whole;
    spry_status status;
    spry_error *error;
} sweep;

static void remove_leftover(const sweep *s, const char *name)
{
    spry_file_facts facts;
    if (spry_directory_facts(s->directory, name, &facts) == 0 && facts.regular &&
        llabs((long long)(s->now - facts.modified)) > SPRY_KV_SWEEP_AGE_SECONDS)
        spry_directory_remove(s->directory, name);
}

/* A short digest of fingerprint and key. */
static spry_kv_key digest(const spry_kv_file_id *id)
{
    XXH128_hash_t hash = XXH3_128bits(id, sizeof *id);
    return (spry_kv_key){hash.low64, hash.high64};
}

static bool note_row(void *context, const spry_kv_file_id *id, uint64_t bytes)
{
    (void)bytes;
    sweep *s = context;
    if (!spry_kv_keys_put(&s->rows, digest(id), IN_INDEX))
        s->status = spry_fail_memory(s->error, "the list of cached pages", s->rows.count * sizeof *id);
    return s->status == SPRY_OK;
}

static bool remove_dead_row(void *context, const spry_kv_file_id *id, uint64_t bytes)
{
    (void)bytes;
    sweep *s = context;
    if (spry_kv_keys_find(&s->rows, digest(id)) == IN_INDEX)
        s->status = spry_kv_index_remove(s->index, id, s->error);
    return s->status == SPRY_OK;
}

static spry_status note_file(sweep *s, const char *name, const spry_kv_file_id *id)
{
    spry_kv_key key = digest(id);
    spry_file_facts facts;
    if (spry_kv_keys_find(&s->rows, key)) {
        spry_kv_keys_put(&s->rows, key, IN_BOTH);
        return SPRY_OK;
    }
    if (spry_directory_facts(s->directory, name, &facts) != 0 || !facts.regular)
        return SPRY_OK;
    return spry_kv_index_put(s->index, id, facts.size, facts.modified, s->error);
}

static bool visit_name(void *context, const char *name)
{
    sweep *s = context;
    static const char ending[] = SPRY_DIRECTORY_UNFINISHED;
    spry_kv_file_id id;
    size_t length = strlen(name);
    if (spry_kv_file_parse(&id, name))
        s->status = note_file(s, name, &id);
    else if (length >= sizeof ending && strcmp(name + length - (sizeof ending - 1), ending) == 0)
        remove_leftover(s, name);
    s->whole = spry_clock_ns() < s->deadline;
    return s->whole && s->status == SPRY_OK;
}

static spry_status compare(sweep *s)
{
    spry_status status = spry_kv_index_each(s->index, note_row, s, s->error);
    if (status != SPRY_OK || s->status != SPRY_OK)
        return status != SPRY_OK ? status : s->status;
    int failure = spry_directory_each(s->directory, visit_name, s);
    if (s->status == SPRY_OK && s->whole && !failure)
        status = spry_kv_index_each(s->index, remove_dead_row, s, s->error);
    if (status != SPRY_OK || s->status != SPRY_OK)
        return status != SPRY_OK ? status : s->status;
    return spry_kv_index_tidy(s->index, s->now, s->error);
}

spry_status spry_kv_sweep(spry_kv_index *index, const spry_directory *directory, int64_t now, spry_error *error)
{
    sweep s = {.index = index, .directory = directory, .now = now, .whole = true, .error = error};
    s.deadline = spry_clock_ns() + listing_ns;
    spry_kv_keys_init(&s.rows);
    spry_status status = spry_kv_index_begin(index, error);
    if (status == SPRY_OK)
        status = compare(&s);
    if (status == SPRY_OK)
        status = spry_kv_index_commit(index, error);
    if (status != SPRY_OK)
        spry_kv_index_rollback(index);
    spry_kv_keys_deinit(&s.rows);
    return status;
}
