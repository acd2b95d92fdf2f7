#include "base/meter.h"

typedef struct meter {
    bool (*take)(void *user, size_t bytes); /* NULL: none */
    void *user;
    unsigned pauses;
    size_t live, granted; /* bytes */
} meter;

static _Thread_local meter current;

void spry_meter_begin(bool (*take)(void *user, size_t bytes), void *user)
{
    current = (meter){.take = take, .user = user};
}

size_t spry_meter_end(void)
{
    size_t unused = current.granted - current.live;
    current = (meter){0};
    return unused;
}

void spry_meter_pause(void)
{
    current.pauses++;
}

void spry_meter_resume(void)
{
    current.pauses--;
}

bool spry_meter_take(size_t bytes)
{
    if (!current.take || current.pauses)
        return true;
    size_t left = current.granted - current.live;
    if (bytes > left) {
        size_t part = bytes - left > SPRY_METER_PART ? bytes - left : SPRY_METER_PART;
        if (!current.take(current.user, part))
            return false;
        current.granted += part;
    }
    current.live += bytes;
    return true;
}

static _Thread_local unsigned shortages;

unsigned spry_meter_shortages(void)
{
    return shortages;
}

void spry_meter_count_shortage(void)
{
    shortages++;
}

void spry_meter_give(size_t bytes)
{
    if (!current.pauses)
        current.live -= bytes < current.live ? bytes : current.live; /* more: allocated before the request */
}
