/* `spry bench` as a regression gate: saved reports, comparing them with new measurements figure by figure, and targets
 * for machines.
 *
 * A figure is a number with a name. Figures of the same name in two reports are compared, others are listed. A figure
 * fails when it is worse by more than the limit: lower for speeds and shares, higher for times and memory. A figure of
 * the baseline that is missing fails too, unless its point was not requested this time. */
#ifndef SPRY_APPS_BENCH_GATE_H
#define SPRY_APPS_BENCH_GATE_H

#include <jansson.h>
#include <stdint.h>

#include "base/error.h"

/* Formats of reports, one for each kind of measurement, and of files of targets. */
#define SPRY_BENCH_FORMAT       "spry-bench-1"
#define SPRY_DRAFT_FORMAT       "spry-draft-1"
#define SPRY_REUSE_FORMAT       "spry-reuse-1"
#define SPRY_WITHOUT_FORMAT     "spry-without-1"
#define SPRY_CHUNK_FORMAT       "spry-chunk-1"
#define SPRY_IMAGE_FORMAT       "spry-image-1"
#define SPRY_MIX_REPORT_FORMAT  "spry-mix-report-1"
#define SPRY_AGENT_FORMAT       "spry-agent-report-1"
#define SPRY_TARGETS_FORMAT     "spry-targets-1"
#define SPRY_TARGETS_OF_PROFILE "profile"

/* Limits of reports: the largest plausible number, the bytes of a file, and the points of a list. */
#define SPRY_BENCH_LARGEST 1e15
enum {
    SPRY_BENCH_FILE_MAX = 16 << 20,
    SPRY_BENCH_LIST_MAX = 16,
    SPRY_BENCH_POINTS_MAX = SPRY_BENCH_LIST_MAX * (SPRY_BENCH_LIST_MAX + 1),
    SPRY_BENCH_TOKENS_MAX = 1 << 20,
};

/* ---- bench_numbers.c: lists, statistics and values --------------------------------------------------------------- */

typedef struct spry_bench_list {
    uint32_t values[SPRY_BENCH_LIST_MAX];
    size_t count;
} spry_bench_list;

/* Parses numbers from `least` to `most` separated by commas; "none" and "" give an empty list. `name` is the option,
 * for messages. */
spry_status spry_bench_list_parse(spry_bench_list *list, const char *text, uint32_t least, uint32_t most,
                                  const char *name, spry_error *error);

/* Adds a number that is not in the list; false: the list is full. A NULL list accepts any. */
bool spry_bench_list_add(spry_bench_list *list, uint32_t value);

/* Parses "10", "10%", "2.5%". */
spry_status spry_bench_percent_parse(double *share, const char *text, const char *name, spry_error *error);

typedef struct spry_bench_stat {
    double median, least, most;
} spry_bench_stat;

/* Median and range of values in any order; sorts them. */
spry_bench_stat spry_bench_stat_of(double *values, size_t count);

/* The range of the repeats relative to their median; and a / b, or 0 if b is not above 0. */
double spry_bench_spread(const spry_bench_stat *stat);
double spry_bench_ratio(double a, double b);

/* The smallest value that `percent` of a sorted list do not exceed. */
double spry_bench_percentile(const double *sorted, size_t count, double percent);

/* {"p50", "p95", "p99"} of values in any order, which are sorted; each key ends with `suffix`. */
json_t *spry_bench_percentiles_json(double *values, size_t count, const char *suffix);

/* How a number is shown. Figures have the first units; only tables use the others. */
typedef enum spry_bench_unit {
    SPRY_BENCH_TPS,
    SPRY_BENCH_MS,
    SPRY_BENCH_BYTES,
    SPRY_BENCH_SHARE,
    SPRY_BENCH_GB_S,
    SPRY_BENCH_G_S,
    SPRY_BENCH_JOULES,
    SPRY_BENCH_TOKENS,
    SPRY_BENCH_TIMES,
    SPRY_BENCH_US,
    SPRY_BENCH_FIGURE_UNITS,
    SPRY_BENCH_COUNT = SPRY_BENCH_FIGURE_UNITS,
    SPRY_BENCH_TENTHS,
    SPRY_BENCH_HUNDREDTHS,
    SPRY_BENCH_PERCENT,
    SPRY_BENCH_CHANGE,
    SPRY_BENCH_TIME,     /* "840 ms", "2.1 s" */
    SPRY_BENCH_TEXT,     /* a string */
    SPRY_BENCH_OF_ROW,   /* the unit that the row names */
    SPRY_BENCH_NOT_ZERO, /* a count; 0 is shown as no value */
    SPRY_BENCH_BAR       /* a bar relative to the largest value of its column */
} spry_bench_unit;

/* The value with its unit: "61.2 tok/s". */
enum { SPRY_BENCH_VALUE = 24 };
const char *spry_bench_value(char out[SPRY_BENCH_VALUE], spry_bench_unit unit, double value);

/* The name of a figure's unit in reports: "tok/s"; and the unit of a name, SPRY_BENCH_FIGURE_UNITS if there is none. */
const char *spry_bench_unit_name(spry_bench_unit unit);
spry_bench_unit spry_bench_unit_of(const char *name);

/* A value by a path of keys: "machine.cpu". NULL, 0 or "" if there is none. */
const json_t *spry_bench_at(const json_t *json, const char *path);
double spry_bench_number(const json_t *json, const char *path);
const char *spry_bench_text(const json_t *json, const char *path);

/* A name with any bytes as JSON. */
json_t *spry_bench_text_json(const char *text);

/* ---- bench_file.c: reports as files ------------------------------------------------------------------------------ */

/* Reads a file as a JSON object that `check` accepts; the caller releases *out with json_decref. Messages contain the
 * file name. */
typedef spry_status (*spry_bench_file_check)(const json_t *file, spry_error *error);
spry_status spry_bench_file_open(json_t **out, const char *path, spry_bench_file_check check, spry_error *error);

/* Whether an object is a report of any kind, and every key of it that is used later is valid. */
spry_status spry_bench_report_check(const json_t *report, spry_error *error);

/* Reads a report of any kind; the caller releases *out with json_decref. Every key used later is validated. */
spry_status spry_bench_file_read(json_t **out, const char *path, spry_error *error);

/* Adds the report's measured points to each list that is not NULL, as far as there is room. */
void spry_bench_file_lists(spry_bench_list *prefill, spry_bench_list *depth, spry_bench_list *batch,
                           const json_t *report);

/* Whether two reports are not comparable; then `out` lists the differences: "threads is 1 there and 2 here". */
enum { SPRY_BENCH_DIFFERENCES = 400 };
bool spry_bench_differs(char out[SPRY_BENCH_DIFFERENCES], const json_t *there, const json_t *here);

/* Fails with those differences; `file` is the file of `there`. */
spry_status spry_bench_check_same(const json_t *there, const char *file, const json_t *here, spry_error *error);

/* ---- bench_gate.c: figures, and now against then ----------------------------------------------------------------- */

typedef enum spry_bench_of { SPRY_BENCH_OF_ALL, SPRY_BENCH_OF_PREFILL, SPRY_BENCH_OF_DECODE } spry_bench_of;

typedef struct spry_bench_figure {
    char what[64];
    spry_bench_unit unit;
    bool less_is_better;
    spry_bench_of of;
    bool of_point;   /* a point's own speed, which shows that the point was measured */
    bool of_points;  /* depends on which points were measured */
    double prompt;   /* for a time to the first token: tokens of the prompt, which must be equal; 0: not such a time */
    double op_share; /* for an op: its share of the point's time; 1: not an op */
    double value;
} spry_bench_figure;

/* The shares of a point's time by place: the GPU, the CPU's kernels, the host that prepares, starts and waits, and
 * copies between them. They add up to 1. False: no op ran on a GPU. */
typedef enum spry_bench_place {
    SPRY_BENCH_ON_GPU,
    SPRY_BENCH_ON_CPU,
    SPRY_BENCH_ON_HOST,
    SPRY_BENCH_ON_THE_WAY,
    SPRY_BENCH_PLACES
} spry_bench_place;
bool spry_bench_places(double shares[SPRY_BENCH_PLACES], const json_t *point);

typedef struct spry_bench_figures {
    spry_bench_figure *list;
    size_t count, capacity;
    bool failed; /* memory was short */
} spry_bench_figures;

/* The figures of a report. Those of points are TTFT cold and warm; tokens/s of each point; p95 of each decode; memory;
 * for each point the share of time in optimised kernels (products and attention), and the speed of each such op. All
 * other kinds list their figures. */
void spry_bench_figures_init(spry_bench_figures *figures, const json_t *report);
void spry_bench_figures_deinit(spry_bench_figures *figures);

/* The figure of this name, or NULL. */
const spry_bench_figure *spry_bench_figures_find(const spry_bench_figures *figures, const char *what);

typedef struct spry_bench_gate_rules {
    double max_drop;                          /* 0.1: 10 % */
    bool may_lack_prefills, may_lack_decodes; /* other points were requested this time */
    bool force;
} spry_bench_gate_rules;

/* Compares two reports of one kind; *out is the verdict, which the caller releases. Fails when they have nothing in
 * common. `differences`: the differences that --force ignored, or "". */
spry_status spry_bench_gate(json_t **out, const json_t *before, const json_t *now, const spry_bench_gate_rules *rules,
                            const char *file, const char *differences, spry_error *error);
void spry_bench_gate_print(const json_t *gate);

/* ---- bench_targets.c: now against what is wanted ----------------------------------------------------------------- */

/* Reads and validates a file of targets; the caller releases *out. Unknown keys are refused. */
spry_status spry_bench_targets_read(json_t **out, const char *path, spry_error *error);

/* Adds the points of a machine's targets to each list that is not NULL. Fails when the file has none for it that a
 * report of this format measures, or more than can be measured. `machine` is as in a report. */
spry_status spry_bench_targets_lists(spry_bench_list *prefill, spry_bench_list *depth, spry_bench_list *batch,
                                     const json_t *targets, const char *path, const char *format, const json_t *machine,
                                     spry_error *error);

/* Checks a validated report against the targets for its machine: by its id, else by the longest part of the processor's
 * name, else "*". *out is the verdict, which the caller releases. Fails when there are none. */
spry_status spry_bench_targets_check(json_t **out, const json_t *targets, const char *path, const json_t *report,
                                     spry_error *error);
void spry_bench_targets_print(const json_t *verdict);

/* ---- the files of the command line ------------------------------------------------------------------------------- */

/* Which settings are on the command line and must not be replaced. */
typedef struct spry_bench_given {
    bool prefill, depth, batch, tokens, repeat, threads, chunk, kv_type, quantize, requests, together, seed, scale;
} spry_bench_given;

typedef struct spry_bench_judge {
    const char *baseline_path, *targets_path, *measured_path; /* NULL: none */
    double max_drop;
    bool force; /* compare reports that are not comparable */
    spry_bench_given given;
    json_t *baseline, *targets, *measured; /* the files, once opened */
} spry_bench_judge;

/* Reads the given files. Deinitialise also on failure. `format`: of what is measured; NULL: a saved report is used. */
spry_status spry_bench_judge_open(spry_bench_judge *judge, const char *format, spry_error *error);
void spry_bench_judge_deinit(spry_bench_judge *judge);

/* Checks a report against baseline and targets. `json` NULL: prints tables; otherwise adds "gate" and "targets" to it.
 * *passed is the verdict. */
spry_status spry_bench_judge_report(bool *passed, const spry_bench_judge *judge, const json_t *report, json_t *json,
                                    spry_error *error);

#endif
