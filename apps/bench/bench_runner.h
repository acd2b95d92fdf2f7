/* Shared state of the measuring files: an engine, sequences on it, synthetic text, and the progress line. */
#ifndef SPRY_APPS_BENCH_RUNNER_H
#define SPRY_APPS_BENCH_RUNNER_H

#include "bench/bench.h"
#include "cli/terminal.h"

typedef struct spry_bench_runner {
    spry_bench_report *report;
    spry_bench_settings *settings;
    const char *model;               /* the argument; NULL: the bundled model */
    const spry_model_source *source; /* what that is */
    spry_engine *engine;
    spry_steps *steps;
    uint32_t context, chunk; /* of the engine */
    int32_t *ids;            /* [n_ids]: synthetic text */
    size_t n_ids;
    spry_energy *energy;
    double *step_ms; /* [tokens x repeat, at least the policy's steps]: of the current decode */
    size_t n_steps;
    spry_progress_line line;
    char doing[96];
    size_t measured, to_measure;
    spry_error *error;
} spry_bench_runner;

/* Call between steps: redraws the line; fails after Ctrl-C. */
spry_status spry_bench_go_on(spry_bench_runner *runner);

/* ---- bench_points.c ---------------------------------------------------------------------------------------------- */

/* The points of one kind in running order: one sequence from the smallest depth to the largest, so that it only grows;
 * batches backwards, so that it only shrinks. */
typedef enum spry_bench_stage { SPRY_BENCH_PREFILL, SPRY_BENCH_ONE, SPRY_BENCH_BATCHES } spry_bench_stage;

spry_status spry_bench_measure_stage(spry_bench_runner *runner, spry_bench_stage stage);

/* Brings `batch` sequences to `depth` tokens each; then runs steps of one token each, timed into step_ms. */
spry_status spry_bench_reach(spry_bench_runner *runner, size_t depth, size_t batch);
spry_status spry_bench_generate(spry_bench_runner *runner, size_t n_tokens, size_t batch);

/* ---- the rest, each in its file ---------------------------------------------------------------------------------- */

/* A request of about a thousand tokens, uncached and cached. No sequence may hold pages. */
spry_status spry_bench_measure_ttft(spry_bench_runner *runner);

/* A request that is answered with a call of a tool. No sequence may hold pages. */
spry_status spry_bench_measure_call(spry_bench_runner *runner);

/* An answer whose tokens the device draws; nothing on the CPU. No sequence may hold pages. */
spry_status spry_bench_measure_answer(spry_bench_runner *runner);

/* Steps of every size of the policy's list. */
spry_status spry_bench_measure_policy(spry_bench_runner *runner);

#endif
