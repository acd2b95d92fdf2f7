/* The files that `spry bench` is given: a baseline, targets, and what was measured before. What they ask for is
 * measured where the command line does not say otherwise, and what was measured is held against them. */
#ifndef SPRY_APPS_BENCH_JUDGE_H
#define SPRY_APPS_BENCH_JUDGE_H

#include "bench/bench_gate.h"

/* What was on the command line, so that it is not replaced. */
typedef struct spry_bench_given {
    bool prefill, depth, batch, tokens, repeat, threads, chunk, kv_type, quantize;
} spry_bench_given;

typedef struct spry_bench_judge {
    const char *baseline_path, *targets_path, *measured_path; /* NULL: none */
    double max_drop;                                          /* 0.1: a tenth */
    bool force;                                               /* compare what must not be compared */
    spry_bench_given given;
    json_t *baseline, *targets, *measured; /* the files, once opened */
    spry_bench_identity like;              /* of the baseline */
} spry_bench_judge;

/* "10", "10%", "2.5%". */
spry_status spry_bench_percent_parse(double *share, const char *text, const char *name, spry_error *error);

/* Reads the files that there are. Deinit whatever happens. */
spry_status spry_bench_judge_open(spry_bench_judge *judge, spry_error *error);
void spry_bench_judge_deinit(spry_bench_judge *judge);

/* The settings that the baseline was measured with, and the points of the targets, in place of what was not given. They
 * may be out of any range. Strings are borrowed from the judge. */
spry_status spry_bench_judge_settings(spry_bench_settings *settings, const spry_bench_judge *judge, spry_error *error);

/* Holds a report against baseline and targets. `json` NULL: prints tables; otherwise adds "gate" and "targets" to it.
 * *passed says what came of it. */
spry_status spry_bench_judge_report(bool *passed, const spry_bench_judge *judge, const json_t *report, json_t *json,
                                    spry_error *error);

#endif
