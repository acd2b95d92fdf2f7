/* Turns in an array: there are few clients. */
#include "sched/job_queue.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "sched/job.h"

spry_status spry_job_queue_resize(spry_job_queue *queue, size_t capacity, spry_error *error)
{
    spry_client_jobs *turns = calloc(capacity ? capacity : 1, sizeof *turns);
    if (!turns)
        return spry_fail_memory(error, "a queue", capacity * sizeof *turns);
    free(queue->turns);
    queue->turns = turns;
    queue->capacity = capacity;
    return SPRY_OK;
}

void spry_job_queue_deinit(spry_job_queue *queue)
{
    free(queue->turns);
    *queue = (spry_job_queue){0};
}

static void append(spry_job_list *list, spry_job *job)
{
    job->next = NULL;
    if (list->last)
        list->last->next = job;
    else
        list->first = job;
    list->last = job;
}

/* Takes out the job behind `before`; NULL: the first. */
static spry_job *unlink_behind(spry_job_list *list, spry_job *before)
{
    spry_job *job = before ? before->next : list->first;
    if (!job)
        return NULL;
    if (before)
        before->next = job->next;
    else
        list->first = job->next;
    if (list->last == job)
        list->last = before;
    job->next = NULL;
    return job;
}

static void remove_turn(spry_job_queue *queue, size_t at)
{
    queue->n_turns--;
    memmove(queue->turns + at, queue->turns + at + 1, (queue->n_turns - at) * sizeof *queue->turns);
}

void spry_job_queue_add(spry_job_queue *queue, spry_job *job)
{
    size_t at = 0;
    while (at < queue->n_turns && (queue->turns[at].client != job->client || queue->turns[at].batch != job->batch))
        at++;
    if (at == queue->n_turns)
        queue->turns[queue->n_turns++] = (spry_client_jobs){.client = job->client, .batch = job->batch};
    append(&queue->turns[at].jobs, job);
    queue->count++;
}

/* The first turn, or the first that is not a batch job's. */
static size_t next_turn(const spry_job_queue *queue)
{
    for (size_t i = 0; i < queue->n_turns; i++)
        if (!queue->turns[i].batch)
            return i;
    return 0;
}

bool spry_job_queue_is_urgent(const spry_job_queue *queue)
{
    return queue->n_turns && !queue->turns[next_turn(queue)].batch;
}

size_t spry_job_queue_before(const spry_job_queue *queue)
{
    size_t count = 0;
    bool urgent = spry_job_queue_is_urgent(queue);
    for (const spry_job *job = queue->ahead.first; job; job = job->next)
        count += !(urgent && job->batch);
    return count;
}

spry_job *spry_job_queue_take(spry_job_queue *queue)
{
    if (!queue->n_turns)
        return NULL;
    size_t at = next_turn(queue);
    spry_client_jobs turn = queue->turns[at];
    spry_job *job = unlink_behind(&turn.jobs, NULL);
    remove_turn(queue, at);
    if (turn.jobs.first) /* behind all others */
        queue->turns[queue->n_turns++] = turn;
    queue->count--;
    return job;
}

void spry_job_queue_put_back(spry_job_queue *queue, spry_job *job)
{
    job->next = queue->ahead.first;
    queue->ahead.first = job;
    if (!queue->ahead.last)
        queue->ahead.last = job;
    queue->n_ahead++;
    queue->count++;
}

void spry_job_queue_park(spry_job_queue *queue, spry_job *job)
{
    append(&queue->ahead, job);
    queue->n_ahead++;
    queue->count++;
}

/* The first job of a list that is as asked for. */
static spry_job *take_first(spry_job_list *list, bool (*wanted)(const void *context, const spry_job *job),
                            const void *context)
{
    spry_job *before = NULL;
    for (spry_job *job = list->first; job; before = job, job = job->next)
        if (wanted(context, job))
            return unlink_behind(list, before);
    return NULL;
}

spry_job *spry_job_queue_take_ready(spry_job_queue *queue, bool (*ready)(const void *context, const spry_job *job),
                                    const void *context)
{
    spry_job *job = take_first(&queue->ahead, ready, context);
    queue->n_ahead -= job != NULL;
    queue->count -= job != NULL;
    return job;
}

static bool is_cancelled(const void *context, const spry_job *job)
{
    (void)context;
    return atomic_load(job->cancelled);
}

spry_job *spry_job_queue_take_cancelled(spry_job_queue *queue)
{
    spry_job *job = spry_job_queue_take_ready(queue, is_cancelled, NULL);
    if (job)
        return job;
    for (size_t i = 0; !job && i < queue->n_turns; i++) {
        job = take_first(&queue->turns[i].jobs, is_cancelled, NULL);
        if (job && !queue->turns[i].jobs.first)
            remove_turn(queue, i);
    }
    queue->count -= job != NULL;
    return job;
}
