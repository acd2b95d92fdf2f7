/* The system's monotonic clock and its source of random bytes. */
#include "platform/clock.h"

#include <limits.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

static uint64_t read_clock(clockid_t id)
{
    struct timespec now = {0};
    clock_gettime(id, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

uint64_t spry_clock_ns(void)
{
    return read_clock(CLOCK_MONOTONIC);
}

uint64_t spry_clock_cpu_ns(void)
{
    return read_clock(CLOCK_THREAD_CPUTIME_ID);
}

uint64_t spry_entropy(void)
{
    uint64_t value;
    if (getentropy(&value, sizeof value) == 0)
        return value;
    /* A sandbox may forbid it. The fallback differs between runs, which is enough for a seed. */
    value = read_clock(CLOCK_REALTIME) ^ ((uint64_t)getpid() << 32);
    value *= 0x9e3779b97f4a7c15u;
    return value ^ (value >> 29) ^ spry_clock_ns();
}

int spry_clock_ms_until(uint64_t until_ns)
{
    if (!until_ns)
        return -1;
    uint64_t now = spry_clock_ns();
    uint64_t ms = now >= until_ns ? 0 : (until_ns - now) / 1000000 + 1;
    return ms > INT_MAX ? INT_MAX : (int)ms;
}

void spry_clock_sleep_ns(uint64_t ns)
{
    const struct timespec time = {.tv_sec = (time_t)(ns / 1000000000), .tv_nsec = (long)(ns % 1000000000)};
    nanosleep(&time, NULL);
}
