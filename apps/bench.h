/* What the files of `spry bench` share: what was asked for, and what was found.
 *
 * A point is one thing measured: a prefill of so many tokens, or a decode at some depth with so many sequences. Points
 * that cannot be run stay in the list with a sentence that says why. */
#ifndef SPRY_APPS_BENCH_H
#define SPRY_APPS_BENCH_H

#include "common_options.h"
#include "engine/batch.h"
#include "platform/processor.h"

enum {
    SPRY_BENCH_REPEAT_MAX = 100,
    SPRY_BENCH_LIST_MAX = 16,
    SPRY_BENCH_POINTS_MAX = SPRY_BENCH_LIST_MAX * (SPRY_BENCH_LIST_MAX + 1)
};

/* ---- what was asked for ------------------------------------------------------------------------------------------ */

typedef struct spry_bench_list {
    uint32_t values[SPRY_BENCH_LIST_MAX];
    size_t count;
} spry_bench_list;

typedef struct spry_bench_settings {
    spry_bench_list prefill, depth, batch;
    uint32_t tokens; /* a decode generates */
    uint32_t repeat;
    spry_engine_flags engine;
    spry_model_flags model;
} spry_bench_settings;

/* Numbers from `least` to `most` separated by commas; "none" and nothing give an empty list. `name` is the option's,
 * for messages. */
spry_status spry_bench_list_parse(spry_bench_list *list, const char *text, uint32_t least, uint32_t most,
                                  const char *name, spry_error *error);

/* ---- what was found ---------------------------------------------------------------------------------------------- */

/* Of the repeats. */
typedef struct spry_bench_stat {
    double median, least, most;
} spry_bench_stat;

/* Of values in any order, which are sorted. */
spry_bench_stat spry_bench_stat_of(double *values, size_t count);

typedef struct spry_bench_point {
    bool decode;
    uint32_t tokens; /* of the prefill; the depth of a decode */
    uint32_t batch;  /* sequences that decode together; 1 for a prefill */
    spry_bench_stat tps;
    double read_gb_s, multiply_g_s; /* that its median speed comes to */
    char skipped[96];               /* why it was not run; empty when it was */
} spry_bench_point;

typedef struct spry_bench_machine {
    char cpu[SPRY_PROCESSOR_NAME_MAX];
    uint32_t threads;
    const char *kernels;
    double read_gb_s;    /* all threads reading memory */
    double multiply_g_s; /* all threads multiplying in cache, with the kernel of the model's main type */
} spry_bench_machine;

typedef struct spry_bench_report {
    const char *model;
    const char *architecture;
    size_t parameters, weight_bytes;
    spry_dtype main_type; /* that most products are made with */
    spry_bench_point points[SPRY_BENCH_POINTS_MAX];
    size_t n_points;
    spry_bench_stat load_ms;
    spry_bench_stat first_token_ms; /* from the start of a process; median 0: could not be measured */
    size_t one_peak_bytes;          /* of memory, before any batch of more than one */
    size_t peak_bytes;              /* at the end */
    spry_bench_machine machine;
} spry_bench_report;

/* ---- bench_plan.c: which points there are, and what they need ------------------------------------------------------
 */

typedef struct spry_bench_needs {
    uint32_t context;  /* of the engine */
    uint32_t sessions; /* whose pages hold the largest batch */
    uint32_t batch;    /* the largest */
} spry_bench_needs;

/* Lists the points of the settings for a model, those that cannot be run as skipped. */
spry_status spry_bench_plan(spry_bench_report *report, spry_bench_needs *needs, const spry_bench_settings *settings,
                            const spry_model *model, spry_error *error);

/* ---- bench_run.c: measuring ----------------------------------------------------------------------------------------
 */

/* Fills everything of the report but its name and the machine's own speeds. `source` is what `model` means; it is
 * opened several times. Changes the engine's context and sessions in the settings to what the points need. */
spry_status spry_bench_run(spry_bench_report *report, spry_bench_settings *settings, const char *model,
                           const spry_model_source *source, spry_error *error);

/* ---- bench_first_token.c -------------------------------------------------------------------------------------------
 */

/* Milliseconds from starting a new process of this program to the first byte of its answer. */
spry_status spry_bench_first_token(double *ms, spry_bench_settings *settings, const spry_model_source *source,
                                   spry_error *error);

/* ---- bench_work.c: how much a step has to do
 * ------------------------------------------------------------------------- */

typedef struct spry_bench_work {
    double bytes;    /* of weights, keys and values that must be read */
    double products; /* multiplications */
} spry_bench_work;

/* Of a prefill of `tokens` from nothing in steps of the engine's chunk; of one decode step of `batch` sequences of
 * `depth` tokens each. Experts are counted as if every row chose its own at random. */
spry_bench_work spry_bench_prefill_work(const spry_engine *engine, size_t tokens);
spry_bench_work spry_bench_decode_work(const spry_engine *engine, size_t depth, size_t batch);

/* The type that most products of a row are made with. */
spry_dtype spry_bench_main_type(const spry_model *model);

/* ---- bench_machine.c: what the machine can do
 * ------------------------------------------------------------------------ */

/* Measures both speeds with as many threads as the report's machine has. Takes memory: after the peak was noted. */
spry_status spry_bench_machine_measure(spry_bench_machine *machine, const char *cpu, spry_dtype type,
                                       spry_error *error);

/* ---- bench_report.c
 * ---------------------------------------------------------------------------------------------------- */

void spry_bench_print_table(const spry_bench_report *report);
spry_status spry_bench_print_json(const spry_bench_report *report, spry_error *error);

#endif
