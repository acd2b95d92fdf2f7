/* The machine's state, read at most once a second however many clients ask for it. Thread-safe. */
#ifndef SPRY_SERVER_MACHINE_WATCH_H
#define SPRY_SERVER_MACHINE_WATCH_H

#include <pthread.h>
#include <stdint.h>

#include "platform/machine_state.h"

typedef struct spry_machine_watch {
    pthread_mutex_t lock;
    uint64_t now_ns, turn_ns;                /* time of `now`; when `earlier` became `before` */
    spry_machine_state now, earlier, before; /* `before` is half a minute to a minute older than `now` */
} spry_machine_watch;

void spry_machine_watch_init(spry_machine_watch *watch);
void spry_machine_watch_deinit(spry_machine_watch *watch);

/* *before: an earlier state, for what counters have counted since. */
void spry_machine_watch_read(spry_machine_watch *watch, spry_machine_state *before, spry_machine_state *now);

#endif
