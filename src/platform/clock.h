/* Monotonic time and random seeds. */
#ifndef SPRY_PLATFORM_CLOCK_H
#define SPRY_PLATFORM_CLOCK_H

#include <stdint.h>

uint64_t spry_clock_ns(void);

/* The timeout of poll, in milliseconds, that ends at a time of spry_clock_ns; -1 (none) for 0. */
int spry_clock_ms_until(uint64_t until_ns);

/* Processor time of this thread: on a busy machine it says what work costs. */
uint64_t spry_clock_cpu_ns(void);

void spry_clock_sleep_ns(uint64_t ns);

/* An unpredictable number, for seeds that the user did not choose. */
uint64_t spry_entropy(void);

#endif
