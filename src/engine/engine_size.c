/* Sizes that follow from a model and options: context, steps, KV pool; and the memory that each part of an engine
 * needs, measured on an open engine or estimated for a model that is not loaded. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/error.h"
#include "base/kv_types.h"
#include "base/number.h"
#include "device/split/split_device.h"
#include "engine/engine_state.h"
#include "engine/eyes.h"
#include "model/model.h"
#include "model/quantize.h"
#include "platform/memory.h"
#include "spry_tools.h"
#include "tokenizer/bpe.h"

enum {
    USUAL_CONTEXT = 8192, /* used where memory is short; also an encoder's default */
    CONTEXT_STEP = 1024,
    SPARE_SHARE = 16,
    MEMORY_SHARE = 8,
    LIMIT_SHARE = 4,
    MOST_KEPT_PAGES = 1 << 15,
    MAX_CHUNK = 1 << 16,
    MAX_THREADS = 1024,
    MAX_SESSIONS = 4096,
    STATES_PERCENT = 15, /* limit for saved recurrent states, as a share of the pages' bytes */
    SESSION_STATES = 2,  /* at least: a session's own, and a saved one */
    MAX_STATES = 512,
};
enum { DRAFT_ROWS = 4, MANY_LOGIT_ROWS = 64 };

/* "auto" is F16 until the sizes are known. */
static bool kv_type_is_open(const char *name)
{
    return strcmp(name, "auto") == 0;
}

static spry_status kv_type(spry_dtype *type, const char *name, spry_error *error)
{
    if (kv_type_is_open(name)) {
        *type = SPRY_F16;
        return SPRY_OK;
    }
#define KV_TYPE(lower, TYPE) {#lower, SPRY_##TYPE},
    static const struct {
        const char *name;
        spry_dtype type;
    } types[] = {SPRY_KV_TYPES_ALL(KV_TYPE)};
#undef KV_TYPE
#define KV_NAME(lower, TYPE) ", " #lower
    for (size_t i = 0; i < SPRY_COUNT(types); i++)
        if (strcasecmp(name, types[i].name) == 0) {
            *type = types[i].type;
            return SPRY_OK;
        }
    return spry_fail(error, SPRY_ERR_INPUT, "kv-type '%.40s' is not known; known are auto" SPRY_KV_TYPES_ALL(KV_NAME),
                     name);
#undef KV_NAME
}

static spry_status check_ranges(const spry_engine_options *o, spry_error *error)
{
    if (!o->sessions || o->sessions > MAX_SESSIONS)
        return spry_fail(error, SPRY_ERR_INPUT, "sessions is %u, outside 1 to %d", o->sessions, MAX_SESSIONS);
    if (o->chunk > MAX_CHUNK)
        return spry_fail(error, SPRY_ERR_INPUT, "chunk is %u, more than %d", o->chunk, MAX_CHUNK);
    if (o->kv_idle_share > 100)
        return spry_fail(error, SPRY_ERR_INPUT, "kv-idle-share is %u percent, more than 100", o->kv_idle_share);
    if (o->threads > MAX_THREADS)
        return spry_fail(error, SPRY_ERR_INPUT, "threads is %u, more than %d", o->threads, MAX_THREADS);
    return SPRY_OK;
}

/* 0: a whole prompt. */
static uint32_t asked_chunk(const spry_engine_options *o)
{
    return o->chunk ? o->chunk : MAX_CHUNK;
}

/* The context where none is asked for and memory is no limit. */
static uint32_t own_context(const spry_config *c)
{
    uint32_t own = c->n_context;
    /* Long rope uses other angles beyond its original context: use that only on request. */
    if (c->rope.long_factors && c->rope.original_context < own)
        own = c->rope.original_context;
    /* Encoders compute a text in one step, whose working memory is allocated at once. */
    return c->bidirectional && own > USUAL_CONTEXT ? USUAL_CONTEXT : own;
}

/* One for each session, and some for drafts. */
static uint32_t logit_rows(uint32_t sessions)
{
    uint32_t rows = SPRY_MAX_LOGIT_ROWS + DRAFT_ROWS * (sessions - 1);
    rows = rows < MANY_LOGIT_ROWS ? rows : MANY_LOGIT_ROWS;
    return rows < sessions ? sessions : rows;
}

static spry_step_limits step_limits(const spry_engine *e)
{
    return (spry_step_limits){spry_engine_step_rows(e), e->logit_rows, e->context, e->model->adapters.count,
                              e->model->adapters.ranks};
}

/* The name of what computes: with some layers on a GPU "cpu+cuda:0". */
static spry_status name_device(spry_engine *e, const char *device, const char *text, spry_error *error)
{
    bool all = !text || !*text || !strcmp(text, "all"), composed = strchr(device, '+');
    uint64_t layers = SPRY_LAYERS_AUTO;
    if (!all && strcmp(text, "auto") != 0 &&
        (!spry_number_u64(&layers, spry_view_of(text)) || layers > SPRY_MAX_LAYERS))
        return spry_fail(error, SPRY_ERR_INPUT, "gpu-layers is '%.40s': a number of layers, auto or all", text);
    if (!all && layers && !strcmp(device, "cpu") && !e->automatic)
        return spry_fail(error, SPRY_ERR_INPUT, "gpu-layers is '%.40s', but the device is the CPU: --device cuda",
                         text);
    bool split = !all && layers && !composed && strcmp(device, "cpu") != 0;
    e->gpu_layers = (uint32_t)layers;
    if (!layers)
        device = "cpu";
    if ((size_t)snprintf(e->device_name, sizeof e->device_name, "%s%s", split ? "cpu+" : "", device) >=
        sizeof e->device_name)
        return spry_fail(error, SPRY_ERR_INPUT, "device '%.40s...' is not known", device);
    return SPRY_OK;
}

/* The CPU computes, for a reason that the log has too. */
static spry_status use_cpu(spry_engine *e, int level, spry_error *error)
{
    if (e->why_cpu[0])
        spry_log_write(&e->log, level, "%s", e->why_cpu);
    e->device_bytes = spry_device_total("cpu");
    snprintf(e->device_name, sizeof e->device_name, "cpu");
    return spry_device_find(&e->kind, "cpu", error);
}

/* Recurrent states beside `kv_bytes` of pages. */
static size_t count_states(const spry_engine *e, const spry_kv_shape *shape, size_t kv_bytes)
{
    size_t share = shape->state ? kv_bytes / 100 * STATES_PERCENT / shape->state : 0;
    size_t least = shape->state ? (size_t)e->sessions * SESSION_STATES : 0;
    share = share < MAX_STATES ? share : MAX_STATES;
    return share > least ? share : least;
}

/* Memory of a device that the engine may use, of `bytes`. */
static size_t within_limit(const spry_engine *e, size_t bytes)
{
    return e->gpu_bytes && e->gpu_bytes < bytes ? e->gpu_bytes : bytes;
}

/* Whether weights, working memory and keys and values of the context fit the free memory of the named GPU. */
static bool fits_whole(const spry_engine *e, const char *gpu, const spry_kv_shape *shape)
{
    const spry_device_kind *kind;
    size_t token, whole, free = within_limit(e, spry_device_available(gpu));
    spry_kv_pool pool = {.shape = *shape, .n_pages = (e->context + SPRY_PAGE_TOKENS - 1) / SPRY_PAGE_TOKENS};
    spry_device_setup setup = spry_engine_setup(e);
    spry_device_memory needs;
    setup.pool = &pool;
    setup.name = gpu;
    if (!spry_kv_token_bytes(&token, shape) || !spry_checked_mul(&pool.page_bytes, token, SPRY_PAGE_TOKENS))
        return false;
    pool.shape.n_states = count_states(e, shape, pool.n_pages * pool.page_bytes);
    return !spry_device_find(&kind, gpu, NULL) && spry_device_estimate(kind, &needs, &setup, NULL) &&
           spry_checked_add(&whole, needs.weights, needs.scratch) && spry_checked_add(&whole, whole, needs.kv) &&
           whole <= free - free / SPARE_SHARE;
}

/* Where a GPU cannot be opened: as many layers on it as fit, or the CPU. */
spry_status spry_engine_retreat(spry_engine *e, spry_status why, const char *reason, spry_error *error)
{
    bool split = why == SPRY_ERR_MEMORY && !strchr(e->device_name, '+') && !spry_split_check(&e->model->config, NULL);
    snprintf(e->why_cpu, sizeof e->why_cpu, "%s: %s; %s", e->device_name, reason,
             split ? "as many layers as fit are there, the others on the CPU" : "the CPU computes instead");
    e->eyes_on_gpu = false;
    if (!split)
        return use_cpu(e, SPRY_LOG_WARN, error);
    spry_log_write(&e->log, SPRY_LOG_WARN, "%s", e->why_cpu);
    char gpu[sizeof e->device_name];
    snprintf(gpu, sizeof gpu, "%s", e->device_name);
    spry_status status = name_device(e, gpu, "auto", error);
    return status ? status : spry_device_find(&e->kind, e->device_name, error);
}

/* "auto": the GPU where there is one that computes the model, with all layers or as many as fit; else the CPU. */
static spry_status choose_auto(spry_engine *e, const spry_engine_options *o, const spry_kv_shape *shape,
                               spry_error *error)
{
    spry_error why = {0};
    const spry_step_limits limits = step_limits(e);
    const char *gpu = spry_device_auto(&e->model->config, &limits, &why);
    e->automatic = true;
    if (!gpu) {
        /* A missing driver is the usual case; a GPU that is there and not used deserves a warning. */
        snprintf(e->why_cpu, sizeof e->why_cpu, "%s; the CPU computes", why.message);
        return use_cpu(e,
                       spry_device_total("cuda:0") ||
                               (!spry_device_is_host("vulkan:0") && spry_device_total("vulkan:0"))
                           ? SPRY_LOG_WARN
                           : SPRY_LOG_INFO,
                       error);
    }
    bool asked = o->gpu_layers && *o->gpu_layers, whole = !asked && fits_whole(e, gpu, shape);
    if (!asked && !whole && spry_split_check(&e->model->config, &why)) {
        snprintf(e->why_cpu, sizeof e->why_cpu, "%s: not enough free memory for all layers, and %s; the CPU computes",
                 gpu, why.message);
        return use_cpu(e, SPRY_LOG_WARN, error);
    }
    spry_status status = name_device(e, gpu, asked ? o->gpu_layers : whole ? "all" : "auto", error);
    if (!status)
        status = spry_device_find(&e->kind, e->device_name, error);
    size_t free = within_limit(e, spry_device_available(gpu)), all = spry_device_total(e->device_name),
           own = spry_device_total(gpu);
    e->device_bytes = free && free < own ? all - own + free : all;
    return status;
}

/* A device that is not there, or does not compute all of the model, is replaced by the CPU, once and for all: what is
 * computed belongs to the device. */
static spry_status choose_device(spry_engine *e, const spry_engine_options *o, const spry_kv_shape *shape,
                                 spry_error *error)
{
    const char *name = e->device_name;
    e->gpu_bytes = o->gpu_bytes;
    if (o->device && !strcmp(o->device, "auto"))
        return choose_auto(e, o, shape, error);
    spry_status status = name_device(e, o->device ? o->device : "cpu", o->gpu_layers, error);
    if (!status)
        status = spry_device_find(&e->kind, name, error);
    if (status)
        return status;
    spry_error lacking = {0};
    e->device_bytes = strchr(name, '+') ? spry_device_total(name) : within_limit(e, spry_device_total(name));
    if (!strcmp(name, "cpu"))
        return SPRY_OK;
    if (spry_device_check_named(name, &e->model->config, &lacking))
        snprintf(e->why_cpu, sizeof e->why_cpu, "%s; the CPU computes instead", lacking.message);
    else if (e->device_bytes)
        return SPRY_OK;
    else {
        spry_device_explain(name, &lacking);
        snprintf(e->why_cpu, sizeof e->why_cpu, "%s: %s; the CPU computes instead", name, lacking.message);
    }
    e->device_missing = true;
    return use_cpu(e, SPRY_LOG_WARN, error);
}

/* Smaller weights are packed in milliseconds, and would not be worth the memory that is in flight meanwhile. */
enum { LATE_BYTES = 64 << 20 };

spry_device_setup spry_engine_setup(const spry_engine *e)
{
    return (spry_device_setup){.config = &e->model->config,
                               .weights = &e->model->weights,
                               .pool = &e->pool,
                               .ops = e->ops,
                               .threads = e->threads,
                               .limits = step_limits(e),
                               .source = e->source,
                               .mapped = e->mapped,
                               .restores = e->restores,
                               .name = e->device_name,
                               .layers = e->gpu_layers,
                               .late_bytes = LATE_BYTES,
                               .expert_bytes = e->expert_bytes,
                               .gpu_bytes = e->gpu_bytes,
                               .log = e->log};
}

/* Pages of 4 bits hold rotated keys and values. Latents, which are keys and values at once, and inputs of convolutions
 * are not what the rotation is for. */
static bool has_nibbles(const spry_config *c)
{
    return !c->arch->latent && !c->arch->compressed && !c->arch->convolutions && !c->arch->attention_free;
}

static spry_status check_kv_type(const spry_model *model, spry_dtype type, spry_error *error)
{
    if (type != SPRY_Q4_0 || has_nibbles(&model->config))
        return SPRY_OK;
    return spry_fail(error, SPRY_ERR_UNSUPPORTED,
                     "%s: kv-type q4_0 is for keys and values of attention; %s models have others: take q8_0 or f16",
                     model->name, model->config.arch->name);
}

spry_status spry_engine_set_sizes(spry_engine *e, spry_kv_shape *shape, const spry_engine_options *o, spry_error *error)
{
    const spry_config *c = &e->model->config;
    *shape = spry_model_kv_shape(e->model, SPRY_F16);
    spry_status status = check_ranges(o, error);
    if (!status)
        status = kv_type(&shape->type, o->kv_type, error);
    if (!status)
        status = check_kv_type(e->model, shape->type, error);
    if (!status && o->context > c->n_context)
        status = spry_fail(error, SPRY_ERR_CONTEXT, "%s: a context of %u was asked for, the model's limit is %u",
                           e->model->name, o->context, c->n_context);
    if (status)
        return status;
    uint32_t own = own_context(c);
    e->usual_context = o->context ? o->context : own < USUAL_CONTEXT ? own : USUAL_CONTEXT;
    e->context = e->usual_context; /* until the device's memory is known */
    e->chunk = asked_chunk(o) < e->context && !c->bidirectional ? asked_chunk(o) : e->context;
    e->sessions = o->sessions;
    e->restores = o->cache_dir;
    e->kv_idle = o->kv_idle;
    e->kv_idle_share = o->kv_idle_share;
    e->span_pages = o->span_pages;
    e->logit_rows = logit_rows(o->sessions);
    return SPRY_OK;
}

/* Weights that are in memory together. */
static size_t weight_bytes(const spry_engine *e)
{
    size_t all = e->model->weights.bytes, apart = e->experts_apart;
    return apart < all ? all - apart : all;
}

spry_status spry_engine_choose_experts(spry_engine *e, size_t asked, spry_error *error)
{
    const spry_device_setup setup = spry_engine_setup(e);
    spry_device_memory needs = {0};
    size_t total = e->device_bytes, weights = e->model->weights.bytes, limit = asked;
    const double gb = 1e9;
    if (!spry_device_estimate(e->kind, &needs, &setup, NULL))
        return SPRY_OK; /* told when pages are counted */
    if (asked && !needs.experts)
        return spry_fail(error, SPRY_ERR_UNSUPPORTED,
                         "%s: expert-bytes limits experts in mapped files on the CPU; there are none", e->model->name);
    if (asked && asked < needs.expert)
        return spry_fail(error, SPRY_ERR_INPUT, "%s: expert-bytes is %zu, but one expert has %zu bytes", e->model->name,
                         asked, needs.expert);
    if (!asked && needs.experts && total && weights > total - total / LIMIT_SHARE) {
        size_t dense = weights > needs.experts ? weights - needs.experts : 0, most = total - total / 2;
        limit = most > dense + needs.expert ? most - dense : needs.expert;
        limit = limit ? limit : 1; /* none is packed: they are used as they are in the file */
    }
    if (!limit || limit >= needs.experts)
        return SPRY_OK;
    e->expert_bytes = limit;
    e->experts_apart = needs.experts - limit;
    double share = (double)limit / (double)needs.experts;
    spry_log_write(
        &e->log, asked ? SPRY_LOG_INFO : SPRY_LOG_WARN,
        "%s: of %.2f GB of experts %.2f GB stay in memory; others are read from the file when they are used: "
        "if all are used alike, %.0f %% of those a token needs, %.3f GB",
        e->model->name, (double)needs.experts / gb, (double)limit / gb, 100 * (1 - share),
        (1 - share) * (double)needs.experts / gb * (double)e->model->config.n_experts_used /
            (double)e->model->config.n_experts);
    return SPRY_OK;
}

/* Refuses sizes that cannot fit before any memory is touched. */
static spry_status check_memory(const spry_engine *e, size_t kv_bytes, spry_error *error)
{
    const spry_device_setup setup = spry_engine_setup(e); /* the pool has no pages yet */
    spry_device_memory needs;
    size_t weights = weight_bytes(e), whole, total = e->device_bytes;
    const double gb = 1e9;
    if (!spry_device_estimate(e->kind, &needs, &setup, NULL) || !spry_checked_add(&whole, weights, needs.scratch) ||
        !spry_checked_add(&whole, whole, kv_bytes))
        return spry_fail(error, SPRY_ERR_MEMORY, "%s: needs more than any memory", e->model->name);
    if (total && whole > total)
        return spry_fail(
            error, SPRY_ERR_MEMORY,
            "%s: needs %.2f GB for weights, %.2f GB for a KV cache of %u tokens and %.2f GB to work in, but "
            "there are %.2f GB of memory; try a smaller type or --context",
            e->model->name, (double)weights / gb, (double)kv_bytes / gb, e->context, (double)needs.scratch / gb,
            (double)total / gb);
    return SPRY_OK;
}

/* What leaves the machine usable: a quarter of its memory, and with the weights three quarters. */
static size_t default_bytes(const spry_engine *e)
{
    size_t most = e->device_bytes / LIMIT_SHARE, weights = weight_bytes(e);
    size_t all = e->device_bytes - most, left = weights < all ? all - weights : 0;
    return left < most ? left : most;
}

/* Pages for full sessions, or where no context is asked for of the usual one, or an eighth of the machine's memory for
 * cached pages, a million tokens at most, if that is more; and always one full session, but otherwise no more than
 * leaves the machine usable: sessions that are not full share pages, and jobs that lack some wait. Pages use memory
 * only when written, but the lists of them use it at once. */
static size_t default_pages(const spry_engine *e, size_t page_bytes)
{
    size_t one = ((size_t)e->context + SPRY_PAGE_TOKENS - 1) / SPRY_PAGE_TOKENS;
    size_t full = ((size_t)e->usual_context + SPRY_PAGE_TOKENS - 1) / SPRY_PAGE_TOKENS * e->sessions;
    full = full > one ? full : one;
    if (!page_bytes || !e->device_bytes)
        return full;
    size_t share = e->device_bytes / MEMORY_SHARE / page_bytes, most = default_bytes(e) / page_bytes;
    share = share < MOST_KEPT_PAGES ? share : MOST_KEPT_PAGES;
    share = share > full ? share : full;
    share = share < most ? share : most;
    return share > one ? share : one;
}

size_t spry_engine_host_bytes(const spry_engine *e, size_t asked)
{
    size_t pages = spry_memory_total() / MEMORY_SHARE / e->pool.page_bytes;
    return asked < SIZE_MAX ? asked : (pages < MOST_KEPT_PAGES ? pages : MOST_KEPT_PAGES) * e->pool.page_bytes;
}

/* As many as requested, or as fit the machine; 0 for a shape that the pool would refuse. */
static size_t choose_pages(const spry_engine *e, size_t *page_bytes, const spry_kv_shape *shape, size_t kv_bytes)
{
    size_t token;
    if (!spry_kv_token_bytes(&token, shape) || !spry_checked_mul(page_bytes, token, SPRY_PAGE_TOKENS))
        *page_bytes = 0;
    if (!kv_bytes || !*page_bytes)
        return default_pages(e, *page_bytes);
    size_t states = count_states(e, shape, kv_bytes / (100 + STATES_PERCENT) * 100) * shape->state;
    return kv_bytes > states ? (kv_bytes - states) / *page_bytes : 0;
}

spry_status spry_engine_place(spry_engine *e, const spry_kv_shape *shape, const spry_engine_options *o,
                              spry_error *error)
{
    uint32_t own = own_context(&e->model->config), chunk = asked_chunk(o);
    spry_status status = choose_device(e, o, shape, error);
    if (status)
        return status;
    if (e->eyes)
        spry_eyes_place(e->eyes);
    size_t page, left = o->kv_bytes ? o->kv_bytes : default_bytes(e);
    choose_pages(e, &page, shape, o->kv_bytes);
    if (!o->context && page && (o->kv_bytes || e->device_bytes)) {
        size_t fits = left / page * SPRY_PAGE_TOKENS / CONTEXT_STEP * CONTEXT_STEP;
        fits = fits < e->usual_context ? e->usual_context : fits;
        e->context = fits < own ? (uint32_t)fits : own;
        if (e->context < own)
            spry_log_write(&e->log, SPRY_LOG_WARN,
                           "%s: the context is %u of the model's %u tokens: keys and values of more do not fit the "
                           "%.1f GB left for them (--context asks for more)",
                           e->model->name, e->context, own, (double)left / 1e9);
    } else if (!o->context) {
        e->context = own;
    }
    uint32_t device_chunk = spry_device_chunk(e->kind);
    if (chunk == SPRY_CHUNK_DEFAULT && device_chunk)
        chunk = device_chunk;
    e->chunk = chunk < e->context && !e->model->config.bidirectional ? chunk : e->context;
    return SPRY_OK;
}

uint32_t spry_engine_default_context(const spry_model *model)
{
    spry_engine_options options;
    spry_engine_options_default(&options);
    spry_kv_shape shape;
    spry_engine e = {.model = (spry_model *)(uintptr_t)model}; /* nothing of it is changed */
    bool known = !spry_ops_get(&e.ops, options.cpu, NULL) && !spry_engine_set_sizes(&e, &shape, &options, NULL) &&
                 !spry_engine_place(&e, &shape, &options, NULL);
    return known ? e.context : own_context(&model->config);
}

/* Bytes of the pages of one full context. */
static size_t context_bytes(const spry_engine *e, const spry_kv_shape *shape, size_t kv_bytes)
{
    size_t page = 0;
    choose_pages(e, &page, shape, kv_bytes);
    return page * ((e->context + SPRY_PAGE_TOKENS - 1) / SPRY_PAGE_TOKENS);
}

void spry_engine_choose_kv_type(const spry_engine *e, spry_kv_shape *shape, const spry_engine_options *o)
{
    const struct {
        spry_dtype type;
        bool possible;
        const char *costs;
    } smaller[] = {{SPRY_Q8_0, true, "q8_0"},
                   {SPRY_Q4_0,
                    has_nibbles(&e->model->config) && e->kind && spry_device_nibbles(e->kind) &&
                        shape->head_dim % 32 == 0 && shape->other.head_dim % 32 == 0,
                    "q4_0, rotated, which may cost half a percent of perplexity,"}};
    const double gb = 1e9;
    if (!kv_type_is_open(o->kv_type) || (!o->kv_bytes && !e->device_bytes))
        return;
    size_t left = o->kv_bytes ? o->kv_bytes : default_bytes(e), whole = context_bytes(e, shape, o->kv_bytes);
    for (size_t i = 0; i < SPRY_COUNT(smaller) && whole > left; i++) {
        spry_kv_shape small = *shape;
        small.type = smaller[i].type;
        size_t bytes = smaller[i].possible ? context_bytes(e, &small, o->kv_bytes) : 0;
        bool last = i + 1 == SPRY_COUNT(smaller) || !smaller[i + 1].possible;
        if (!bytes || (bytes > left && (!last || o->kv_bytes)))
            continue;
        spry_log_write(&e->log, SPRY_LOG_WARN,
                       "%s: keys and values of %u tokens take %.2f GB as f16, and %.2f GB are left for them: they are "
                       "%s and take %.2f GB (--kv-type f16 prevents it)",
                       e->model->name, e->context, (double)whole / gb, (double)left / gb, smaller[i].costs,
                       (double)bytes / gb);
        *shape = small;
        return;
    }
}

spry_status spry_engine_count_pages(const spry_engine *e, size_t *pages, spry_kv_shape *shape, size_t kv_bytes,
                                    spry_error *error)
{
    size_t page, bytes, least = (e->context + SPRY_PAGE_TOKENS - 1) / SPRY_PAGE_TOKENS;
    *pages = choose_pages(e, &page, shape, kv_bytes);
    shape->n_states = count_states(e, shape, kv_bytes / (100 + STATES_PERCENT) * 100);
    if (*pages < least)
        return spry_fail(error, SPRY_ERR_MEMORY,
                         "%s: kv-bytes of %zu hold %zu tokens, but a context of %u needs %zu bytes; give more or a "
                         "smaller --context",
                         e->model->name, kv_bytes, *pages * SPRY_PAGE_TOKENS, e->context,
                         least * page + spry_kv_states_bytes(shape));
    if (!kv_bytes)
        shape->n_states = count_states(e, shape, *pages * page);
    size_t full = least * e->sessions < *pages ? least * e->sessions : *pages;
    if (!spry_checked_mul(&bytes, page, kv_bytes ? *pages : full) ||
        !spry_checked_add(&bytes, bytes, spry_kv_states_bytes(shape)))
        bytes = SIZE_MAX;
    return check_memory(e, bytes, error);
}

/* ---- what it all needs ------------------------------------------------------------------------------------------- */

spry_status spry_engine_measure(spry_engine_needs *needs, const spry_engine *e, spry_error *error)
{
    const spry_kv_pool *pool = &e->pool;
    size_t full = ((size_t)e->context + SPRY_PAGE_TOKENS - 1) / SPRY_PAGE_TOKENS * e->sessions;
    const spry_device_setup setup = spry_engine_setup(e);
    spry_device_memory memory;
    *needs = (spry_engine_needs){0};
    if (!spry_checked_mul(&needs->kv_full, pool->page_bytes, full) ||
        !spry_checked_add(&needs->kv_full, needs->kv_full, spry_kv_states_bytes(&pool->shape)))
        needs->kv_full = SIZE_MAX;
    if (!spry_device_estimate(e->kind, &memory, &setup, NULL) ||
        !spry_checked_add(&needs->whole, memory.weights, memory.scratch) ||
        !spry_checked_add(&needs->whole, needs->whole, memory.kv))
        return spry_fail(error, SPRY_ERR_MEMORY, "%s: needs more than any memory", e->model->name);
    needs->weights = memory.weights + e->model->adapters.arena.total;
    needs->whole += e->model->adapters.arena.total + e->head_bytes;
    if (!spry_checked_add(&needs->whole, needs->whole, e->eyes_bytes))
        return spry_fail(error, SPRY_ERR_MEMORY, "%s: its tower needs more than any memory", e->model->name);
    needs->kv = memory.kv;
    needs->scratch = memory.scratch;
    return SPRY_OK;
}

/* Chooses the device, with the sizes of the tower. */
static spry_status plan_place(spry_engine *e, const spry_engine_options *o, spry_error *error)
{
    spry_status status = spry_eyes_create(&e->eyes, e, o, error);
    if (!status)
        status = spry_engine_place(e, &e->pool.shape, o, error);
    spry_eyes_destroy(e->eyes);
    free(e->mmproj);
    e->eyes = NULL;
    e->mmproj = NULL;
    return status;
}

spry_status spry_engine_plan(spry_engine *e, const char *name, const void *data, size_t size,
                             const spry_engine_options *o, spry_error *error)
{
    const spry_recipe *recipe;
    spry_kv_shape *shape = &e->pool.shape;
    *e = (spry_engine){.mapped = !data || o->data_is_mapped};
    spry_status status = spry_model_open_sizes(&e->model, name, data, size, error);
    if (!status)
        status = spry_engine_set_sizes(e, shape, o, error);
    if (!status)
        status = spry_ops_get(&e->ops, o->cpu, error);
    const char *name_of_recipe = status ? NULL : spry_model_recipe_name(e->model, o->quantize);
    if (name_of_recipe)
        status = spry_recipe_find(&recipe, name_of_recipe, error);
    if (!status && name_of_recipe)
        status = spry_model_quantize_sizes(e->model, recipe, error);
    if (!status && o->lora)
        status = spry_model_add_adapters(e->model, o->lora, error);
    if (!status)
        status = plan_place(e, o, error);
    if (!status)
        status = spry_engine_choose_experts(e, o->expert_bytes, error);
    spry_draft_head *head = NULL;
    if (!status)
        status = spry_head_find(&head, e, o->draft_head, error);
    spry_draft_head_close(head);
    if (!status)
        spry_engine_choose_kv_type(e, shape, o);
    if (!status) {
        e->pool.n_pages = choose_pages(e, &e->pool.page_bytes, shape, o->kv_bytes);
        shape->n_states = count_states(e, shape, e->pool.n_pages * e->pool.page_bytes);
    }
    return status;
}

spry_status spry_engine_estimate(spry_engine_needs *needs, const char *name, const void *data, size_t size,
                                 const spry_engine_options *options, spry_error *error)
{
    spry_engine e;
    *needs = (spry_engine_needs){0};
    spry_status status = spry_engine_plan(&e, name, data, size, options, error);
    if (!status)
        status = spry_engine_count_pages(&e, &e.pool.n_pages, &e.pool.shape, options->kv_bytes, error);
    if (!status)
        status = spry_engine_measure(needs, &e, error);
    spry_model_close(e.model);
    return status;
}

/* ---- the parts of memory ----------------------------------------------------------------------------------------- */

/* Measuring: the regions of weights, pages and working memory are known exactly; the rest of the process is the
 * program. Estimating: the same regions, as far as they would be touched. */

/* ---- counting ---------------------------------------------------------------------------------------------------- */

typedef struct counter {
    size_t bytes;
    bool unknown;
} counter;

static void count(counter *c, const void *memory, size_t size)
{
    size_t bytes = 0;
    if (memory && !spry_memory_resident(&bytes, memory, size))
        c->unknown = true;
    c->bytes += bytes;
}

static void count_file(counter *c, const spry_model *model)
{
    const spry_tensor *t;
    for (size_t i = 0; (t = spry_model_tensor(model, i)); i++)
        count(c, t->data, t->bytes);
}

/* Bytes of cached pages that are not in use. */
static spry_status count_idle(size_t *bytes, const spry_engine *e, bool *unknown, spry_error *error)
{
    size_t n = 0;
    uint32_t *idle = malloc(e->pool.n_pages * sizeof *idle);
    if (!idle)
        return spry_fail_memory(error, "a list of pages", e->pool.n_pages * sizeof *idle);
    for (uint32_t i = 0; i < e->pool.n_pages; i++)
        if (e->pool.references[i] == 1 && spry_kv_cache_knows(&e->cache, i))
            idle[n++] = i;
    *unknown = !spry_device_measure_pages(e->device, bytes, idle, n) || *unknown;
    free(idle);
    return SPRY_OK;
}

spry_status spry_memory_measure(spry_memory_parts *parts, const spry_engine *e, spry_error *error)
{
    const spry_weights *w = &e->model->weights;
    counter weights = {.bytes = w->quantized_bytes ? 0 : w->copied_bytes};
    spry_device_memory memory;
    size_t idle = 0;
    *parts = (spry_memory_parts){.size = offsetof(spry_memory_parts, reserved)};
    count_file(&weights, e->model);
    count(&weights, w->quantized, w->quantized_bytes);
    weights.unknown = !spry_device_measure(e->device, &memory) || weights.unknown;
    spry_status status = count_idle(&idle, e, &weights.unknown, error);
    if (status)
        return status;
    size_t now = spry_memory_now(), known = weights.bytes + memory.weights + memory.kv + memory.scratch;
    if (!now || weights.unknown)
        return spry_fail(error, SPRY_ERR_UNSUPPORTED,
                         "this system does not tell which pages of a process are resident");
    *parts = (spry_memory_parts){.size = offsetof(spry_memory_parts, reserved),
                                 .weights = weights.bytes + memory.weights,
                                 .kv = memory.kv - idle,
                                 .cache = idle,
                                 .scratch = memory.scratch,
                                 .program = now > known ? now - known : 0,
                                 .whole = now > known ? now : known,
                                 .tower = e->eyes_bytes};
    return SPRY_OK;
}

/* ---- estimating -------------------------------------------------------------------------------------------------- */

enum {
    STACK_BYTES = 16 << 10, /* touched part of a worker's stack */
    CODE_BYTES = 12 << 18,  /* touched part of the program and its libraries */
    NAME_BYTES = 8,         /* assumed length of a token's spelling */
    MAP_SLOT_BYTES = 24,    /* bytes of a slot of base/map.h */
};

static size_t at_most(size_t wanted, size_t limit)
{
    return wanted < limit ? wanted : limit;
}

static size_t power_of_two(size_t least)
{
    size_t power = 64;
    while (power < least && power <= SIZE_MAX / 2)
        power *= 2;
    return power;
}

/* A tokenizer's heap: views, kinds, scores and flags of its tokens, their spellings as in the file and as bytes, two
 * maps of them, and a table of merges that is at most half full. */
static size_t tokenizer_bytes(const spry_model *model)
{
    const size_t token_bytes = 2 * sizeof(spry_view) + sizeof(float) + 3;
    size_t tokens = model->config.n_vocab, text = tokens * NAME_BYTES, merges = tokens;
    spry_gguf_array array;
    if (model->gguf &&
        (!spry_gguf_get_array(model->gguf, "tokenizer.ggml.tokens", &array) || array.kind != SPRY_GGUF_STRING))
        return 0;
    if (model->gguf) {
        tokens = array.count;
        text = array.bytes - array.count * sizeof(uint64_t);
        merges = spry_gguf_get_array(model->gguf, "tokenizer.ggml.merges", &array) ? array.count : tokens;
    }
    return tokens * token_bytes + 2 * text + 2 * MAP_SLOT_BYTES * power_of_two(tokens + tokens / 3) +
           sizeof(spry_merge) * power_of_two(2 * merges);
}

/* The part of the file before the tensors, which is read completely. */
static size_t directory_bytes(const spry_model *model)
{
    size_t least = SIZE_MAX;
    const spry_tensor *t;
    for (size_t i = 0; (t = spry_model_tensor(model, i)); i++)
        least = t->offset < least ? t->offset : least;
    return least == SIZE_MAX ? 0 : least;
}

/* The memory that the engine adds to the process besides the other parts. */
static size_t program_bytes(const spry_engine *e, size_t threads)
{
    const spry_model *m = e->model;
    size_t pages = e->pool.n_pages, index = 2 * sizeof(uint32_t) * power_of_two(pages) + sizeof(uint32_t) * pages;
    size_t heap = m->arena.total - (m->weights.quantized_bytes ? 0 : m->weights.copied_bytes);
    return heap + tokenizer_bytes(m) + directory_bytes(m) + index + threads * STACK_BYTES + CODE_BYTES;
}

/* The memory of the process so far, without the file if that is in its memory. */
static size_t program_before(const void *data, size_t size)
{
    size_t now = spry_memory_now(), there = 0;
    if (data)
        spry_memory_resident(&there, data, size);
    return now > there ? now - there : 0;
}

/* Copies exist in addition to their originals, and so does a file in memory. */
static size_t copied_bytes(const spry_engine *e)
{
    const spry_weights *w = &e->model->weights;
    size_t copies = w->quantized_bytes ? 0 : w->copied_bytes;
    const spry_tensor *t;
    for (size_t i = 0; w->quantized_bytes && !e->mapped && (t = spry_model_tensor(e->model, i)); i++)
        copies += t->bytes; /* no overflow: part of a file in memory */
    return copies;
}

static spry_status estimate(spry_memory_parts *parts, const spry_engine *e, const spry_engine_options *options,
                            const spry_memory_use *use, spry_error *error)
{
    const spry_device_setup setup = spry_engine_setup(e);
    spry_device_memory memory;
    size_t whole, page = e->pool.page_bytes, pages = e->pool.n_pages;
    if (!page)
        return spry_fail(error, SPRY_ERR_UNSUPPORTED, "%s: heads of %zu values cannot be kept as %s", e->model->name,
                         e->pool.shape.head_dim, spry_dtype_name(e->pool.shape.type));
    size_t tokens = at_most(use->tokens, pages * SPRY_PAGE_TOKENS);
    size_t cached = at_most(use->cached / SPRY_PAGE_TOKENS + (use->cached % SPRY_PAGE_TOKENS > 0),
                            pages - tokens / SPRY_PAGE_TOKENS);
    const spry_device_use touched = {.tokens = tokens,
                                     .cached_pages = cached,
                                     .rows = at_most(use->rows ? use->rows : use->tokens, setup.limits.max_rows),
                                     .logits = use->logits ? use->logits : 1};
    if (!spry_checked_mul(&whole, page, pages) || !spry_device_estimate(e->kind, &memory, &setup, &touched) ||
        !spry_checked_add(&parts->weights, memory.weights, copied_bytes(e)))
        return spry_fail(error, SPRY_ERR_MEMORY, "%s: needs more than any memory", e->model->name);
    parts->scratch = memory.scratch;
    parts->cache = cached * page;
    parts->kv = memory.kv - parts->cache;
    parts->program += program_bytes(e, options->threads ? options->threads : spry_threads_usable());
    parts->whole = parts->weights + parts->kv + parts->cache + parts->scratch + parts->program;
    parts->tower = e->eyes_bytes;
    return SPRY_OK;
}

void spry_memory_use_default_sized(spry_memory_use *use, size_t size)
{
    const spry_memory_use own = {0};
    spry_sized_default(use, size, &own, sizeof own);
}

spry_status spry_memory_estimate(spry_memory_parts *parts, const char *name, const void *data, size_t size,
                                 const spry_engine_options *their_options, const spry_memory_use *their_use,
                                 spry_error *error)
{
    const spry_memory_parts none = {.size = offsetof(spry_memory_parts, reserved)};
    spry_engine e = {0};
    spry_engine_options options;
    spry_memory_use use;
    *parts = none;
    parts->program = program_before(data, size);
    spry_engine_options_default(&options);
    spry_memory_use_default(&use);
    spry_status status = spry_sized_read(&options, sizeof options, their_options, "spry_engine_options", error);
    if (!status)
        status = spry_sized_read(&use, sizeof use, their_use, "spry_memory_use", error);
    if (!status)
        status = spry_engine_plan(&e, name, data, size, &options, error);
    if (!their_use)
        use.tokens = e.context;
    if (!status)
        status = estimate(parts, &e, &options, &use, error);
    spry_model_close(e.model);
    if (status)
        *parts = none;
    return status;
}
