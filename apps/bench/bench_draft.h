/* `spry bench --draft WHO`: the same answers with and without drafts, alternating. */
#ifndef SPRY_APPS_BENCH_DRAFT_H
#define SPRY_APPS_BENCH_DRAFT_H

#include "bench/bench.h"

#define SPRY_BENCH_DRAFT_FORMAT "spry-draft-1"

enum { SPRY_BENCH_DRAFT_TOKENS = 128, SPRY_BENCH_DRAFT_TOKENS_MAX = 1024 }; /* of an answer, and the most */
enum { SPRY_BENCH_DRAFT_TASKS = 2, SPRY_BENCH_CURVE = 6, SPRY_BENCH_DRAFT_TASKS_MAX = 8 };

/* Gates of speculation. */
typedef struct spry_bench_draft_figures {
    double acceptance;               /* share of the drafts */
    double refused_p50, refused_p95; /* shares of an answer's drafts; percentiles over answers */
    double prefill_ms;               /* in which the draft model reads a prompt; median over answers, 0: none does */
    double speedup;                  /* of decoding */
} spry_bench_draft_figures;

typedef struct spry_bench_draft_task {
    const char *what;
    float temperature;
    size_t tokens;                         /* of all its answers */
    spry_bench_stat plain, drafted;        /* tokens/s */
    double plain_ttft_ms, drafted_ttft_ms; /* median over answers */
    spry_draft_report drafts;              /* of the last repeat, over all answers */
    spry_bench_draft_figures figures;
} spry_bench_draft_task;

typedef struct spry_bench_drafts {
    const char *model, *who;
    spry_bench_machine machine; /* without its speeds */
    /* Tales; a text with repetitions; and, of a curve, tales at higher temperatures, whose drafts are harder to
     * guess. */
    spry_bench_draft_task tasks[SPRY_BENCH_DRAFT_TASKS_MAX];
    size_t n_tasks;
    spry_bench_draft_figures all; /* of tales and repetitions together */
} spry_bench_drafts;

/* Answers have as many tokens as the settings say, at most SPRY_BENCH_DRAFT_TOKENS_MAX. `curve`: also the
 * temperatures. */
spry_status spry_bench_draft_run(spry_bench_drafts *out, spry_bench_settings *settings, const spry_model_source *source,
                                 const char *who, bool curve, spry_error *error);

/* ---- bench_draft_report.c ---------------------------------------------------------------------------------------- */

void spry_bench_draft_print_table(const spry_bench_drafts *drafts);
json_t *spry_bench_draft_json(const spry_bench_drafts *drafts); /* NULL: memory is short */

#endif
