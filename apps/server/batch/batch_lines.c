#include "server/batch/batch_lines.h"

#include <stdlib.h>
#include <string.h>

#include "platform/threads.h"

spry_status spry_batch_lines_open(spry_batch_lines *lines, const char *path, spry_error *error)
{
    *lines = (spry_batch_lines){.at = 0};
    pthread_mutex_init(&lines->lock, NULL);
    spry_background_condition(&lines->changed);
    return spry_mapping_open(&lines->input, path, error);
}

void spry_batch_lines_close(spry_batch_lines *lines)
{
    spry_mapping_close(&lines->input);
    free(lines->taken);
    pthread_cond_destroy(&lines->changed);
    pthread_mutex_destroy(&lines->lock);
}

static bool read_line(spry_batch_lines *l, spry_batch_line *line)
{
    while (l->at < l->input.size) {
        const char *begin = (const char *)l->input.data + l->at;
        const char *end = memchr(begin, '\n', l->input.size - l->at);
        line->text = (spry_view){begin, end ? (size_t)(end - begin) : l->input.size - l->at};
        l->at += line->text.size + (end != NULL);
        line->number = ++l->line;
        for (size_t i = 0; i < line->text.size; i++)
            if (!memchr(" \t\r", begin[i], 3))
                return true;
    }
    return false;
}

static bool remember(spry_batch_lines *l, const spry_batch_line *line)
{
    if (l->n_taken == l->capacity) {
        size_t capacity = l->capacity ? 2 * l->capacity : 64;
        spry_batch_line *grown = realloc(l->taken, capacity * sizeof *grown);
        if (!grown)
            return false;
        l->taken = grown;
        l->capacity = capacity;
    }
    l->taken[l->n_taken++] = *line;
    return true;
}

static spry_batch_take take(spry_batch_lines *l, spry_batch_line *line, uint32_t rank)
{
    if (l->stopped)
        return SPRY_BATCH_END;
    for (size_t i = 0; i < l->n_taken; i++)
        if (l->taken[i].free) {
            l->taken[i].free = false;
            l->taken[i].rank = rank;
            *line = l->taken[i];
            return SPRY_BATCH_LINE;
        }
    *line = (spry_batch_line){.rank = rank};
    bool found = read_line(l, line);
    while (found && l->skip && l->skip(l->user, line))
        found = read_line(l, line);
    if (found)
        return remember(l, line) ? SPRY_BATCH_LINE : SPRY_BATCH_END;
    return l->n_taken ? SPRY_BATCH_LATER : SPRY_BATCH_END;
}

spry_batch_take spry_batch_lines_take(spry_batch_lines *l, spry_batch_line *line, uint32_t rank)
{
    pthread_mutex_lock(&l->lock);
    spry_batch_take result = take(l, line, rank);
    pthread_mutex_unlock(&l->lock);
    return result;
}

bool spry_batch_lines_next(spry_batch_lines *l, spry_batch_line *line, uint32_t rank)
{
    const uint64_t look_ns = 200000000; /* an interrupt wakes no condition */
    spry_batch_take result;
    pthread_mutex_lock(&l->lock);
    while ((result = take(l, line, rank)) == SPRY_BATCH_LATER)
        spry_background_wait(&l->changed, &l->lock, look_ns);
    pthread_mutex_unlock(&l->lock);
    return result == SPRY_BATCH_LINE;
}

bool spry_batch_lines_done(spry_batch_lines *l, size_t number, uint32_t rank)
{
    bool found = false;
    pthread_mutex_lock(&l->lock);
    for (size_t i = 0; i < l->n_taken && !found; i++)
        if (l->taken[i].number == number && l->taken[i].rank == rank && !l->taken[i].free) {
            l->taken[i] = l->taken[--l->n_taken];
            found = true;
        }
    pthread_cond_broadcast(&l->changed);
    pthread_mutex_unlock(&l->lock);
    return found;
}

void spry_batch_lines_lose(spry_batch_lines *l, uint32_t rank)
{
    pthread_mutex_lock(&l->lock);
    for (size_t i = 0; i < l->n_taken; i++)
        l->taken[i].free = l->taken[i].free || l->taken[i].rank == rank;
    pthread_cond_broadcast(&l->changed);
    pthread_mutex_unlock(&l->lock);
}

void spry_batch_lines_stop(spry_batch_lines *l)
{
    pthread_mutex_lock(&l->lock);
    l->stopped = true;
    pthread_cond_broadcast(&l->changed);
    pthread_mutex_unlock(&l->lock);
}
