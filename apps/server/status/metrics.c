/* A table of what is printed; the figures themselves are plain fields. */
#include "server/status/metrics.h"

#include <stddef.h>
#include <stdio.h>

#include "platform/clock.h"

enum { LOOK_NS = 250000000, SLOT_NS = 1000000000 / SPRY_METRICS_SLOTS };

static const double limits[SPRY_METRICS_BUCKETS] = {0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2,
                                                    0.5,   1,     2,     5,    10,   30,   60};

void spry_histogram_add(spry_histogram *h, double seconds)
{
    size_t bucket = 0;
    while (bucket < SPRY_METRICS_BUCKETS && seconds > limits[bucket])
        bucket++;
    h->buckets[bucket]++;
    h->count++;
    h->sum += seconds;
}

void spry_histogram_merge(spry_histogram *into, const spry_histogram *from)
{
    for (size_t i = 0; i < SPRY_COUNT(into->buckets); i++)
        into->buckets[i] += from->buckets[i];
    into->count += from->count;
    into->sum += from->sum;
}

void spry_metrics_init(spry_metrics *m)
{
    pthread_mutex_init(&m->lock, NULL);
    m->n_models = 0;
}

void spry_metrics_deinit(spry_metrics *m)
{
    pthread_mutex_destroy(&m->lock);
}

/* Made when it is not there; NULL when the table is full. Under the lock. */
static spry_model_metrics *model_of(spry_metrics *m, const char *name, bool make)
{
    for (size_t i = 0; i < m->n_models; i++)
        if (strncmp(m->models[i].name, name, SPRY_METRICS_NAME - 1) == 0)
            return &m->models[i];
    if (!make || m->n_models == SPRY_METRICS_MODELS)
        return NULL;
    spry_model_metrics *model = &m->models[m->n_models++];
    *model = (spry_model_metrics){0};
    snprintf(model->name, sizeof model->name, "%s", name);
    return model;
}

/* ---- the counters ------------------------------------------------------------------------------------------------ */

#define COUNT(field) offsetof(spry_model_counts, field), sizeof(((spry_model_counts *)0)->field) / sizeof(uint64_t)

/* A counter with several numbers has a label, whose value is the number's place, counted from `first`. */
static const struct {
    const char *name, *help;
    size_t offset, count;
    const char *label;
    unsigned first;
} counters[] = {
    {"requests_total", "Requests answered, or refused by the model", COUNT(requests), NULL, 0},
    {"requests_failed_total", "Of those, refused or failed", COUNT(failed), NULL, 0},
    {"requests_cancelled_total", "Of those, left by their client", COUNT(cancelled), NULL, 0},
    {"prompt_tokens_total", "Tokens of prompts", COUNT(prompt_tokens), NULL, 0},
    {"prompt_cached_tokens_total", "Of those, not computed again", COUNT(cached_tokens), NULL, 0},
    {"prompt_span_tokens_total", "Of those, in fragments", COUNT(span_tokens), NULL, 0},
    {"generated_tokens_total", "Tokens of answers", COUNT(generated_tokens), NULL, 0},
    {"drafted_tokens_total", "Tokens guessed ahead", COUNT(drafted_tokens), NULL, 0},
    {"accepted_tokens_total", "Of those, right", COUNT(accepted_tokens), NULL, 0},
    {"draft_tried_total", "Guesses that were looked at, all before them being right, by place", COUNT(tried_at),
     "position", 1},
    {"draft_accepted_total", "Of those, right", COUNT(accepted_at), "position", 1},
    {"draft_steps_total", "Steps of answers, by tokens guessed", COUNT(draft_lengths), "length", 0},
    {"draft_refused_p50_total", "Answers with guesses, by the median of tokens a step took back", COUNT(refused_p50),
     "tokens", 0},
    {"draft_refused_p95_total", "The same, by the 95th percentile", COUNT(refused_p95), "tokens", 0},
};

static const struct {
    const char *name, *help;
    size_t offset;
} histograms[] = {
    {"time_to_first_token_seconds", "From the request to the first text", offsetof(spry_model_counts, first_token)},
    {"inter_token_seconds", "Between two pieces of text", offsetof(spry_model_counts, between_tokens)},
    {"queue_seconds", "Until an answer began", offsetof(spry_model_counts, queue)},
};

/* The numbers of a counter. */
static uint64_t *counter_of(spry_model_counts *counts, size_t offset)
{
    return (uint64_t *)(void *)((char *)counts + offset);
}

static spry_histogram *histogram_of(spry_model_counts *counts, size_t offset)
{
    return (spry_histogram *)(void *)((char *)counts + offset);
}

void spry_model_counts_drafts(spry_model_counts *counts, const spry_draft_report *drafts)
{
    counts->drafted_tokens += drafts->drafted;
    counts->accepted_tokens += drafts->accepted;
    for (size_t i = 0; i < SPRY_DRAFT_MOST; i++) {
        counts->tried_at[i] += drafts->tried_at[i];
        counts->accepted_at[i] += drafts->accepted_at[i];
    }
    for (size_t i = 0; i <= SPRY_DRAFT_MOST; i++)
        counts->draft_lengths[i] += drafts->lengths[i];
    if (drafts->steps > drafts->lengths[0]) {
        counts->refused_p50[drafts->refused_p50]++;
        counts->refused_p95[drafts->refused_p95]++;
    }
}

void spry_metrics_add(spry_metrics *m, const char *name, const spry_model_counts *given)
{
    spry_model_counts counts = *given;
    pthread_mutex_lock(&m->lock);
    spry_model_metrics *model = model_of(m, name, true);
    for (size_t i = 0; model && i < SPRY_COUNT(counters); i++)
        for (size_t k = 0; k < counters[i].count; k++)
            counter_of(&model->counts, counters[i].offset)[k] += counter_of(&counts, counters[i].offset)[k];
    for (size_t i = 0; model && i < SPRY_COUNT(histograms); i++)
        spry_histogram_merge(histogram_of(&model->counts, histograms[i].offset),
                             histogram_of(&counts, histograms[i].offset));
    pthread_mutex_unlock(&m->lock);
}

/* Slots that have passed without a word are empty. */
static void count_pieces(spry_model_metrics *model, uint32_t pieces, uint64_t now_ns)
{
    uint64_t slot = now_ns / SLOT_NS;
    for (size_t i = 0; i < SPRY_METRICS_SLOTS && model->slot < slot; i++)
        model->pieces[++model->slot % SPRY_METRICS_SLOTS] = 0;
    model->slot = slot;
    model->pieces[slot % SPRY_METRICS_SLOTS] += pieces;
}

double spry_metrics_speed(const spry_model_metrics *model, uint64_t now_ns)
{
    double sum = 0;
    for (uint64_t i = 0; i < SPRY_METRICS_SLOTS; i++)
        if (model->slot + SPRY_METRICS_SLOTS > now_ns / SLOT_NS + i && model->slot >= i)
            sum += model->pieces[(model->slot - i) % SPRY_METRICS_SLOTS];
    return sum;
}

void spry_metrics_look(spry_metrics *m, const char *name, spry_engine *engine, uint32_t pieces, bool closely)
{
    uint64_t now = spry_clock_ns();
    pthread_mutex_lock(&m->lock);
    spry_model_metrics *model = model_of(m, name, true);
    if (model)
        count_pieces(model, pieces, now);
    if (model && (closely || now - model->kv_ns >= LOOK_NS)) {
        spry_engine_kv_figures(engine, &model->kv);
        model->kv_ns = now;
    }
    pthread_mutex_unlock(&m->lock);
}

bool spry_metrics_find(spry_metrics *m, const char *name, spry_model_metrics *out)
{
    pthread_mutex_lock(&m->lock);
    const spry_model_metrics *model = model_of(m, name, false);
    if (model)
        *out = *model;
    pthread_mutex_unlock(&m->lock);
    return model != NULL;
}

/* ---- printing ---------------------------------------------------------------------------------------------------- */

void spry_metrics_label(spry_buffer *out, const char *name)
{
    for (; *name; name++) {
        if (*name == '"' || *name == '\\')
            spry_buffer_append(out, "\\", 1);
        if (*name == '\n')
            spry_buffer_text(out, "\\n");
        else
            spry_buffer_append(out, name, 1);
    }
}

static void print_histogram(spry_buffer *out, const char *name, const char *model, const spry_histogram *h)
{
    uint64_t below = 0;
    for (size_t i = 0; i <= SPRY_METRICS_BUCKETS; i++) {
        below += h->buckets[i];
        spry_buffer_format(out, "spry_%s_bucket{model=\"", name);
        spry_metrics_label(out, model);
        if (i < SPRY_METRICS_BUCKETS)
            spry_buffer_format(out, "\",le=\"%g\"} %llu\n", limits[i], (unsigned long long)below);
        else
            spry_buffer_format(out, "\",le=\"+Inf\"} %llu\n", (unsigned long long)below);
    }
    spry_buffer_format(out, "spry_%s_sum{model=\"", name);
    spry_metrics_label(out, model);
    spry_buffer_format(out, "\"} %.9g\nspry_%s_count{model=\"", h->sum, name);
    spry_metrics_label(out, model);
    spry_buffer_format(out, "\"} %llu\n", (unsigned long long)h->count);
}

static void print_counter(spry_buffer *out, size_t which, spry_model_metrics *model)
{
    const uint64_t *numbers = counter_of(&model->counts, counters[which].offset);
    for (size_t i = 0; i < counters[which].count; i++) {
        spry_buffer_format(out, "spry_%s{model=\"", counters[which].name);
        spry_metrics_label(out, model->name);
        if (counters[which].label)
            spry_buffer_format(out, "\",%s=\"%zu", counters[which].label, counters[which].first + i);
        spry_buffer_format(out, "\"} %llu\n", (unsigned long long)numbers[i]);
    }
}

void spry_metrics_head(spry_buffer *out, const char *name, const char *help, const char *type)
{
    spry_buffer_format(out, "# HELP spry_%s %s\n# TYPE spry_%s %s\n", name, help, name, type);
}

void spry_metrics_print(spry_metrics *m, spry_buffer *out)
{
    pthread_mutex_lock(&m->lock);
    for (size_t i = 0; i < SPRY_COUNT(counters); i++) {
        spry_metrics_head(out, counters[i].name, counters[i].help, "counter");
        for (size_t k = 0; k < m->n_models; k++)
            print_counter(out, i, &m->models[k]);
    }
    for (size_t i = 0; i < SPRY_COUNT(histograms); i++) {
        spry_metrics_head(out, histograms[i].name, histograms[i].help, "histogram");
        for (size_t k = 0; k < m->n_models; k++)
            print_histogram(out, histograms[i].name, m->models[k].name,
                            histogram_of(&m->models[k].counts, histograms[i].offset));
    }
    pthread_mutex_unlock(&m->lock);
}
