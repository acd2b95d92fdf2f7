#include "voice/speaker.h"

#include <pthread.h>
#include <stdlib.h>

#include "platform/clock.h"
#include "platform/threads.h"
#include "voice/clauses.h"

enum { CLAUSE_MAX = 1 << 20 };

struct spry_speaker {
    spry_synthesiser *synthesiser;
    spry_speaker_sink sink;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t work, idle;
    /* Under the lock. */
    spry_clauses clauses;
    bool over, stopped, busy, leave;
    spry_status status;
    spry_error error;
    spry_speaker_figures figures;
};

static bool pass_on(void *user, const int16_t *samples, size_t count)
{
    spry_speaker *s = user;
    pthread_mutex_lock(&s->lock);
    bool stopped = s->stopped;
    if (!stopped && !s->figures.first_ns && count)
        s->figures.first_ns = spry_clock_ns();
    s->figures.samples += count;
    pthread_mutex_unlock(&s->lock);
    return !stopped && s->sink.sound(s->sink.user, samples, count);
}

/* Speaks one clause with the lock open. */
static void speak(spry_speaker *s, spry_buffer *clause)
{
    spry_error error;
    s->busy = true;
    pthread_mutex_unlock(&s->lock);
    uint64_t began = spry_clock_ns();
    spry_status status = spry_synthesiser_speak(s->synthesiser, spry_buffer_view(clause), pass_on, s, &error);
    uint64_t took = spry_clock_ns() - began;
    pthread_mutex_lock(&s->lock);
    bool stopped = s->stopped;
    pthread_mutex_unlock(&s->lock);
    if (status == SPRY_OK && !stopped && s->sink.clause)
        s->sink.clause(s->sink.user, spry_buffer_view(clause));
    pthread_mutex_lock(&s->lock);
    s->busy = false;
    s->figures.busy_ns += took;
    if (status != SPRY_OK && s->status == SPRY_OK) {
        s->status = status;
        s->error = error;
        s->stopped = true;
    }
}

static void *run(void *context)
{
    spry_speaker *s = context;
    spry_buffer clause;
    spry_buffer_init(&clause, CLAUSE_MAX);
    pthread_mutex_lock(&s->lock);
    while (!s->leave) {
        if (!s->stopped && spry_clauses_take(&s->clauses, &clause, s->over && s->clauses.text.size > 0))
            speak(s, &clause);
        else {
            pthread_cond_broadcast(&s->idle);
            pthread_cond_wait(&s->work, &s->lock);
        }
    }
    pthread_mutex_unlock(&s->lock);
    spry_buffer_deinit(&clause);
    return NULL;
}

spry_status spry_speaker_create(spry_speaker **out, spry_synthesiser *synthesiser, const spry_speaker_sink *sink,
                                spry_error *error)
{
    *out = NULL;
    spry_speaker *s = calloc(1, sizeof *s);
    if (!s)
        return spry_fail_memory(error, "a speaker", sizeof *s);
    s->synthesiser = synthesiser;
    s->sink = *sink;
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->work, NULL);
    pthread_cond_init(&s->idle, NULL);
    spry_clauses_init(&s->clauses);
    spry_status status = spry_background_start(&s->thread, run, s, "the speaker", error);
    if (status != SPRY_OK) {
        free(s);
        return status;
    }
    *out = s;
    return SPRY_OK;
}

void spry_speaker_destroy(spry_speaker *s)
{
    if (!s)
        return;
    pthread_mutex_lock(&s->lock);
    s->leave = s->stopped = true;
    pthread_cond_broadcast(&s->work);
    pthread_mutex_unlock(&s->lock);
    pthread_join(s->thread, NULL);
    pthread_mutex_destroy(&s->lock);
    pthread_cond_destroy(&s->work);
    pthread_cond_destroy(&s->idle);
    spry_clauses_deinit(&s->clauses);
    free(s);
}

/* Waits, with the lock held, until no clause is being spoken and none can be. */
static void wait_idle(spry_speaker *s)
{
    pthread_cond_broadcast(&s->work);
    while (s->busy || (!s->stopped && s->over && s->clauses.text.size > 0))
        pthread_cond_wait(&s->idle, &s->lock);
}

void spry_speaker_begin(spry_speaker *s)
{
    pthread_mutex_lock(&s->lock);
    s->stopped = true;
    wait_idle(s);
    spry_clauses_clear(&s->clauses);
    s->over = s->stopped = false;
    s->status = SPRY_OK;
    s->figures = (spry_speaker_figures){0};
    pthread_mutex_unlock(&s->lock);
}

void spry_speaker_write(spry_speaker *s, spry_view text)
{
    pthread_mutex_lock(&s->lock);
    spry_clauses_add(&s->clauses, text);
    pthread_cond_broadcast(&s->work);
    pthread_mutex_unlock(&s->lock);
}

spry_status spry_speaker_finish(spry_speaker *s, spry_error *error)
{
    pthread_mutex_lock(&s->lock);
    s->over = true;
    wait_idle(s);
    spry_status status = s->status;
    if (status != SPRY_OK && error)
        *error = s->error;
    pthread_mutex_unlock(&s->lock);
    return status;
}

void spry_speaker_stop(spry_speaker *s)
{
    pthread_mutex_lock(&s->lock);
    s->stopped = true;
    pthread_cond_broadcast(&s->work);
    pthread_cond_broadcast(&s->idle);
    pthread_mutex_unlock(&s->lock);
}

spry_speaker_figures spry_speaker_report(spry_speaker *s)
{
    pthread_mutex_lock(&s->lock);
    spry_speaker_figures figures = s->figures;
    pthread_mutex_unlock(&s->lock);
    return figures;
}
