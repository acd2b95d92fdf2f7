/* The CPU device's table of functions, implemented with the pass and with pages in host memory. */
#include "device/cpu/cpu_device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "device/cpu/pass.h"
#include "device/cpu/pass_state.h"
#include "kv/kv_states.h"
#include "platform/clock.h"
#include "platform/memory.h"
#include "sampling/sampler.h"

/* ---- pages in host memory ---------------------------------------------------------------------------------------- */

spry_status spry_host_pages_init(spry_host_pages *pages, const spry_kv_pool *pool, spry_error *error)
{
    size_t bytes = pool->page_bytes * pool->n_pages; /* the pool has checked that this does not overflow */
    *pages =
        (spry_host_pages){.memory = spry_memory_map(bytes), .page_bytes = pool->page_bytes, .n_pages = pool->n_pages};
    return pages->memory ? SPRY_OK : spry_fail_memory(error, "KV pages", bytes);
}

void spry_host_pages_deinit(spry_host_pages *pages)
{
    if (pages->memory)
        spry_memory_unmap(pages->memory, pages->page_bytes * pages->n_pages);
    *pages = (spry_host_pages){0};
}

void spry_host_pages_copy(spry_host_pages *pages, uint32_t to, uint32_t from)
{
    pages->changes++;
    memcpy(spry_host_page(pages, to), spry_host_page(pages, from), pages->page_bytes);
}

static void copy_page(void *self, uint32_t to, uint32_t from)
{
    spry_host_pages_copy(self, to, from);
}

static const void *lend_page(void *self, uint32_t page, void *room)
{
    (void)room;
    return spry_host_page(self, page);
}

static void *lend_for_writing(void *self, uint32_t page)
{
    ((spry_host_pages *)self)->changes++;
    return spry_host_page(self, page);
}

static bool written(void *self, uint32_t page, bool whole)
{
    (void)self;
    (void)page;
    (void)whole;
    return true;
}

static bool finished(void *self)
{
    (void)self;
    return true;
}

void spry_host_pages_release(spry_host_pages *pages, uint32_t first, size_t count)
{
    pages->changes++;
    spry_memory_drop(spry_host_page(pages, first), count * pages->page_bytes);
}

static void release_pages(void *self, uint32_t first, size_t count)
{
    spry_host_pages_release(self, first, count);
}

spry_kv_mover spry_host_pages_mover(spry_host_pages *pages)
{
    return (spry_kv_mover){.self = pages,
                           .copy = copy_page,
                           .read = lend_page,
                           .max_writes = SIZE_MAX,
                           .write_begin = lend_for_writing,
                           .write_end = written,
                           .write_finish = finished,
                           .release = release_pages};
}

/* ---- the device -------------------------------------------------------------------------------------------------- */

/* ---- steps ------------------------------------------------------------------------------------------------------- */

static void draw_one(spry_cpu_device *cpu, spry_draw *d)
{
    const float *logits = spry_pass_logits(cpu->pass, d->row);
    size_t n_vocab = cpu->device.config->n_vocab;
    d->n_top = 0;
    d->status = spry_sample(&cpu->candidates, &d->token, d->settings, logits, d->history, d->n_history, d->mask, d->u,
                            &d->error);
    if (d->status || !(d->wants_logprob || d->max_top))
        return;
    d->logprob = spry_logprob(logits, n_vocab, d->token);
    if (d->max_top)
        d->n_top = spry_logprob_top(d->top, d->max_top, logits, n_vocab, (double)logits[d->token] - d->logprob);
}

static spry_status draw(spry_device *device, spry_draw *const *draws, size_t n, spry_error *error)
{
    (void)error;
    for (size_t i = 0; i < n; i++)
        draw_one((spry_cpu_device *)device, draws[i]);
    return SPRY_OK;
}

static spry_status submit(spry_device *device, const spry_device_step *step, spry_error *error)
{
    spry_cpu_device *cpu = (spry_cpu_device *)device;
    cpu->pass->inputs = step->inputs;
    spry_pass_step(cpu->pass, step->segments, step->n_segments);
    device->placed_weights = cpu->pass->packed;
    device->attention_ns = spry_pass_attention_ns(cpu->pass);
    if (!step->n_draws)
        return SPRY_OK;
    uint64_t start = spry_clock_ns();
    spry_status status = draw(device, step->draws, step->n_draws, error);
    device->sampling_ns = spry_clock_ns() - start;
    return status;
}

static spry_status wait_for_step(spry_device *device, spry_error *error)
{
    (void)device;
    (void)error;
    return SPRY_OK;
}

static spry_status logits(spry_device *device, const float **out, size_t first, size_t count, spry_error *error)
{
    (void)count;
    (void)error;
    *out = spry_pass_logits(((const spry_cpu_device *)device)->pass, first);
    return SPRY_OK;
}

static spry_status hidden(spry_device *device, const float **out, size_t first, size_t count, spry_error *error)
{
    (void)count;
    (void)error;
    *out = spry_pass_hidden(((const spry_cpu_device *)device)->pass, first);
    return SPRY_OK;
}

static spry_kv_mover mover(spry_device *device)
{
    return spry_host_pages_mover(&((spry_cpu_device *)device)->pages);
}

/* ---- figures ----------------------------------------------------------------------------------------------------- */

static spry_kv_mover state_mover(spry_device *device)
{
    return spry_host_pages_mover(&((spry_cpu_device *)device)->states);
}

static void set_trace(spry_device *device, spry_trace *trace, uint32_t lane)
{
    spry_pass *pass = ((spry_cpu_device *)device)->pass;
    pass->trace = trace;
    pass->lane = lane;
}

static void set_watch(spry_device *device, spry_op_watch *watch)
{
    ((spry_cpu_device *)device)->pass->watch = watch;
}

static void set_threads(spry_device *device, spry_threads *threads)
{
    ((spry_cpu_device *)device)->pass->threads = threads;
}

void spry_cpu_device_regions(const spry_cpu_device *cpu, spry_cpu_region regions[SPRY_CPU_REGIONS])
{
    regions[0] = (spry_cpu_region){cpu->placed.memory, cpu->placed.bytes};
    regions[1] = (spry_cpu_region){cpu->pages.memory, cpu->pages.page_bytes * cpu->pages.n_pages};
    regions[2] = (spry_cpu_region){cpu->pass->memory, cpu->pass->memory_bytes};
    regions[3] = (spry_cpu_region){cpu->states.memory, cpu->states.page_bytes * cpu->states.n_pages};
}

static bool measure(spry_device *device, spry_device_memory *memory)
{
    spry_cpu_region regions[SPRY_CPU_REGIONS];
    size_t experts = 0, states = 0;
    size_t *const parts[SPRY_CPU_REGIONS] = {&memory->weights, &memory->kv, &memory->scratch, &states};
    const spry_expert_store *store = &((const spry_cpu_device *)device)->experts;
    bool known = !store->memory || spry_memory_resident(&experts, store->memory, store->bytes);
    spry_cpu_device_regions((const spry_cpu_device *)device, regions);
    for (size_t i = 0; i < SPRY_CPU_REGIONS; i++)
        known = (!regions[i].memory || spry_memory_resident(parts[i], regions[i].memory, regions[i].bytes)) && known;
    memory->weights += experts;
    memory->kv += states;
    return known;
}

static bool measure_pages(spry_device *device, size_t *bytes, const uint32_t *pages, size_t n_pages)
{
    const spry_host_pages *host = &((const spry_cpu_device *)device)->pages;
    bool known = true;
    for (size_t i = 0; i < n_pages; i++) {
        size_t resident = 0;
        known = spry_memory_resident(&resident, spry_host_page(host, pages[i]), host->page_bytes) && known;
        *bytes += resident;
    }
    return known;
}

/* ---- estimates --------------------------------------------------------------------------------------------------- */

/* Counts a page that is filled in part: keys are spread over all of their area, values are stored token after token
 * (kernels/kv_layout.h). */
static void add_partial_page(spry_memory_tally *tally, const spry_kv_pool *pool, size_t begin, size_t tokens)
{
    const spry_kv_shape *shape = &pool->shape;
    for (size_t i = 0; i < shape->n_layers + shape->other.n_layers; i++) {
        bool other = i >= shape->n_layers;
        spry_kv_place place = spry_kv_place_of(pool, other, other ? i - shape->n_layers : i);
        spry_memory_tally_add(tally, begin + place.keys, begin + place.values);
        for (size_t head = 0; !shape->keys_only && head < place.n_heads; head++) {
            size_t at = begin + place.values + head * place.head_bytes;
            spry_memory_tally_add(tally, at, at + place.token_bytes * tokens);
        }
    }
}

/* The number of pages touched; pages are allocated in order. */
static size_t touched_pages(const spry_kv_pool *pool, size_t tokens, size_t cached_pages)
{
    size_t whole = tokens / SPRY_PAGE_TOKENS, rest = tokens % SPRY_PAGE_TOKENS;
    spry_memory_tally tally;
    whole += cached_pages;
    spry_memory_tally_init(&tally, pool->page_bytes * pool->n_pages);
    spry_memory_tally_add(&tally, 0, whole * pool->page_bytes);
    if (rest && whole < pool->n_pages)
        add_partial_page(&tally, pool, whole * pool->page_bytes, rest);
    return tally.bytes;
}

static bool estimate(spry_device_memory *memory, const spry_device_setup *s, const spry_device_use *use)
{
    const spry_kv_shape *shape = &s->pool->shape;
    if (!spry_checked_mul(&memory->kv, s->pool->page_bytes, s->pool->n_pages) ||
        !spry_checked_add(&memory->kv, memory->kv, spry_kv_states_bytes(shape)) ||
        !spry_weights_resident_bytes(&memory->weights, s->weights, s->config, s->ops, s->mapped, s->expert_bytes) ||
        !spry_expert_bytes(&memory->expert, &memory->experts, s->weights, s->config, s->ops))
        return false;
    /* rows that were quantised or copied exist only in memory, so experts cannot be read from a file again */
    if (!s->mapped || s->weights->quantized_bytes || s->weights->copied_bytes > memory->experts / 2)
        memory->expert = memory->experts = 0;
    if (!use)
        return spry_pass_bytes(&memory->scratch, s->config, &s->limits);
    size_t states = 2 + use->tokens / SPRY_KV_STATE_TOKENS; /* one in use, one at the end, some in between */
    memory->kv = touched_pages(s->pool, use->tokens, use->cached_pages) +
                 shape->state * (states < shape->n_states ? states : shape->n_states);
    return spry_pass_touched_bytes(&memory->scratch, s->config, &s->limits, use->rows, use->logits,
                                   spry_weights_rounded_acts(s->weights, s->config, s->ops));
}

/* ---- opening ----------------------------------------------------------------------------------------------------- */

static void close_device(spry_device *device)
{
    spry_cpu_device_deinit((spry_cpu_device *)device);
    free(device);
}

static const spry_device_ops ops = {.close = close_device,
                                    .submit = submit,
                                    .wait = wait_for_step,
                                    .draw = draw,
                                    .logits = logits,
                                    .hidden = hidden,
                                    .mover = mover,
                                    .state_mover = state_mover,
                                    .set_trace = set_trace,
                                    .set_watch = set_watch,
                                    .set_threads = set_threads,
                                    .measure = measure,
                                    .measure_pages = measure_pages};

spry_status spry_cpu_device_init(spry_cpu_device *cpu, const spry_device_setup *setup, bool all, spry_team *team,
                                 spry_error *error)
{
    *cpu = (spry_cpu_device){.device = {.ops = &ops,
                                        .config = setup->config,
                                        .limits = setup->limits,
                                        .pictures = !setup->config->arch->streams && !team,
                                        .two_way = true}};
    const spry_device *lender = setup->lender && setup->lender->ops == &ops ? setup->lender : NULL;
    spry_status status = spry_weights_place(&cpu->placed, setup, all,
                                            lender ? &((const spry_cpu_device *)lender)->placed.weights : NULL, error);
    if (!status && setup->expert_bytes && !all)
        status = spry_expert_store_init(&cpu->experts, cpu->placed.weights.layers, setup, setup->expert_bytes, error);
    if (!status)
        status = spry_host_pages_init(&cpu->pages, setup->pool, error);
    if (!status)
        status = setup->pool->states ? spry_host_pages_init(&cpu->states, &setup->pool->states->pool, error) : SPRY_OK;
    if (!status)
        status = spry_pass_create(&cpu->pass, setup, &cpu->placed.weights, &cpu->pages, &cpu->states, team, error);
    if (!status && cpu->experts.memory)
        cpu->pass->experts = &cpu->experts;
    if (!status)
        status = spry_candidates_init(&cpu->candidates, setup->ops, setup->config->n_vocab, error);
    if (status)
        spry_cpu_device_deinit(cpu);
    return status;
}

void spry_cpu_device_deinit(spry_cpu_device *cpu)
{
    spry_candidates_deinit(&cpu->candidates);
    spry_pass_destroy(cpu->pass);
    spry_host_pages_deinit(&cpu->pages);
    spry_host_pages_deinit(&cpu->states);
    spry_expert_store_deinit(&cpu->experts);
    spry_weights_unplace(&cpu->placed);
}

static spry_status open_device(spry_device **out, const char *piece, const spry_device_setup *setup, spry_error *error)
{
    *out = NULL;
    spry_status status = spry_device_only(&spry_device_kind_cpu, piece, error);
    if (status)
        return status;
    spry_cpu_device *cpu = malloc(sizeof *cpu);
    if (!cpu)
        return spry_fail_memory(error, "a device", sizeof *cpu);
    status = spry_cpu_device_init(cpu, setup, false, NULL, error);
    if (status)
        free(cpu);
    else
        *out = &cpu->device;
    return status;
}

static size_t total(const char *piece)
{
    (void)piece;
    return spry_memory_total();
}

static void identify(char *out, size_t size, const spry_device_setup *setup)
{
    snprintf(out, size, "%s revision %d", setup->ops->name, SPRY_KERNEL_REVISION);
}

const spry_device_kind spry_device_kind_cpu = {.name = "cpu",
                                               .features = SPRY_FEATURES_END - 1,
                                               .adapters = true,
                                               .taps = true,
                                               .towers = true,
                                               .nibbles = true,
                                               .total = total,
                                               .identify = identify,
                                               .open = open_device,
                                               .estimate = estimate,
                                               .open_whisper = spry_cpu_whisper_open};
