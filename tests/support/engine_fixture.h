/* An engine on a fixture, for tests that look at it from outside. Include after cmocka.h. */
#ifndef SPRY_TESTS_ENGINE_FIXTURE_H
#define SPRY_TESTS_ENGINE_FIXTURE_H

#include <stdio.h>

#include "spry.h"

enum { FIXTURE_VOCAB = 512, FIXTURE_CONTEXT = 512 }; /* of every fixture */

/* A model of the tests' data by name, or any by its whole path. */
static inline spry_engine *fixture_open(const char *model, const spry_engine_options *options)
{
    char path[1024];
    spry_engine *engine;
    spry_error error = {0};
    spry_engine_options defaults;
    spry_engine_options_default(&defaults);
    defaults.threads = 1;
    snprintf(path, sizeof path, "%s%s%s", *model == '/' ? "" : TEST_DATA, *model == '/' ? "" : "/models/", model);
    if (spry_engine_open(&engine, path, options ? options : &defaults, &error))
        fail_msg("%s", error.message);
    return engine;
}

static inline spry_session *fixture_session(spry_engine *engine)
{
    spry_session *session;
    spry_error error = {0};
    if (spry_session_create(&session, engine, &error))
        fail_msg("%s", error.message);
    return session;
}

/* Ids that are words and words alone: no control token among them. */
static inline void fixture_ids(int32_t *ids, size_t count, uint32_t seed)
{
    for (size_t i = 0; i < count; i++) {
        seed = seed * 1664525u + 1013904223u;
        ids[i] = (int32_t)(3 + (seed >> 8) % (FIXTURE_VOCAB - 3));
    }
}

#endif
