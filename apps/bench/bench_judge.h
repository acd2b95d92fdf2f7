/* The input files of `spry bench`: a baseline, targets, and a saved report. Their points are measured unless the
 * command line gives others, and the results are checked against them. */
#ifndef SPRY_APPS_BENCH_JUDGE_H
#define SPRY_APPS_BENCH_JUDGE_H

#include "bench/bench_gate.h"

/* Which settings are on the command line and must not be replaced. */
typedef struct spry_bench_given {
    bool prefill, depth, batch, tokens, repeat, threads, chunk, kv_type, quantize;
} spry_bench_given;

typedef struct spry_bench_judge {
    const char *baseline_path, *targets_path, *measured_path; /* NULL: none */
    double max_drop;                                          /* 0.1: 10 % */
    bool force;                                               /* compare reports that are not comparable */
    spry_bench_given given;
    json_t *baseline, *targets, *measured; /* the files, once opened */
    spry_bench_identity like;              /* of the baseline */
} spry_bench_judge;

/* "10", "10%", "2.5%". */
spry_status spry_bench_percent_parse(double *share, const char *text, const char *name, spry_error *error);

/* Reads the given files. Deinitialise also on failure. */
spry_status spry_bench_judge_open(spry_bench_judge *judge, spry_error *error);
void spry_bench_judge_deinit(spry_bench_judge *judge);

/* Uses the baseline's settings and the targets' points for everything that was not given. Values are not validated.
 * Strings are borrowed from the judge. */
spry_status spry_bench_judge_settings(spry_bench_settings *settings, const spry_bench_judge *judge, spry_error *error);

/* Checks a report against baseline and targets. `json` NULL: prints tables; otherwise adds "gate" and "targets" to it.
 * *passed is the verdict. */
spry_status spry_bench_judge_report(bool *passed, const spry_bench_judge *judge, const json_t *report, json_t *json,
                                    spry_error *error);

#endif
