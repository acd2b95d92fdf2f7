/* What happened since the server began, per model, for Prometheus and for whoever watches. */
#ifndef SPRY_SERVER_METRICS_H
#define SPRY_SERVER_METRICS_H

#include <pthread.h>

#include "base/buffer.h"
#include "spry.h"

enum { SPRY_METRICS_BUCKETS = 15, SPRY_METRICS_MODELS = 64, SPRY_METRICS_NAME = 128, SPRY_METRICS_SLOTS = 8 };

/* The upper limits of the buckets are in metrics.c. */
typedef struct spry_histogram {
    uint64_t buckets[SPRY_METRICS_BUCKETS + 1]; /* the last: everything above */
    uint64_t count;
    double sum; /* seconds */
} spry_histogram;

void spry_histogram_add(spry_histogram *histogram, double seconds);

void spry_histogram_merge(spry_histogram *into, const spry_histogram *from);

/* Counters of one model, or of one request on their way there. */
typedef struct spry_model_counts {
    uint64_t requests, failed, cancelled;
    uint64_t prompt_tokens, cached_tokens, span_tokens, generated_tokens, drafted_tokens, accepted_tokens;
    uint64_t tried_at[SPRY_DRAFT_MOST], accepted_at[SPRY_DRAFT_MOST]; /* guesses, by place in their step */
    uint64_t draft_lengths[SPRY_DRAFT_MOST + 1];                      /* steps, by tokens guessed */
    /* Answers that were guessed for, by the tokens their steps took back. */
    uint64_t refused_p50[SPRY_DRAFT_MOST + 1], refused_p95[SPRY_DRAFT_MOST + 1];
    spry_histogram first_token, between_tokens, queue;
} spry_model_counts;

typedef struct spry_model_metrics {
    char name[SPRY_METRICS_NAME];
    spry_model_counts counts;
    spry_kv_figures kv; /* as of the last time the model ran */
    uint64_t kv_ns;
    uint32_t pieces[SPRY_METRICS_SLOTS]; /* of text, in each eighth of the last second */
    uint64_t slot;                       /* the newest of them, counted since the clock began */
} spry_model_metrics;

typedef struct spry_metrics {
    pthread_mutex_t lock;
    spry_model_metrics models[SPRY_METRICS_MODELS];
    size_t n_models;
} spry_metrics;

void spry_metrics_init(spry_metrics *metrics);
void spry_metrics_deinit(spry_metrics *metrics);

/* Adds what guessing came to in one answer. */
void spry_model_counts_drafts(spry_model_counts *counts, const spry_draft_report *drafts);

/* Adds a request's counters to its model's. */
void spry_metrics_add(spry_metrics *metrics, const char *model, const spry_model_counts *counts);

/* The model moved: counts pieces of text, and looks at KV memory unless that was done a moment ago, or `closely`. Only
 * on the thread that owns the engine. */
void spry_metrics_look(spry_metrics *metrics, const char *model, spry_engine *engine, uint32_t pieces, bool closely);

/* Pieces of text in about the last second. */
double spry_metrics_speed(const spry_model_metrics *model, uint64_t now_ns);

/* A copy of a model's figures; false when nothing is known of it. */
bool spry_metrics_find(spry_metrics *metrics, const char *model, spry_model_metrics *out);

/* Prometheus' text of all counters and histograms. */
void spry_metrics_print(spry_metrics *metrics, spry_buffer *out);

/* The two lines before the values of a metric: "counter", "gauge" or "histogram". */
void spry_metrics_head(spry_buffer *out, const char *name, const char *help, const char *type);

/* A name as the value of a label. */
void spry_metrics_label(spry_buffer *out, const char *name);

#endif
