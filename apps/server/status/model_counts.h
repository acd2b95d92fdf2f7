/* Counters of one model since the server started, or of one request that is about to be added to them. */
#ifndef SPRY_SERVER_MODEL_COUNTS_H
#define SPRY_SERVER_MODEL_COUNTS_H

#include "server/status/histogram.h"
#include "spry.h"

typedef struct spry_model_counts {
    uint64_t requests, failed, cancelled;
    uint64_t prompt_us, decode_us; /* time of computing prompts and of decoding answers */
    uint64_t longest;              /* prompt and answer together, in tokens */
    uint64_t prompt_tokens, cached_tokens, span_tokens, generated_tokens, drafted_tokens, accepted_tokens;
    uint64_t first_call_tokens; /* until the first tool call of an answer was complete */
    uint64_t tried_at[SPRY_DRAFT_MOST], accepted_at[SPRY_DRAFT_MOST]; /* draft tokens, by position in their step */
    uint64_t draft_lengths[SPRY_DRAFT_MOST + 1];                      /* steps, by number of draft tokens */
    /* Answers with drafts, by the median and the 95th percentile of refused tokens a step. */
    uint64_t refused_p50[SPRY_DRAFT_MOST + 1], refused_p95[SPRY_DRAFT_MOST + 1];
    spry_histogram first_token, between_tokens, queue, first_call;
} spry_model_counts;

/* Adds the drafts of one answer. */
void spry_model_counts_add_drafts(spry_model_counts *counts, const spry_draft_report *drafts);

/* Steps with draft tokens. */
uint64_t spry_model_counts_drafts(const spry_model_counts *counts);

void spry_model_counts_merge(spry_model_counts *into, const spry_model_counts *from);

/* A counter as /metrics shows it. One with several values has a label whose value is the index, counted from
 * `first_label`. */
typedef struct spry_counter_field {
    const char *name, *help;
    size_t offset, n_values; /* uint64_t in spry_model_counts */
    const char *label;       /* NULL: one value */
    unsigned first_label;
} spry_counter_field;

typedef struct spry_histogram_field {
    const char *name, *help;
    size_t offset; /* a spry_histogram in spry_model_counts */
} spry_histogram_field;

enum { SPRY_COUNTER_FIELDS = 17, SPRY_HISTOGRAM_FIELDS = 4 };

extern const spry_counter_field spry_counter_fields[SPRY_COUNTER_FIELDS];
extern const spry_histogram_field spry_histogram_fields[SPRY_HISTOGRAM_FIELDS];

const uint64_t *spry_model_counts_values(const spry_model_counts *counts, const spry_counter_field *field);
const spry_histogram *spry_model_counts_histogram(const spry_model_counts *counts, const spry_histogram_field *field);

#endif
