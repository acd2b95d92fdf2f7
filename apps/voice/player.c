#include "voice/player.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "spry_voice.h"

enum { ROOM = 60 * SPRY_SOUND_RATE, CLAUSES_MAX = 4096, TEXT_MAX = 1 << 20 };

typedef struct clause {
    uint64_t begin, end; /* samples since the beginning of the answer */
    size_t text_end;     /* bytes of the text so far */
} clause;

struct spry_player {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int16_t *ring;           /* [ROOM] */
    uint64_t pushed, pulled; /* samples since the beginning of the answer */
    bool held, stopped;
    clause clauses[CLAUSES_MAX];
    size_t n_clauses;
    spry_buffer text;
};

spry_status spry_player_create(spry_player **out, spry_error *error)
{
    spry_player *p = *out = calloc(1, sizeof *p);
    if (p)
        p->ring = calloc(ROOM, sizeof *p->ring);
    if (!p || !p->ring) {
        free(p);
        *out = NULL;
        return spry_fail_memory(error, "sound that waits", ROOM * sizeof *p->ring);
    }
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->changed, NULL);
    spry_buffer_init(&p->text, TEXT_MAX);
    return SPRY_OK;
}

void spry_player_destroy(spry_player *p)
{
    if (!p)
        return;
    pthread_mutex_destroy(&p->lock);
    pthread_cond_destroy(&p->changed);
    spry_buffer_deinit(&p->text);
    free(p->ring);
    free(p);
}

void spry_player_begin(spry_player *p, bool held)
{
    pthread_mutex_lock(&p->lock);
    p->pushed = p->pulled = 0;
    p->n_clauses = 0;
    p->held = held;
    p->stopped = false;
    spry_buffer_clear(&p->text);
    pthread_mutex_unlock(&p->lock);
}

void spry_player_release(spry_player *p)
{
    pthread_mutex_lock(&p->lock);
    p->held = false;
    pthread_mutex_unlock(&p->lock);
}

bool spry_player_push(void *player, const int16_t *samples, size_t count)
{
    spry_player *p = player;
    pthread_mutex_lock(&p->lock);
    for (size_t i = 0; i < count && !p->stopped; i++) {
        while (!p->stopped && p->pushed - p->pulled == ROOM)
            pthread_cond_wait(&p->changed, &p->lock);
        p->ring[p->pushed++ % ROOM] = samples[i];
    }
    bool more = !p->stopped;
    pthread_mutex_unlock(&p->lock);
    return more;
}

void spry_player_clause(void *player, spry_view text)
{
    spry_player *p = player;
    pthread_mutex_lock(&p->lock);
    if (!p->stopped && p->n_clauses < CLAUSES_MAX) {
        spry_buffer_append(&p->text, text.data, text.size);
        uint64_t begin = p->n_clauses ? p->clauses[p->n_clauses - 1].end : 0;
        p->clauses[p->n_clauses++] = (clause){begin, p->pushed, p->text.size};
    }
    pthread_mutex_unlock(&p->lock);
}

size_t spry_player_pull(spry_player *p, int16_t *samples, size_t count)
{
    pthread_mutex_lock(&p->lock);
    uint64_t waiting = p->held || p->stopped ? 0 : p->pushed - p->pulled;
    size_t n = waiting < count ? (size_t)waiting : count;
    for (size_t i = 0; i < n; i++)
        samples[i] = p->ring[p->pulled++ % ROOM];
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->lock);
    memset(samples + n, 0, (count - n) * sizeof *samples);
    return n;
}

void spry_player_stop(spry_player *p)
{
    pthread_mutex_lock(&p->lock);
    p->stopped = true;
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->lock);
}

bool spry_player_busy(spry_player *p)
{
    pthread_mutex_lock(&p->lock);
    bool busy = !p->stopped && p->pushed > p->pulled;
    pthread_mutex_unlock(&p->lock);
    return busy;
}

void spry_player_heard(spry_player *p, spry_buffer *out)
{
    size_t bytes = 0;
    pthread_mutex_lock(&p->lock);
    for (size_t i = 0; i < p->n_clauses; i++)
        if (2 * p->pulled >= p->clauses[i].begin + p->clauses[i].end)
            bytes = p->clauses[i].text_end;
    spry_buffer_append(out, p->text.data, bytes);
    pthread_mutex_unlock(&p->lock);
}
