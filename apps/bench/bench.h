/* `spry bench`: the settings, the state that all kinds of measurement share, and the report.
 *
 * A report is one JSON object. Every kind of measurement (points, reuse, drafts, chunks, workloads) fills it in the
 * same way: bench_run.c writes the head (model, machine, settings), the kind adds its results, tables are printed from
 * the object, --save stores it, and --baseline and --targets compare its figures. Times are in milliseconds, sizes in
 * bytes, shares from 0 to 1. Values that were not measured are null, with the reason in another key. */
#ifndef SPRY_APPS_BENCH_H
#define SPRY_APPS_BENCH_H

#include <jansson.h>

#include "base/dtype.h"
#include "bench/bench_gate.h"
#include "cli/common_options.h"
#include "cli/terminal.h"
#include "platform/gpu.h"
#include "platform/hardware.h"
#include "spry_tools.h"

enum {
    SPRY_BENCH_REPEAT_MAX = 100,
    SPRY_BENCH_SERIES_MAX = 4,          /* values of one repeat */
    SPRY_BENCH_CHUNK_MAX = 65536,       /* tokens in one step */
    SPRY_BENCH_DRAFT_TOKENS_MAX = 1024, /* tokens of an answer with drafts */
    SPRY_BENCH_REQUESTS_MAX = 10000,    /* requests of a workload */
    SPRY_BENCH_TOGETHER_MAX = 64,       /* clients of a workload at a time */
};

/* ---- the command line -------------------------------------------------------------------------------------------- */

typedef struct spry_bench_flags {
    const char *prefill_text, *depth_text, *batch_text; /* lists, as text */
    const char *shape, *type, *write;
    const char *widen; /* the shape to which the model is widened; NULL: it is not */
    const char *draft; /* NULL: drafts are not measured */
    const char *save, *max_drop;
    const char *chunk_text; /* a number, or a list; NULL: not given */
    bool json, reuse, with_policy, curve;
    const char *draft_mode; /* "fast" or "precise" */
    uint32_t draft_most;    /* 0: as many as pay */
    const char *only;       /* the part of points that is measured; NULL: all */
    const char *image;      /* the sides of a picture; NULL: not measured */
    const char *without;    /* the part that is left out; NULL: not measured */
    bool accept;
    bool agent, agreement; /* the session of an agent; compared with the same without the cache */
    spry_bench_list prefill, depth, batch;
    spry_bench_list policy; /* batch sizes, ascending; empty: not measured */
    spry_bench_list chunks; /* empty: chunks are not measured */
    uint32_t tokens;        /* generated per decode */
    uint32_t repeat;
    const char *mix; /* NULL: a workload is not measured */
    const char *url, *url_model, *url_key;
    uint32_t requests, together; /* 0 requests: as many as the workload has */
    uint64_t seed;
    float scale; /* factor for all lengths of the mix */
    spry_bench_judge judge;
    spry_engine_flags engine;
    spry_model_flags model;
} spry_bench_flags;

/* ---- bench_run.c: what every kind of measurement shares ---------------------------------------------------------- */

/* One run of the command: a model, its engine, synthetic text, the progress line and the report. */
typedef struct spry_bench {
    spry_bench_flags *flags;
    const char *model; /* the argument; NULL: the bundled model */
    const char *name;  /* the model's name in the report */
    const spry_model_source *source;
    spry_engine *engine;
    spry_session *session;
    uint32_t context, chunk; /* the engine's context, and its rows per step */
    spry_dtype main_type;    /* type of the matrices in most products */
    int32_t *ids;            /* [n_ids]: synthetic text */
    size_t n_ids;
    spry_progress_line line;
    char doing[96];
    size_t done, whole; /* steps of the progress line */
    json_t *report;
    bool lacks_memory; /* memory was short, so the report is incomplete */
    bool passed;       /* false: a part could not be measured, and a sentence on standard error says why */
    spry_error *error;
} spry_bench;

/* One kind of measurement. */
typedef struct spry_bench_kind {
    const char *flag;   /* "--reuse"; NULL: points, which are measured without a flag */
    const char *format; /* the "format" of its report */
    spry_status (*measure)(spry_bench *bench);
    void (*print)(const json_t *report);
} spry_bench_kind;

/* Measures the workload or the agent's session of the flags. */
spry_status spry_bench_measure_mix(spry_bench *bench);

/* Says on standard error why parts of a workload could not be measured. */
void spry_bench_mix_complain(const json_t *report);

extern const spry_bench_kind spry_bench_points_kind, spry_bench_reuse_kind, spry_bench_draft_kind,
    spry_bench_chunk_kind, spry_bench_mix_kind, spry_bench_agent_kind, spry_bench_without_kind, spry_bench_image_kind;

/* Measures and fills bench->report, which the caller releases with json_decref. Changes the engine's context and
 * sessions in the flags to what the kind needs. */
spry_status spry_bench_run(spry_bench *bench, const spry_bench_kind *kind);

/* Fails when the machine, the model or the settings in the report's head differ from the baseline's. Every kind calls
 * it before it measures. */
spry_status spry_bench_check_baseline(spry_bench *bench);

/* Opens the engine with the flags' options and describes it in the report; with a session if wanted. `cache_dir`:
 * NULL, or where the engine keeps pages. */
spry_status spry_bench_open(spry_bench *bench, const char *cache_dir, bool with_session);
void spry_bench_close(spry_bench *bench);

/* Writes `count` token ids that rarely repeat, as text does, to bench->ids. */
spry_status spry_bench_make_text(spry_bench *bench, size_t count);

/* Describes the open engine in the report. */
spry_status spry_bench_describe(spry_bench *bench);

/* Call between steps: redraws the line; fails after Ctrl-C. */
spry_status spry_bench_go_on(spry_bench *bench);

/* A greedy request without drafts for `max_tokens` tokens, whatever tokens come. */
spry_request spry_bench_request(const int32_t *ids, size_t count, uint32_t max_tokens);

/* Milliseconds since a reading of the clock. */
double spry_bench_ms_since(uint64_t start_ns);

/* ---- the measuring loop ------------------------------------------------------------------------------------------ */

/* The values of all repeats; each series is sorted by spry_bench_stat_of. */
typedef struct spry_bench_series {
    double values[SPRY_BENCH_SERIES_MAX][SPRY_BENCH_REPEAT_MAX];
    size_t count; /* repeats so far */
} spry_bench_series;

/* Measures once: writes up to SPRY_BENCH_SERIES_MAX values. */
typedef spry_status (*spry_bench_once)(spry_bench *bench, void *context, double *values);

/* Calls `once` for every repeat of the flags, before that once without counting if `warm_up`. */
spry_status spry_bench_repeat(spry_bench *bench, spry_bench_series *out, bool warm_up, spry_bench_once once,
                              void *context);

/* ---- the report as JSON ------------------------------------------------------------------------------------------ */

/* Sets a value; NULL, and a lack of memory, make spry_bench_run fail. */
void spry_bench_put(spry_bench *bench, const char *key, json_t *value);

/* Adds a figure to the report's list, by which it is compared and judged. */
void spry_bench_put_figure(spry_bench *bench, const char *what, spry_bench_unit unit, bool less_is_better,
                           double value);

/* Adds all figures that the table of targets names and that `results` has; names begin with `prefix`. */
void spry_bench_put_figures(spry_bench *bench, const json_t *results, const char *prefix);

/* A number above 0, or null. */
json_t *spry_bench_positive_json(double value);

/* The names of the machine of an engine with these options, as in a report; the caller releases *out. With "gpu", that
 * GPU computes, and kernels and speeds are its own. */
spry_status spry_bench_machine_json(json_t **out, const spry_engine_options *options, spry_error *error);

/* Measures the two speed limits into the report. Uses memory: call after the peak was recorded. */
spry_status spry_bench_machine_measure(spry_bench *bench);

/* ---- bench_first.c: what happens before and around points -------------------------------------------------------- */

/* The first token of a new process, which shares nothing with this one except the system's file cache. A model that
 * cannot answer is measured without it. */
spry_status spry_bench_first_token(spry_bench *bench);

/* A request of about a thousand tokens, uncached and cached; a request that is answered with a call of a tool; an
 * answer whose tokens the device draws (nothing on the CPU). No sequence may hold pages. */
spry_status spry_bench_ttft(spry_bench *bench);
spry_status spry_bench_first_call(spry_bench *bench);
spry_status spry_bench_answer(spry_bench *bench);

/* ---- bench_without.c, bench_accept.c ----------------------------------------------------------------------------- */

extern const char *const spry_bench_only[];  /* parts of points, for --only; ends with NULL */
extern const char *const spry_bench_parts[]; /* parts of the engine, for --without; ends with NULL */

/* Runs what the acceptance criteria need, prints each with its figure and verdict; *passed: none failed. */
spry_status spry_bench_accept(bool *passed, const char *model, bool json, spry_error *error);

/* ---- bench_table.c: the report as text in 100 columns ------------------------------------------------------------ */

typedef struct spry_bench_column {
    const char *head;
    int width;       /* negative: aligned to the left; 0: the last column, as long as its text */
    const char *key; /* path in a row: "ttft_ms.p50"; NULL: empty */
    spry_bench_unit unit;
    const char *none; /* text for a value of null; NULL: "-" */
} spry_bench_column;

/* Prints a heading and every row of `rows`, then every row of `skipped` (NULL: none) with its reason. `after` follows
 * the heading. Nothing is printed for two empty lists. */
void spry_bench_table(const spry_bench_column *columns, size_t count, const json_t *rows, const json_t *skipped,
                      const char *after);

/* A text in bold; its control characters are replaced. */
void spry_bench_print_bold(const char *text);

/* A name, a value and a sentence, which continues in the third column of the next lines. */
void spry_bench_print_figure(const char *what, const char *value, const char *format, ...) SPRY_PRINTF(3, 4);

void spry_bench_points_print(const json_t *report);
void spry_bench_policy_print(const json_t *policy); /* NULL: nothing is printed */

#endif
