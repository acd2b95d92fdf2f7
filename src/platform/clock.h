/* Monotonic time and random seeds. */
#ifndef SPRY_PLATFORM_CLOCK_H
#define SPRY_PLATFORM_CLOCK_H

#include <stdint.h>

uint64_t spry_clock_ns(void);

/* Processor time of this thread: on a busy machine it says what work costs. */
uint64_t spry_clock_cpu_ns(void);

void spry_clock_sleep_ns(uint64_t ns);

/* An unpredictable number, for seeds that the user did not choose. */
uint64_t spry_entropy(void);

#endif
