/* `spry bench --draft WHO`: the same answers with and without drafts, alternating. */
#ifndef SPRY_APPS_BENCH_DRAFT_H
#define SPRY_APPS_BENCH_DRAFT_H

#include "bench/bench.h"

enum { SPRY_BENCH_DRAFT_TASKS = 2 };

typedef struct spry_bench_draft_task {
    const char *what;
    size_t tokens;                  /* of all its answers */
    spry_bench_stat plain, drafted; /* tokens/s */
    spry_draft_report drafts;       /* of the last repeat, over all answers */
} spry_bench_draft_task;

typedef struct spry_bench_drafts {
    const char *model, *who;
    spry_bench_draft_task tasks[SPRY_BENCH_DRAFT_TASKS]; /* tales; a text with repetitions */
} spry_bench_drafts;

spry_status spry_bench_draft_run(spry_bench_drafts *out, spry_bench_settings *settings, const spry_model_source *source,
                                 const char *who, spry_error *error);
void spry_bench_draft_print_table(const spry_bench_drafts *drafts);
spry_status spry_bench_draft_print_json(const spry_bench_drafts *drafts, spry_error *error);

#endif
