#include "server/status/machine_watch.h"

#include "platform/clock.h"

static const uint64_t read_every_ns = 1000000000, turn_every_ns = 30000000000;

void spry_machine_watch_init(spry_machine_watch *w)
{
    pthread_mutex_init(&w->lock, NULL);
    spry_machine_state_read(&w->now, "");
    w->earlier = w->before = w->now;
    w->now_ns = w->turn_ns = spry_clock_ns();
}

void spry_machine_watch_deinit(spry_machine_watch *w)
{
    pthread_mutex_destroy(&w->lock);
}

void spry_machine_watch_read(spry_machine_watch *w, spry_machine_state *before, spry_machine_state *now)
{
    pthread_mutex_lock(&w->lock);
    uint64_t clock = spry_clock_ns();
    if (clock - w->now_ns >= read_every_ns) {
        spry_machine_state_read(&w->now, "");
        w->now_ns = clock;
    }
    if (clock - w->turn_ns >= turn_every_ns) {
        w->before = w->earlier;
        w->earlier = w->now;
        w->turn_ns = clock;
    }
    *before = w->before;
    *now = w->now;
    pthread_mutex_unlock(&w->lock);
}
