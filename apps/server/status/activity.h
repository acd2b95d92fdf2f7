/* Requests under way and those that ended a moment ago, for whoever watches. Progress is written by the scheduler's
 * thread without a lock; the rest under one. */
#ifndef SPRY_SERVER_ACTIVITY_H
#define SPRY_SERVER_ACTIVITY_H

#include <pthread.h>
#include <stdatomic.h>

#include "spry.h"

enum { SPRY_ACTIVITY_ENDED = 64, SPRY_ACTIVITY_ID = 64, SPRY_ACTIVITY_MODEL = 128 };

typedef enum spry_phase {
    SPRY_PHASE_QUEUE,
    SPRY_PHASE_PREFILL,
    SPRY_PHASE_DECODE,
    SPRY_PHASE_DONE, /* this and those behind: it has ended */
    SPRY_PHASE_CANCELLED,
    SPRY_PHASE_FAILED
} spry_phase;

/* One answer. */
typedef struct spry_activity {
    char id[SPRY_ACTIVITY_ID], model[SPRY_ACTIVITY_MODEL];
    const char *key; /* the access key of the request, by address; NULL: none is needed */
    uint64_t began_ns, submitted_ns, ended_ns;
    size_t prompt_tokens;
    double parts_ms[SPRY_PART_COUNT]; /* before it was submitted; once it has ended, all */
    spry_result result;               /* once it has ended */
    atomic_int phase;
    atomic_ullong taken_ns, first_ns;   /* the model took it; its first text came */
    atomic_size_t pieces;               /* of text that came, most of them one token */
    struct spry_activity *next, **link; /* inside */
} spry_activity;

typedef struct spry_activities {
    pthread_mutex_t lock;
    spry_activity *first, **end;              /* in the order they came */
    spry_activity ended[SPRY_ACTIVITY_ENDED]; /* a ring */
    size_t n_ended;                           /* ever */
} spry_activities;

void spry_activities_init(spry_activities *all);
void spry_activities_deinit(spry_activities *all);

void spry_activity_begin(spry_activities *all, spry_activity *activity);
/* `how`: done, cancelled or failed; `result` NULL: there is none. A copy stays for a while. */
void spry_activity_end(spry_activities *all, spry_activity *activity, spry_phase how, const spry_result *result,
                       const double parts_ms[SPRY_PART_COUNT]);

/* Calls for each, those that ended since `since_ns` first, while nothing changes; `visit` must be quick. */
void spry_activities_each(spry_activities *all, uint64_t since_ns,
                          void (*visit)(void *context, const spry_activity *activity), void *context);

/* How many of a model's answers wait and how many run. */
void spry_activities_count(spry_activities *all, const char *model, size_t *waiting, size_t *running);

const char *spry_phase_name(int phase);

#endif
