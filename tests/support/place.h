/* The folder of a test program, and group fixtures that make and remove it. Include after cmocka.h. */
#ifndef SPRY_TESTS_PLACE_H
#define SPRY_TESTS_PLACE_H

#include "support/scratch.h"

static scratch place;

static inline int place_make(void **state)
{
    (void)state;
    scratch_init(&place);
    return 0;
}

static inline int place_remove(void **state)
{
    (void)state;
    scratch_deinit(&place);
    return 0;
}

#endif
