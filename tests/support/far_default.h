/* Included before everything else by tests that run on the far device: engines are opened there. */
#ifndef SPRY_TESTS_FAR_DEFAULT_H
#define SPRY_TESTS_FAR_DEFAULT_H

#include "spry.h"

static inline void far_options_default(spry_engine_options *options)
{
    spry_engine_options_default(options);
    options->device = "far";
    options->cache_host_bytes = 0; /* what these tests evict is gone */
#ifdef FAR_LAYERS
    options->gpu_layers = FAR_LAYERS; /* the others on the CPU */
#endif
}

#undef spry_engine_options_default
#define spry_engine_options_default far_options_default

#endif
