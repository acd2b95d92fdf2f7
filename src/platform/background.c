#include "platform/background.h"

#include <signal.h>
#include <string.h>
#include <time.h>

spry_status spry_background_start(pthread_t *thread, void *(*run)(void *), void *context, const char *who,
                                  spry_error *error)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failure = pthread_create(thread, NULL, run, context);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return failure ? spry_fail(error, SPRY_ERR_MEMORY, "%s's thread could not be started: %s", who, strerror(failure))
                   : SPRY_OK;
}

void spry_background_condition(pthread_cond_t *condition)
{
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(condition, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

bool spry_background_wait(pthread_cond_t *condition, pthread_mutex_t *lock, uint64_t ns)
{
    const long second = 1000000000;
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += (time_t)(ns / (uint64_t)second);
    until.tv_nsec += (long)(ns % (uint64_t)second);
    if (until.tv_nsec >= second) {
        until.tv_sec++;
        until.tv_nsec -= second;
    }
    return pthread_cond_timedwait(condition, lock, &until) == 0;
}
