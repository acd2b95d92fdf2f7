/* `spry bench --reuse`: the savings of the KV cache. Times to the first token with cached text, compared with computing
 * it. */
#ifndef SPRY_APPS_BENCH_REUSE_H
#define SPRY_APPS_BENCH_REUSE_H

#include "bench/bench.h"

/* The same work computed, and with cached pages. */
typedef struct spry_bench_pair {
    const char *what;
    size_t tokens, known;
    spry_bench_stat cold, warm; /* ms; tokens/s of decode for the last pair */
} spry_bench_pair;

enum { SPRY_BENCH_REUSE_PAIRS = 5 };

typedef struct spry_bench_reuse {
    const char *model;
    spry_bench_pair pairs[SPRY_BENCH_REUSE_PAIRS]; /* as bench_reuse_report.c names them */
    spry_bench_stat lookup_us;                     /* of a prompt of lookup_tokens among lookup_pages */
    size_t lookup_tokens, lookup_pages;
} spry_bench_reuse;

spry_status spry_bench_reuse_run(spry_bench_reuse *reuse, spry_bench_settings *settings,
                                 const spry_model_source *source, spry_error *error);
void spry_bench_reuse_print_table(const spry_bench_reuse *reuse);
spry_status spry_bench_reuse_print_json(const spry_bench_reuse *reuse, spry_error *error);

#endif
