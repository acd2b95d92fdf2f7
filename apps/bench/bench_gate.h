/* `spry bench` as a regression gate: compares saved reports with new measurements figure by figure, and checks targets
 * for a machine.
 *
 * A figure is a number with a name. Figures of the same name in two reports are compared, others are listed. A figure
 * fails when it is worse by more than the limit: lower for speeds and shares, higher for times and memory. A figure of
 * the baseline that is missing fails too, unless its point was not requested this time. */
#ifndef SPRY_APPS_BENCH_GATE_H
#define SPRY_APPS_BENCH_GATE_H

#include "bench/bench.h"

#define SPRY_BENCH_FORMAT       "spry-bench-1"
#define SPRY_TARGETS_FORMAT     "spry-targets-1"
#define SPRY_TARGETS_OF_PROFILE "profile"

/* Limits of reports: the largest plausible number, and the bytes of a file. */
#define SPRY_BENCH_LARGEST 1e15
enum { SPRY_BENCH_FILE_MAX = 16 << 20 };

/* ---- bench_file.c: reports as files --------------------------------------------------------------------------------
 */

/* Reads a file as a JSON object that `check` accepts; the caller releases *out with json_decref. Messages contain the
 * file name. */
typedef spry_status (*spry_bench_file_check)(const json_t *file, spry_error *error);
spry_status spry_bench_file_open(json_t **out, const char *path, spry_bench_file_check check, spry_error *error);

/* Reads a report; the caller releases *out with json_decref. Every key used later is validated. */
spry_status spry_bench_file_read(json_t **out, const char *path, spry_error *error);

/* Replaces an old file atomically. */
spry_status spry_bench_file_save(const json_t *report, const char *path, spry_error *error);

/* Of a report that was read or measured. */
void spry_bench_file_identity(spry_bench_identity *identity, const json_t *report);

/* Adds the report's measured points to each list that is not NULL, as far as there is room. */
void spry_bench_file_lists(spry_bench_list *prefill, spry_bench_list *depth, spry_bench_list *batch,
                           const json_t *report);

/* Whether two reports are not comparable; then `out` lists the differences: "threads is 1 there and 2 here". */
enum { SPRY_BENCH_DIFFERENCES = 400 };
bool spry_bench_identity_differs(char out[SPRY_BENCH_DIFFERENCES], const spry_bench_identity *there,
                                 const spry_bench_identity *here);

/* Fails with those differences; `file` is the file of `expected`. */
spry_status spry_bench_identity_check(const spry_bench_identity *expected, const char *file,
                                      const spry_bench_identity *found, spry_error *error);

/* ---- bench_figures.c: a report as a list of figures ----------------------------------------------------------------
 */

typedef enum spry_bench_unit {
    SPRY_BENCH_TPS,
    SPRY_BENCH_MS,
    SPRY_BENCH_BYTES,
    SPRY_BENCH_SHARE,
    SPRY_BENCH_GB_S,
    SPRY_BENCH_G_S,
    SPRY_BENCH_JOULES,
    SPRY_BENCH_TOKENS,
    SPRY_BENCH_TIMES
} spry_bench_unit;

typedef enum spry_bench_of { SPRY_BENCH_OF_ALL, SPRY_BENCH_OF_PREFILL, SPRY_BENCH_OF_DECODE } spry_bench_of;

typedef struct spry_bench_figure {
    char what[64];
    spry_bench_unit unit;
    bool less_is_better;
    spry_bench_of of;
    bool of_point;    /* a point's own speed, which shows that the point was measured */
    bool of_points;   /* depends on which points were measured */
    double prompt;    /* of a first token: the tokens before it; only equal ones are comparable. 0 otherwise */
    double op_share;  /* of an op: its share of the point's time; 1 otherwise */
    bool may_be_zero; /* 0 is a measurement, not the lack of one */
    double value;
} spry_bench_figure;

typedef struct spry_bench_figures {
    spry_bench_figure *list;
    size_t count, capacity;
    bool failed; /* memory was short */
} spry_bench_figures;

/* TTFT cold and warm; tokens/s of each point; p95 of each decode; memory; for each point the share of time in optimised
 * kernels (products and attention), and the speed of each such op. */
void spry_bench_figures_init(spry_bench_figures *figures, const json_t *report);
void spry_bench_figures_deinit(spry_bench_figures *figures);

/* The figure of this name, or NULL. */
const spry_bench_figure *spry_bench_figures_find(const spry_bench_figures *figures, const char *what);

/* The value with its unit: "61.2 tok/s". */
enum { SPRY_BENCH_VALUE = 24 };
const char *spry_bench_value(char out[SPRY_BENCH_VALUE], spry_bench_unit unit, double value);

/* ---- bench_gate.c: now against then --------------------------------------------------------------------------------
 */

typedef enum spry_bench_verdict {
    SPRY_BENCH_KEPT,
    SPRY_BENCH_DROPPED,
    SPRY_BENCH_ONLY_BEFORE, /* not compared */
    SPRY_BENCH_ONLY_NOW,
    SPRY_BENCH_OTHER_POINTS
} spry_bench_verdict;

typedef struct spry_bench_compared {
    const spry_bench_figure *before, *now; /* NULL: only in the other report */
    double change;                         /* 0.1: 10 % more */
    spry_bench_verdict verdict;
    bool missing;
} spry_bench_compared;

typedef struct spry_bench_gate_rules {
    double max_drop;                                 /* 0.1: 10 % */
    bool may_lack_prefills, may_lack_decodes, force; /* force: any figure may be missing */
} spry_bench_gate_rules;

typedef struct spry_bench_gate {
    spry_bench_gate_rules rules;
    spry_bench_figures before, now;
    spry_bench_compared *list;
    size_t count, n_compared, n_dropped, n_missing;
    double machine; /* the machine's own speed relative to the baseline's; 0: unknown */
} spry_bench_gate;

/* Compares two validated reports. Fails when they have nothing in common. Deinitialise also on failure. */
spry_status spry_bench_gate_init(spry_bench_gate *gate, const json_t *before, const json_t *now,
                                 const spry_bench_gate_rules *rules, spry_error *error);
bool spry_bench_gate_passed(const spry_bench_gate *gate);
void spry_bench_gate_deinit(spry_bench_gate *gate);

/* Prints a table of every figure; or as JSON (NULL: memory is short). `differences`: those that --force ignored, or
 * "". */
void spry_bench_gate_print(const spry_bench_gate *gate, const char *file, const char *differences);
json_t *spry_bench_gate_json(const spry_bench_gate *gate, const char *file, const char *differences);

/* ---- bench_targets.c: now against what is wanted -------------------------------------------------------------------
 */

/* Reads and validates a file of targets; the caller releases *out. Unknown keys are refused. */
spry_status spry_bench_targets_read(json_t **out, const char *path, spry_error *error);

/* Adds the points of this machine's targets to each list that is not NULL. Fails when the file has none for it, or more
 * than can be measured. */
spry_status spry_bench_targets_lists(spry_bench_list *prefill, spry_bench_list *depth, spry_bench_list *batch,
                                     const json_t *targets, const char *path, const spry_bench_machine *machine,
                                     spry_error *error);

typedef struct spry_bench_target {
    spry_bench_figure wanted;
    double measured;
    bool known; /* false: not measured, and therefore not met */
    bool met;
} spry_bench_target;

enum { SPRY_BENCH_TARGETS_MAX = 64 };

typedef struct spry_bench_targets {
    const char *machine; /* its key in the file */
    spry_bench_target list[SPRY_BENCH_TARGETS_MAX];
    size_t count, n_missed;
    size_t n_others; /* targets that this kind of run does not measure, and does not check */
} spry_bench_targets;

/* Checks a validated report against the targets for its machine: by its id, else by the longest part of the processor's
 * name, else "*". Fails when there are none. */
spry_status spry_bench_targets_check(spry_bench_targets *out, const json_t *targets, const char *path,
                                     const json_t *report, spry_error *error);
void spry_bench_targets_print(const spry_bench_targets *targets, const char *path);
json_t *spry_bench_targets_json(const spry_bench_targets *targets, const char *path);

#endif
