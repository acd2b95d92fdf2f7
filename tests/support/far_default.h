/* Included before everything else by tests that run on the far device: engines are opened there. */
#ifndef SPRY_TESTS_FAR_DEFAULT_H
#define SPRY_TESTS_FAR_DEFAULT_H

#include "spry.h"

static inline void far_options_default(spry_engine_options *options)
{
    spry_engine_options_default(options);
    options->device = "far";
}

#undef spry_engine_options_default
#define spry_engine_options_default far_options_default

#endif
