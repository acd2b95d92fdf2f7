/* `spry bench --chunk LIST`: prefill with steps of several sizes. */
#ifndef SPRY_APPS_BENCH_CHUNK_H
#define SPRY_APPS_BENCH_CHUNK_H

#include "bench/bench.h"

typedef struct spry_bench_chunk_point {
    uint32_t chunk;  /* 0: the whole prompt in one step */
    uint32_t tokens; /* of the prompt */
    spry_bench_stat tps;
    double step_ms;   /* the longest step, which an answer beside it would wait for; of the median repeat */
    char skipped[96]; /* why it was not run; empty: it was */
} spry_bench_chunk_point;

typedef struct spry_bench_chunks {
    const char *model;
    spry_bench_chunk_point points[SPRY_BENCH_LIST_MAX * SPRY_BENCH_LIST_MAX]; /* by chunk, then by length */
    size_t count;
} spry_bench_chunks;

/* Every prefill length of the settings with every chunk of the list. */
spry_status spry_bench_chunk_run(spry_bench_chunks *out, spry_bench_settings *settings, const spry_bench_list *chunks,
                                 const spry_model_source *source, spry_error *error);
void spry_bench_chunk_print_table(const spry_bench_chunks *chunks);
json_t *spry_bench_chunk_json(const spry_bench_chunks *chunks);

#endif
