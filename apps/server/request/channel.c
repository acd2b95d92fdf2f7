/* The reader is woken under the lock, so once it has seen the last answer's end, no writer uses the channel any more.
 */
#include "server/request/channel.h"

spry_status spry_channel_init(spry_channel *c, size_t max, spry_error *error)
{
    c->n_done = 0;
    if (!spry_wakeup_init(&c->wakeup))
        return spry_fail(error, SPRY_ERR_MEMORY, "too many open files to take another request");
    if (pthread_mutex_init(&c->lock, NULL)) {
        spry_wakeup_deinit(&c->wakeup);
        return spry_fail_memory(error, "a lock", sizeof c->lock);
    }
    spry_buffer_init(&c->records, max);
    return SPRY_OK;
}

void spry_channel_deinit(spry_channel *c)
{
    spry_buffer_deinit(&c->records);
    pthread_mutex_destroy(&c->lock);
    spry_wakeup_deinit(&c->wakeup);
}

bool spry_channel_post(spry_channel *c, uint32_t kind, uint32_t choice, const void *data, size_t size)
{
    spry_record record = {kind, choice, size};
    pthread_mutex_lock(&c->lock);
    bool was_empty = c->records.size == 0;
    size_t before = c->records.size;
    bool fits = spry_buffer_append(&c->records, &record, sizeof record) && spry_buffer_append(&c->records, data, size);
    if (!fits)
        c->records.size = before;
    if (fits && was_empty)
        spry_wakeup_raise(&c->wakeup);
    pthread_mutex_unlock(&c->lock);
    return fits;
}

void spry_channel_post_done(spry_channel *c)
{
    pthread_mutex_lock(&c->lock);
    c->n_done++;
    spry_wakeup_raise(&c->wakeup);
    pthread_mutex_unlock(&c->lock);
}

size_t spry_channel_take(spry_channel *c, spry_buffer *out)
{
    pthread_mutex_lock(&c->lock);
    spry_buffer empty = *out;
    *out = c->records;
    c->records = empty;
    spry_wakeup_clear(&c->wakeup);
    size_t n_done = c->n_done;
    pthread_mutex_unlock(&c->lock);
    return n_done;
}

spry_wait_result spry_channel_wait(const spry_channel *c, int socket, uint64_t until_ns)
{
    return spry_wakeup_wait(&c->wakeup, socket, until_ns);
}
