/* A list under a lock, and a ring of copies. */
#include "server/status/activity.h"

#include <string.h>

#include "platform/clock.h"

void spry_activities_init(spry_activities *all)
{
    pthread_mutex_init(&all->lock, NULL);
    all->first = NULL;
    all->end = &all->first;
    all->n_ended = 0;
}

void spry_activities_deinit(spry_activities *all)
{
    pthread_mutex_destroy(&all->lock);
}

void spry_activity_begin(spry_activities *all, spry_activity *activity)
{
    activity->submitted_ns = spry_clock_ns();
    pthread_mutex_lock(&all->lock);
    activity->next = NULL;
    activity->link = all->end;
    *all->end = activity;
    all->end = &activity->next;
    pthread_mutex_unlock(&all->lock);
}

void spry_activity_end(spry_activities *all, spry_activity *activity, spry_phase how, const spry_result *result,
                       const double parts_ms[SPRY_PART_COUNT])
{
    pthread_mutex_lock(&all->lock);
    activity->ended_ns = spry_clock_ns();
    atomic_store(&activity->phase, how);
    if (result)
        activity->result = *result;
    memmove(activity->parts_ms, parts_ms, sizeof activity->parts_ms);
    *activity->link = activity->next;
    if (activity->next)
        activity->next->link = activity->link;
    else
        all->end = activity->link;
    memcpy(&all->ended[all->n_ended++ % SPRY_ACTIVITY_ENDED], activity, sizeof *activity);
    pthread_mutex_unlock(&all->lock);
}

void spry_activities_each(spry_activities *all, uint64_t since_ns,
                          void (*visit)(void *context, const spry_activity *activity), void *context)
{
    pthread_mutex_lock(&all->lock);
    size_t kept = all->n_ended < SPRY_ACTIVITY_ENDED ? all->n_ended : SPRY_ACTIVITY_ENDED;
    for (size_t i = all->n_ended - kept; i < all->n_ended; i++)
        if (all->ended[i % SPRY_ACTIVITY_ENDED].ended_ns >= since_ns)
            visit(context, &all->ended[i % SPRY_ACTIVITY_ENDED]);
    for (const spry_activity *a = all->first; a; a = a->next)
        visit(context, a);
    pthread_mutex_unlock(&all->lock);
}

void spry_activities_count(spry_activities *all, const char *model, size_t *waiting, size_t *running)
{
    *waiting = *running = 0;
    pthread_mutex_lock(&all->lock);
    for (const spry_activity *a = all->first; a; a = a->next)
        if (strncmp(model, a->model, SPRY_ACTIVITY_MODEL - 1) == 0)
            ++*(atomic_load(&a->phase) == SPRY_PHASE_QUEUE ? waiting : running);
    pthread_mutex_unlock(&all->lock);
}

const char *spry_phase_name(int phase)
{
    static const char *const names[] = {"queue", "prefill", "decode", "done", "cancelled", "failed"};
    return names[phase];
}
