/* The settings and results of `spry bench`.
 *
 * A point is one measurement: a prefill of some length, or a decode at some depth with some number of sequences. Points
 * that cannot be run stay in the list with the reason. */
#ifndef SPRY_APPS_BENCH_H
#define SPRY_APPS_BENCH_H

#include <jansson.h>

#include "base/dtype.h"
#include "cli/common_options.h"
#include "cli/terminal.h"
#include "platform/energy.h"
#include "platform/gpu.h"
#include "platform/hardware.h"
#include "spry_tools.h"

enum {
    SPRY_BENCH_REPEAT_MAX = 100,
    SPRY_BENCH_LIST_MAX = 16,
    SPRY_BENCH_POINTS_MAX = SPRY_BENCH_LIST_MAX * (SPRY_BENCH_LIST_MAX + 1),
    SPRY_BENCH_TOKENS_MAX = 1 << 20,
    SPRY_BENCH_REQUEST = 1040,  /* tokens of a session for a request of about a thousand */
    SPRY_BENCH_POLICY_WARM = 8, /* warm-up steps before those that count */
    SPRY_BENCH_POLICY_MAX = SPRY_BENCH_LIST_MAX
};

/* ---- what was asked for ------------------------------------------------------------------------------------------ */

typedef struct spry_bench_list {
    uint32_t values[SPRY_BENCH_LIST_MAX];
    size_t count;
} spry_bench_list;

/* The properties that two reports must share to be comparable. */
typedef struct spry_bench_identity {
    char machine[SPRY_MACHINE_ID], cpu[SPRY_PROCESSOR_NAME_MAX], kernels[16];
    char model[40], model_name[64]; /* fingerprint in hexadecimal digits; the name is not compared */
    uint32_t threads, chunk, tokens;
    char kv_type[8], quantize[24]; /* quantize "": unchanged */
} spry_bench_identity;

typedef struct spry_bench_settings {
    spry_bench_list prefill, depth, batch;
    spry_bench_list policy; /* batch sizes, ascending; empty: not measured */
    uint32_t tokens;        /* generated per decode */
    uint32_t repeat;
    const spry_bench_identity *like; /* NULL, or the required identity: a different one is refused before measuring */
    const char *like_what;           /* the file of `like` */
    spry_engine_flags engine;
    spry_model_flags model;
} spry_bench_settings;

/* Parses numbers from `least` to `most` separated by commas; "none" and "" give an empty list. `name` is the option,
 * for messages. */
spry_status spry_bench_list_parse(spry_bench_list *list, const char *text, uint32_t least, uint32_t most,
                                  const char *name, spry_error *error);

/* Adds a number that is not in the list; false: no room. A NULL list accepts any. */
bool spry_bench_list_add(spry_bench_list *list, uint32_t value);

/* ---- what was found ---------------------------------------------------------------------------------------------- */

/* Statistics of the repeats. */
typedef struct spry_bench_stat {
    double median, least, most;
} spry_bench_stat;

/* Of values in any order, which are sorted. */
spry_bench_stat spry_bench_stat_of(double *values, size_t count);

/* The range of the repeats relative to their median; and a / b, or 0 if b is not above 0. */
double spry_bench_spread(const spry_bench_stat *stat);
double spry_bench_ratio(double a, double b);

/* The smallest value that `percent` of a sorted list do not exceed. */
double spry_bench_percentile(const double *sorted, size_t count, double percent);

/* Of the timed steps of a decode. */
typedef struct spry_bench_steps {
    double p50_ms, p95_ms, p99_ms;
} spry_bench_steps;

/* Sorts. */
spry_bench_steps spry_bench_steps_of(double *ms, size_t count);

/* The time of an op with matrices (or keys and values) of a type in one prefill or one decode step. */
typedef struct spry_bench_op {
    spry_op op;
    spry_dtype type;
    double ms, share; /* share of the time of all ops */
    double calls, bytes, products;
} spry_bench_op;

/* Of one prefill, or of everything one repeat of a decode generates. */
typedef struct spry_bench_energy {
    spry_joules used;
    double ms;
    size_t tokens;
} spry_bench_energy;

typedef struct spry_bench_point {
    bool decode;
    double waits;    /* times the host waited for the device, per token */
    double gpu_busy; /* percent, as NVML says at the end; NAN: not known */
    uint32_t tokens; /* of the prefill; or the depth of a decode */
    uint32_t batch;  /* sequences decoded together; 1 for a prefill */
    spry_bench_stat tps;
    double read_gb_s, multiply_g_s; /* at its median speed */
    spry_bench_steps steps;         /* of a decode */
    spry_bench_energy energy;
    spry_bench_op *ops; /* [n_ops], longest first; owned by the report */
    size_t n_ops;
    char skipped[96]; /* why it was not run; empty: it was */
} spry_bench_point;

/* A typical request until its first token. */
typedef struct spry_bench_request {
    size_t prompt_tokens, hit_tokens;
    double ms, parts_ms[SPRY_PART_COUNT];
} spry_bench_request;

typedef struct spry_bench_ttft {
    spry_bench_request cold, warm; /* without and with a cached prompt; the repeats of median length */
    char why_not[160];             /* empty: measured */
} spry_bench_ttft;

/* One answer through a session, its tokens drawn by the device: not measured where that is the CPU. */
typedef struct spry_bench_answer {
    size_t tokens; /* 0: not measured */
    double ms;     /* from the first to the last */
    double waits;  /* times the host waited for the device, per token */
    double ahead;  /* share of the steps that began before the tokens of the step before were read */
} spry_bench_answer;

/* Until the first call of a tool is complete, with nothing cached; the repeat of median length. */
typedef struct spry_bench_call {
    double ms;
    size_t tokens;     /* of the answer */
    char why_not[160]; /* empty: measured */
} spry_bench_call;

/* The batch size that offline mode would choose, from steps measured here. */
typedef struct spry_bench_batch {
    uint32_t batch;
    double tps, p50_ms, p95_ms;
    double gain, slower; /* relative to the next smaller size; 0: none */
    char skipped[96];
} spry_bench_batch;

typedef struct spry_bench_policy {
    spry_bench_batch batches[SPRY_BENCH_POLICY_MAX];
    size_t count; /* 0: not requested */
    uint32_t depth, taken;
    uint32_t interactive; /* largest size up to which every doubling pays for those who wait */
    char why[200];
} spry_bench_policy;

typedef struct spry_bench_memory {
    spry_memory_parts estimated, measured;
    char why_not[160]; /* empty: both are known */
} spry_bench_memory;

typedef struct spry_bench_machine {
    char cpu[SPRY_PROCESSOR_NAME_MAX];
    char gpu[SPRY_GPU_NAME]; /* the one that computes; "": the processor does. Then kernels and speeds are the GPU's */
    int gpu_index;
    char id[SPRY_MACHINE_ID];
    size_t memory_bytes;
    uint32_t threads;
    char kernels[SPRY_KERNELS_NAME];
    double read_gb_s;    /* all threads reading memory; or the GPU reading its own */
    double multiply_g_s; /* all threads multiplying in cache, with the kernel of the model's main type; of a GPU what
                          * its matrix instructions could do with 16-bit floats */
} spry_bench_machine;

typedef struct spry_bench_report {
    const char *model;
    const char *architecture;
    size_t parameters, weight_bytes;
    spry_dtype main_type; /* of most products */
    const char *device;   /* kind of the one that computes */
    spry_bench_point points[SPRY_BENCH_POINTS_MAX];
    size_t n_points;
    spry_bench_stat load_ms;
    spry_bench_stat first_token_ms; /* from the start of a process; median 0: not measured */
    size_t one_peak_bytes;          /* memory, before any batch of more than one */
    size_t peak_bytes;              /* at the end */
    spry_bench_machine machine;
    spry_bench_identity identity;
    uint32_t repeat, context;  /* of the settings and the engine */
    char when[SPRY_TIME_TEXT]; /* "2026-11-15T12:00:00Z" */
    spry_bench_ttft ttft;
    spry_bench_call call;
    spry_bench_answer answer;
    spry_bench_memory memory;
    spry_energy_facts energy;
    spry_bench_policy policy;
} spry_bench_report;

void spry_bench_report_deinit(spry_bench_report *report);

/* The point whose energy is reported: the first decode of one sequence, or the first point; NULL: none. */
const spry_bench_point *spry_bench_energy_point(const spry_bench_report *report);

/* ---- bench_plan.c: which points there are, and what they need ------------------------------------------------------
 */

typedef struct spry_bench_needs {
    uint32_t context;  /* of the engine */
    uint32_t sessions; /* sessions whose pages hold the largest batch */
    uint32_t batch;    /* the largest */
    uint32_t rows;     /* rows of the largest step without chunks */
    size_t pages;      /* maximum number of pages in use at once */
} spry_bench_needs;

/* Lists the points of the settings for a model; those that cannot be run are marked as skipped. */
void spry_bench_plan(spry_bench_report *report, spry_bench_needs *needs, const spry_bench_settings *settings,
                     const spry_checkpoint *checkpoint);

/* ---- bench_run.c: measuring ----------------------------------------------------------------------------------------
 */

/* Fills the report except its name and the machine's speeds; the caller deinitialises it also on failure. `source` is
 * the source of `model`; it is opened several times. Changes the engine's context and sessions in the settings to what
 * the points need. */
spry_status spry_bench_run(spry_bench_report *report, spry_bench_settings *settings, const char *model,
                           const spry_model_source *source, spry_error *error);

/* ---- bench_first_token.c -------------------------------------------------------------------------------------------
 */

/* Milliseconds from starting a new process of this program to the first byte of its answer. */
spry_status spry_bench_first_token(double *ms, spry_bench_settings *settings, const spry_model_source *source,
                                   spry_error *error);

/* ---- bench_machine.c: what the machine can do
 * ------------------------------------------------------------------------ */

/* Everything except the speeds, for an engine with these options. */
spry_status spry_bench_machine_name(spry_bench_machine *machine, const spry_engine_options *options, spry_error *error);

/* The processor computes after all. */
spry_status spry_bench_machine_without_gpu(spry_bench_machine *machine, const spry_engine_options *options,
                                           spry_error *error);

/* Measures both speeds with the threads of the report's machine. Uses memory: call after the peak was recorded. */
spry_status spry_bench_machine_measure(spry_bench_machine *machine, const char *cpu, spry_dtype type,
                                       spry_error *error);

/* ---- bench_report.c, bench_json.c
 * ---------------------------------------------------------------------------------------------------- */

/* As text in 100 columns. */
void spry_bench_print_table(const spry_bench_report *report);

/* As JSON; NULL when memory is short. */
json_t *spry_bench_report_json(const spry_bench_report *report);

/* A name with any bytes as JSON. */
json_t *spry_bench_text_json(const char *text);

/* Prints one line to standard output. */
spry_status spry_bench_print_json(const json_t *json, spry_error *error);

/* ---- bench_policy.c
 * ---------------------------------------------------------------------------------------------------- */

void spry_bench_policy_print(const spry_bench_policy *policy);
json_t *spry_bench_policy_json(const spry_bench_policy *policy);

#endif
