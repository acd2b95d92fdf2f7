/* Opening and closing: a model, its KV pool, its workers, its working memory. */
#include <stdlib.h>

#include "base/checked.h"
#include "engine/engine_state.h"
#include "model/packing.h"
#include "model/quantize.h"
#include "platform/memory.h"

enum { DEFAULT_CONTEXT = 8192, MAX_CHUNK = 1 << 16, MAX_THREADS = 1024, MAX_SESSIONS = 4096 };

void spry_engine_options_default(spry_engine_options *options)
{
    *options = (spry_engine_options){.sessions = 1, .chunk = 128, .kv_type = "f16", .cpu = "auto"};
}

static spry_status kv_type(spry_dtype *type, const char *name, spry_error *error)
{
    if (spry_dtype_find(type, spry_view_of(name)) && (*type == SPRY_F16 || *type == SPRY_F32 || *type == SPRY_Q8_0))
        return SPRY_OK;
    return spry_fail(error, SPRY_ERR_INPUT, "kv-type '%.40s' is not known; known are f16, q8_0, f32", name);
}

static spry_status check_options(const spry_engine_options *o, spry_error *error)
{
    if (!o->sessions || o->sessions > MAX_SESSIONS)
        return spry_fail(error, SPRY_ERR_INPUT, "sessions is %u, outside 1 to %d", o->sessions, MAX_SESSIONS);
    if (!o->chunk || o->chunk > MAX_CHUNK)
        return spry_fail(error, SPRY_ERR_INPUT, "chunk is %u, outside 1 to %d", o->chunk, MAX_CHUNK);
    if (o->threads > MAX_THREADS)
        return spry_fail(error, SPRY_ERR_INPUT, "threads is %u, more than %d", o->threads, MAX_THREADS);
    return SPRY_OK;
}

static spry_status choose_context(spry_engine *e, uint32_t asked, spry_error *error)
{
    const spry_config *c = &e->model->config;
    if (asked > c->n_context)
        return spry_fail(error, SPRY_ERR_CONTEXT, "%s: a context of %u was asked for, the model's limit is %u",
                         e->model->name, asked, c->n_context);
    e->context = asked ? asked : c->n_context < DEFAULT_CONTEXT ? c->n_context : DEFAULT_CONTEXT;
    /* Long rope turns other angles beyond its original context: go there only when asked to. */
    if (!asked && c->rope.long_factors && c->rope.original_context < e->context)
        e->context = c->rope.original_context;
    return SPRY_OK;
}

static spry_pass_limits limits_of(const spry_engine *e)
{
    return (spry_pass_limits){e->chunk, SPRY_MAX_LOGIT_ROWS, e->context};
}

/* Refuses what cannot fit before any of it is touched. */
static spry_status check_memory(const spry_engine *e, size_t kv_bytes, spry_error *error)
{
    spry_pass_limits limits = limits_of(e);
    size_t weights = e->model->weights.bytes, scratch, whole, total = spry_memory_total();
    const double gb = 1e9;
    if (!spry_pass_bytes(&scratch, &e->model->config, &limits) || !spry_checked_add(&whole, weights, scratch) ||
        !spry_checked_add(&whole, whole, kv_bytes))
        return spry_fail(error, SPRY_ERR_MEMORY, "%s: needs more than any memory", e->model->name);
    if (total && whole > total)
        return spry_fail(
            error, SPRY_ERR_MEMORY,
            "%s: needs %.2f GB for weights, %.2f GB for a KV cache of %u tokens and %.2f GB to work in, but "
            "there are %.2f GB of memory; try a smaller type or --context",
            e->model->name, (double)weights / gb, (double)kv_bytes / gb, e->context, (double)scratch / gb,
            (double)total / gb);
    return SPRY_OK;
}

static spry_status make_pool(spry_engine *e, const spry_kv_shape *shape, spry_error *error)
{
    size_t pages = ((size_t)e->context + SPRY_PAGE_TOKENS - 1) / SPRY_PAGE_TOKENS * e->sessions, token, bytes;
    if (!spry_kv_token_bytes(&token, shape))
        token = 0; /* the pool says what is wrong with the shape */
    if (!spry_checked_mul(&bytes, token, pages) || !spry_checked_mul(&bytes, bytes, SPRY_PAGE_TOKENS))
        bytes = SIZE_MAX;
    spry_status status = check_memory(e, bytes, error);
    if (!status)
        status = spry_kv_pool_init(&e->pool, shape, pages, error);
    if (!status)
        spry_log_write(&e->log, SPRY_LOG_INFO, "KV cache: %zu layers x %zu heads x %zu x 2 x %s = %zu bytes a token",
                       shape->n_layers, shape->n_kv_heads, shape->head_dim, spry_dtype_name(shape->type), token);
    return status;
}

static spry_status quantize(spry_engine *e, const char *name, spry_error *error)
{
    const spry_recipe *recipe;
    size_t before = e->model->weights.bytes;
    spry_status status = spry_recipe_find(&recipe, name, error);
    if (!status)
        status = spry_model_quantize(e->model, recipe, e->ops, e->threads, e->from_file, error);
    if (!status)
        spry_log_write(&e->log, SPRY_LOG_INFO, "quantised to %s: %.1f MB of weights became %.1f MB", recipe->name,
                       (double)before / 1e6, (double)e->model->weights.bytes / 1e6);
    return status;
}

/* Everything but the model. */
static spry_status furnish(spry_engine *e, const spry_engine_options *o, spry_error *error)
{
    spry_kv_shape shape = spry_model_kv_shape(e->model, SPRY_F16);
    spry_status status = kv_type(&shape.type, o->kv_type, error);
    if (!status)
        status = choose_context(e, o->context, error);
    if (!status)
        status = spry_ops_get(&e->ops, o->cpu, error);
    if (!status)
        status = spry_threads_create(&e->threads, o->threads, error);
    if (!status && o->quantize)
        status = quantize(e, o->quantize, error);
    if (status)
        return status;
    e->sessions = o->sessions;
    e->chunk = o->chunk < e->context ? o->chunk : e->context;
    status = make_pool(e, &shape, error);
    if (!status)
        status = spry_weights_pack(&e->model->weights, &e->model->config, e->ops, e->threads, e->from_file, error);
    if (status)
        return status;
    if (!spry_chat_template_is_own(e->model->chat))
        spry_log_write(&e->log, SPRY_LOG_WARN, "%s: no chat template that is understood; ChatML stands in for it",
                       e->model->name);
    spry_pass_limits limits = limits_of(e);
    return spry_pass_create(&e->pass, &e->model->config, &e->model->weights, &e->pool, e->ops, e->threads, &limits,
                            error);
}

/* The model comes from a file or, when `data` is given, from memory. */
static spry_status open_any(spry_engine **out, const char *name, const void *data, size_t size,
                            const spry_engine_options *options, spry_error *error)
{
    *out = NULL;
    spry_status status = check_options(options, error);
    if (status)
        return status;
    spry_engine *e = calloc(1, sizeof *e);
    if (!e)
        return spry_fail_memory(error, "an engine", sizeof *e);
    e->log = (spry_log){options->log, options->log_user};
    e->from_file = !data;
    status =
        data ? spry_model_open_memory(&e->model, data, size, name, error) : spry_model_open(&e->model, name, error);
    if (!status)
        status = furnish(e, options, error);
    if (status)
        spry_engine_close(e);
    else
        *out = e;
    return status;
}

spry_status spry_engine_open(spry_engine **out, const char *path, const spry_engine_options *options, spry_error *error)
{
    return open_any(out, path, NULL, 0, options, error);
}

spry_status spry_engine_open_memory(spry_engine **out, const void *data, size_t size, const char *name,
                                    const spry_engine_options *options, spry_error *error)
{
    return open_any(out, name, data ? data : "", data ? size : 0, options, error);
}

void spry_engine_close(spry_engine *e)
{
    if (!e)
        return;
    spry_pass_destroy(e->pass);
    spry_threads_destroy(e->threads);
    spry_kv_pool_deinit(&e->pool);
    if (e->model)
        spry_weights_unpack(&e->model->weights);
    spry_model_close(e->model);
    free(e);
}

void spry_engine_describe(const spry_engine *e, spry_engine_info *info)
{
    spry_pass_limits limits = limits_of(e);
    *info = (spry_engine_info){.architecture = e->model->config.arch->name,
                               .vocabulary = e->model->config.n_vocab,
                               .parameters = e->model->weights.parameters,
                               .context = e->context,
                               .weight_bytes = e->model->weights.bytes,
                               .copied_bytes = e->model->weights.copied_bytes,
                               .kv_bytes_per_token = e->pool.page_bytes / SPRY_PAGE_TOKENS,
                               .kv_bytes = e->pool.page_bytes * e->pool.n_pages,
                               .threads = (uint32_t)spry_threads_count(e->threads),
                               .cpu = e->ops->name};
    spry_pass_bytes(&info->scratch_bytes, &e->model->config, &limits);
}
