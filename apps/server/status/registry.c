/* Counters of models, requests, and the machine's state. */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/compiler.h"
#include "platform/clock.h"
#include "server/status/status.h"

const double spry_histogram_limits[SPRY_HISTOGRAM_BUCKETS] = {0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2,
                                                              0.5,   1,     2,     5,    10,   30,   60};

void spry_histogram_add(spry_histogram *h, double seconds)
{
    size_t bucket = 0;
    while (bucket < SPRY_HISTOGRAM_BUCKETS && seconds > spry_histogram_limits[bucket])
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

/* ---- counters of a model ----------------------------------------------------------------------------------------- */

#define VALUES(field) offsetof(spry_model_counts, field), sizeof(((spry_model_counts *)0)->field) / sizeof(uint64_t)

const spry_counter_field spry_counter_fields[SPRY_COUNTER_FIELDS] = {
    {"requests_total", "Requests that reached the model, also those it refused", VALUES(requests), NULL, 0},
    {"requests_failed_total", "Requests that failed or were refused", VALUES(failed), NULL, 0},
    {"requests_cancelled_total", "Requests whose client disconnected", VALUES(cancelled), NULL, 0},
    {"prompt_tokens_total", "Prompt tokens", VALUES(prompt_tokens), NULL, 0},
    {"prompt_cached_tokens_total", "Prompt tokens found in the cache", VALUES(cached_tokens), NULL, 0},
    {"prompt_span_tokens_total", "Prompt tokens in fragments", VALUES(span_tokens), NULL, 0},
    {"pictures_total", "Pictures in prompts", VALUES(pictures), NULL, 0},
    {"picture_tokens_total", "Prompt tokens that are pictures", VALUES(picture_tokens), NULL, 0},
    {"picture_microseconds_total", "Time of decoding, resizing and encoding pictures", VALUES(picture_us), NULL, 0},
    {"generated_tokens_total", "Generated tokens", VALUES(generated_tokens), NULL, 0},
    {"first_call_tokens_total", "Tokens of answers until their first tool call was complete", VALUES(first_call_tokens),
     NULL, 0},
    {"prompt_microseconds_total", "Time of computing prompts", VALUES(prompt_us), NULL, 0},
    {"decode_microseconds_total", "Time of decoding answers", VALUES(decode_us), NULL, 0},
    {"drafted_tokens_total", "Draft tokens", VALUES(drafted_tokens), NULL, 0},
    {"accepted_tokens_total", "Accepted draft tokens", VALUES(accepted_tokens), NULL, 0},
    {"draft_tried_total",
     "Draft tokens that were verified, every earlier one of their step being accepted, by position", VALUES(tried_at),
     "position", 1},
    {"draft_accepted_total", "Accepted draft tokens, by position in their step", VALUES(accepted_at), "position", 1},
    {"draft_steps_total", "Decode steps, by number of draft tokens", VALUES(draft_lengths), "length", 0},
    {"draft_refused_p50_total", "Answers with drafts, by the median of refused tokens a step", VALUES(refused_p50),
     "tokens", 0},
    {"draft_refused_p95_total", "Answers with drafts, by the 95th percentile of refused tokens a step",
     VALUES(refused_p95), "tokens", 0},
};

const spry_histogram_field spry_histogram_fields[SPRY_HISTOGRAM_FIELDS] = {
    {"time_to_first_token_seconds", "Time from a request to its first text", offsetof(spry_model_counts, first_token)},
    {"inter_token_seconds", "Time between two pieces of text", offsetof(spry_model_counts, between_tokens)},
    {"queue_seconds", "Time an answer waited in the queue", offsetof(spry_model_counts, queue)},
    {"time_to_first_call_seconds", "Time from a request to its first complete tool call",
     offsetof(spry_model_counts, first_call)},
};

const uint64_t *spry_model_counts_values(const spry_model_counts *counts, const spry_counter_field *field)
{
    return (const uint64_t *)(const void *)((const char *)counts + field->offset);
}

const spry_histogram *spry_model_counts_histogram(const spry_model_counts *counts, const spry_histogram_field *field)
{
    return (const spry_histogram *)(const void *)((const char *)counts + field->offset);
}

void spry_model_counts_add_drafts(spry_model_counts *counts, const spry_draft_report *drafts)
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

uint64_t spry_model_counts_drafts(const spry_model_counts *counts)
{
    uint64_t n = 0;
    for (size_t i = 1; i <= SPRY_DRAFT_MOST; i++)
        n += counts->draft_lengths[i];
    return n;
}

void spry_model_counts_merge(spry_model_counts *into, const spry_model_counts *from)
{
    into->longest = from->longest > into->longest ? from->longest : into->longest;
    for (size_t i = 0; i < SPRY_COUNTER_FIELDS; i++) {
        const spry_counter_field *field = &spry_counter_fields[i];
        uint64_t *sums = (uint64_t *)(void *)((char *)into + field->offset);
        for (size_t k = 0; k < field->n_values; k++)
            sums[k] += spry_model_counts_values(from, field)[k];
    }
    for (size_t i = 0; i < SPRY_HISTOGRAM_FIELDS; i++) {
        const spry_histogram_field *field = &spry_histogram_fields[i];
        spry_histogram_merge((spry_histogram *)(void *)((char *)into + field->offset),
                             spry_model_counts_histogram(from, field));
    }
}

/* ---- requests and models ----------------------------------------------------------------------------------------- */

enum { KV_SAMPLE_NS = 250000000, SLOT_NS = 1000000000 / SPRY_REGISTRY_SLOTS, ENERGY_NS = 1000000000 };

void spry_registry_init(spry_registry *r)
{
    pthread_mutex_init(&r->lock, NULL);
    pthread_mutex_init(&r->energy_lock, NULL);
    r->n_models = 0;
    r->first = NULL;
    r->end = &r->first;
    r->n_ended = 0;
    r->energy_ns = 0;
}

void spry_registry_deinit(spry_registry *r)
{
    pthread_mutex_destroy(&r->energy_lock);
    pthread_mutex_destroy(&r->lock);
}

/* ---- requests ---------------------------------------------------------------------------------------------------- */

const char *spry_phase_name(int phase)
{
    static const char *const names[] = {"queue", "prefill", "decode", "done", "cancelled", "failed"};
    return names[phase];
}

void spry_registry_begin(spry_registry *r, spry_request_status *request)
{
    request->submitted_ns = spry_clock_ns();
    pthread_mutex_lock(&r->lock);
    request->next = NULL;
    request->link = r->end;
    *r->end = request;
    r->end = &request->next;
    pthread_mutex_unlock(&r->lock);
}

void spry_registry_end(spry_registry *r, spry_request_status *request, spry_phase how, const spry_result *result,
                       const double parts_ms[SPRY_PART_COUNT])
{
    pthread_mutex_lock(&r->lock);
    request->ended_ns = spry_clock_ns();
    atomic_store(&request->phase, how);
    if (result)
        request->result = *result;
    memmove(request->parts_ms, parts_ms, sizeof request->parts_ms);
    *request->link = request->next;
    if (request->next)
        request->next->link = request->link;
    else
        r->end = request->link;
    memcpy(&r->ended[r->n_ended++ % SPRY_REGISTRY_ENDED], request, sizeof *request);
    pthread_mutex_unlock(&r->lock);
}

void spry_registry_requests(spry_registry *r, const char *key, uint64_t since_ns,
                            void (*visit)(void *context, const spry_request_status *request), void *context)
{
    pthread_mutex_lock(&r->lock);
    size_t kept = r->n_ended < SPRY_REGISTRY_ENDED ? r->n_ended : SPRY_REGISTRY_ENDED;
    for (size_t i = r->n_ended - kept; i < r->n_ended; i++) {
        const spry_request_status *request = &r->ended[i % SPRY_REGISTRY_ENDED];
        if (request->key == key && request->ended_ns >= since_ns)
            visit(context, request);
    }
    for (const spry_request_status *request = r->first; request; request = request->next)
        if (request->key == key)
            visit(context, request);
    pthread_mutex_unlock(&r->lock);
}

/* Under the lock. */
static void count_requests(const spry_registry *r, const char *model, size_t *waiting, size_t *running)
{
    *waiting = *running = 0;
    for (const spry_request_status *request = r->first; request; request = request->next)
        if (strncmp(model, request->model, SPRY_REGISTRY_NAME - 1) == 0)
            ++*(atomic_load(&request->phase) == SPRY_PHASE_QUEUE ? waiting : running);
}

void spry_registry_load(spry_registry *r, const char *model, size_t *waiting, size_t *running)
{
    pthread_mutex_lock(&r->lock);
    count_requests(r, model, waiting, running);
    pthread_mutex_unlock(&r->lock);
}

/* ---- models ------------------------------------------------------------------------------------------------------ */

/* NULL when the model is not known. Under the lock. */
static spry_model_record *find_record(spry_registry *r, const char *name)
{
    for (size_t i = 0; i < r->n_models; i++)
        if (strncmp(r->models[i].name, name, SPRY_REGISTRY_NAME - 1) == 0)
            return &r->models[i];
    return NULL;
}

/* Makes the record of a model that is not known; NULL when the table is full. Under the lock. */
static spry_model_record *get_record(spry_registry *r, const char *name)
{
    spry_model_record *record = find_record(r, name);
    if (record || r->n_models == SPRY_REGISTRY_MODELS)
        return record;
    record = &r->models[r->n_models++];
    *record = (spry_model_record){0};
    snprintf(record->name, sizeof record->name, "%s", name);
    return record;
}

void spry_registry_add_counts(spry_registry *r, const char *model, const spry_model_counts *counts)
{
    pthread_mutex_lock(&r->lock);
    spry_model_record *record = get_record(r, model);
    if (record)
        spry_model_counts_merge(&record->counts, counts);
    pthread_mutex_unlock(&r->lock);
}

/* Slots that have passed without text are empty. */
static void add_pieces(spry_model_record *record, uint32_t pieces, uint64_t now_ns)
{
    uint64_t slot = now_ns / SLOT_NS;
    for (size_t i = 0; i < SPRY_REGISTRY_SLOTS && record->slot < slot; i++)
        record->pieces[++record->slot % SPRY_REGISTRY_SLOTS] = 0;
    record->slot = slot;
    record->pieces[slot % SPRY_REGISTRY_SLOTS] += pieces;
}

static double pieces_per_second(const spry_model_record *record, uint64_t now_ns)
{
    double sum = 0;
    for (uint64_t i = 0; i < SPRY_REGISTRY_SLOTS; i++)
        if (record->slot + SPRY_REGISTRY_SLOTS > now_ns / SLOT_NS + i && record->slot >= i)
            sum += record->pieces[(record->slot - i) % SPRY_REGISTRY_SLOTS];
    return sum;
}

void spry_registry_sample(spry_registry *r, const char *model, spry_engine *engine, uint32_t pieces, bool force)
{
    spry_kv_figures kv;
    uint64_t now = spry_clock_ns();
    pthread_mutex_lock(&r->lock);
    spry_model_record *record = get_record(r, model);
    if (record)
        add_pieces(record, pieces, now);
    bool due = record && (force || now - record->kv_ns >= KV_SAMPLE_NS);
    if (due)
        record->kv_ns = now;
    pthread_mutex_unlock(&r->lock);
    if (!due)
        return;
    /* Waits for the engine, whose callbacks wait for the registry: the lock must not be held. */
    spry_engine_kv_figures(engine, &kv);
    pthread_mutex_lock(&r->lock);
    if (now >= record->kv_ns) /* no later sample */
        record->kv = kv;
    pthread_mutex_unlock(&r->lock);
}

/* ---- snapshots --------------------------------------------------------------------------------------------------- */

static bool add_pool_model(void *context, const spry_pool_info *info)
{
    spry_model_status *model = spry_buffer_extend(context, sizeof *model);
    if (model)
        *model = (spry_model_status){.pool = *info, .in_pool = true};
    return model != NULL;
}

/* Models that have counters, but are no longer in the pool. Under the lock. */
static void add_former_models(spry_buffer *out, const spry_registry *r)
{
    size_t n_pool = out->size / sizeof(spry_model_status);
    for (size_t i = 0; i < r->n_models; i++) {
        const spry_model_status *models = (const spry_model_status *)(const void *)out->data;
        size_t k = 0;
        while (k < n_pool && strncmp(models[k].pool.name, r->models[i].name, SPRY_REGISTRY_NAME - 1) != 0)
            k++;
        spry_model_status *model = k == n_pool ? spry_buffer_extend(out, sizeof *model) : NULL;
        if (!model)
            continue;
        *model = (spry_model_status){.in_pool = false};
        memcpy(model->pool.name, r->models[i].name, sizeof model->pool.name);
    }
}

/* Under the lock. */
static void fill_status(spry_registry *r, spry_model_status *model, uint64_t now_ns)
{
    const spry_model_record *record = find_record(r, model->pool.name);
    count_requests(r, model->pool.name, &model->waiting, &model->running);
    model->has_counts = record != NULL;
    if (!record)
        return;
    model->counts = record->counts;
    if (model->pool.state == SPRY_POOL_LOADED) {
        model->kv = model->running ? record->kv : model->kv;
        model->tokens_per_second = pieces_per_second(record, now_ns);
    }
}

/* KV memory of models that compute nothing: it changes without requests, when memory is returned to the system. Those
 * that compute are sampled as they make progress, which costs no waiting. */
static void sample_idle(spry_registry *r, spry_buffer *out, spry_model_pool *pool)
{
    spry_model_status *models = (spry_model_status *)(void *)out->data;
    for (size_t i = 0; i < out->size / sizeof *models; i++) {
        size_t waiting, running;
        spry_registry_load(r, models[i].pool.name, &waiting, &running);
        if (!running && models[i].pool.state == SPRY_POOL_LOADED)
            spry_model_pool_kv(pool, models[i].pool.name, &models[i].kv);
    }
}

bool spry_registry_models(spry_registry *r, spry_model_status **models, size_t *count, spry_model_pool *pool)
{
    spry_buffer all;
    spry_buffer_init(&all, SIZE_MAX / 2);
    spry_model_pool_each(pool, add_pool_model, &all);
    sample_idle(r, &all, pool);
    pthread_mutex_lock(&r->lock);
    add_former_models(&all, r);
    *models = (spry_model_status *)(void *)all.data;
    *count = all.size / sizeof **models;
    for (size_t i = 0; i < *count; i++)
        fill_status(r, &(*models)[i], spry_clock_ns());
    pthread_mutex_unlock(&r->lock);
    if (!all.failed)
        return true;
    spry_buffer_deinit(&all);
    return false;
}

/* ---- energy ------------------------------------------------------------------------------------------------------ */

void spry_registry_energy(spry_registry *r, spry_joules *used, spry_energy *meter)
{
    pthread_mutex_lock(&r->energy_lock);
    uint64_t now = spry_clock_ns();
    if (!r->energy_ns || now - r->energy_ns >= ENERGY_NS) {
        spry_energy_read(meter, &r->energy);
        r->energy_ns = now;
    }
    *used = r->energy;
    pthread_mutex_unlock(&r->energy_lock);
}

/* ---- the machine ------------------------------------------------------------------------------------------------- */

static const uint64_t read_every_ns = 1000000000, turn_every_ns = 30000000000;

void spry_machine_watch_init(spry_machine_watch *w)
{
    pthread_mutex_init(&w->lock, NULL);
    spry_machine_state_read(&w->now, "");
    w->earlier = w->before = w->now;
    w->now_ns = w->turn_ns = spry_clock_ns();
}

void spry_machine_watch_deinit(spry_machine_watch *w)
{
    pthread_mutex_destroy(&w->lock);
}

void spry_machine_watch_read(spry_machine_watch *w, spry_machine_state *before, spry_machine_state *now)
{
    pthread_mutex_lock(&w->lock);
    uint64_t clock = spry_clock_ns();
    if (clock - w->now_ns >= read_every_ns) {
        spry_machine_state_read(&w->now, "");
        w->now_ns = clock;
    }
    if (clock - w->turn_ns >= turn_every_ns) {
        w->before = w->earlier;
        w->earlier = w->now;
        w->turn_ns = clock;
    }
    *before = w->before;
    *now = w->now;
    pthread_mutex_unlock(&w->lock);
}
