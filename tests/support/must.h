/* Calls that may not fail. Include after cmocka.h. */
#ifndef SPRY_TESTS_MUST_H
#define SPRY_TESTS_MUST_H

#include "spry.h"

static inline void must(spry_status status, const spry_error *error)
{
    if (status)
        fail_msg("%s", error->message);
}

#endif
