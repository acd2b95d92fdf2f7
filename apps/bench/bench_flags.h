/* The flags of `spry bench`: what to measure, and which of them exclude or need each other. */
#ifndef SPRY_APPS_BENCH_FLAGS_H
#define SPRY_APPS_BENCH_FLAGS_H

#include "bench/bench_judge.h"
#include "bench/mix.h"
#include "cli/usage.h"

typedef struct spry_bench_flags {
    const char *prefill, *depth, *batch; /* lists, as text */
    const char *shape, *type, *write;
    const char *widen; /* the shape to which the model is widened; NULL: it is not */
    const char *draft; /* NULL: not what is measured */
    const char *save, *max_drop;
    const char *chunk; /* a number, or a list; NULL: not given */
    bool json, reuse, policy, curve;
    spry_bench_list chunks; /* empty: not what is measured */
    spry_mix_flags mix;
    spry_bench_judge judge;
    spry_bench_settings settings;
} spry_bench_flags;

void spry_bench_flags_default(spry_bench_flags *flags);

/* The flags that only this command has; those of workloads, engines and models have tables of their own. */
spry_option_table spry_bench_flags_table(spry_bench_flags *flags);

/* After parsing: reads lists and finds which settings were given. Returns the exit code; wrong use is reported. */
int spry_bench_flags_check(spry_bench_flags *flags, const spry_usage *usage, const char *model, int argc, char **argv);

#endif
