/* Time that only goes forward. */
#ifndef SPRY_PLATFORM_CLOCK_H
#define SPRY_PLATFORM_CLOCK_H

#include <stdint.h>

uint64_t spry_clock_ns(void);

/* A number nobody can guess, for seeds the user did not choose. */
uint64_t spry_entropy(void);

#endif
