/* Opens and closes an engine: a model, its KV pool, its threads, its device. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "engine/engine_state.h"
#include "engine/eyes.h"
#include "kv/kv_states.h"
#include "model/model.h"
#include "model/quantize.h"
#include "platform/clock.h"
#include "platform/file.h"
#include "platform/memory.h"
#include "platform/model_names.h"
#include "sched/driver.h"
#include "spry_serve.h"

void spry_engine_options_default_sized(spry_engine_options *options, size_t size)
{
    const spry_engine_options own = {.sessions = 1,
                                     .chunk = SPRY_CHUNK_DEFAULT,
                                     .kv_type = "auto",
                                     .device = "cpu",
                                     .cpu = "auto",
                                     .kv_idle = 60,
                                     .kv_idle_share = 25,
                                     .cache_host_bytes = SIZE_MAX};
    spry_sized_default(options, size, &own, sizeof own);
}

static spry_status make_pool(spry_engine *e, spry_kv_shape *shape, size_t kv_bytes, spry_error *error)
{
    size_t pages;
    spry_status status = spry_engine_count_pages(e, &pages, shape, kv_bytes, error);
    if (!status)
        status = spry_kv_pool_init(&e->pool, shape, pages, error);
    if (!status)
        spry_log_write(&e->log, SPRY_LOG_INFO,
                       "KV cache: %zu layers x %zu heads x %zu x 2 x %s = %zu bytes a token, %zu pages of %d tokens",
                       shape->n_layers, shape->n_kv_heads, shape->head_dim, spry_dtype_name(shape->type),
                       e->pool.page_bytes / SPRY_PAGE_TOKENS, pages, SPRY_PAGE_TOKENS);
    if (!status && shape->state)
        spry_log_write(&e->log, SPRY_LOG_INFO, "recurrent states: %zu of %.1f MB", shape->n_states,
                       (double)shape->state / 1e6);
    return status;
}

spry_status spry_engine_fingerprint(spry_kv_key *out, const spry_engine *e, const char *kernels, const char *quantize,
                                    spry_error *error)
{
    spry_buffer text;
    spry_kv_key model;
    const spry_config *c = &e->model->config;
    spry_status status = spry_model_fingerprint(&model, e->model, e->threads, error);
    if (status)
        return status;
    spry_buffer_init(&text, 1 << 12);
    spry_buffer_append(&text, &model, sizeof model);
    spry_buffer_format(&text, "%s %s %s %d %d %s", kernels, quantize ? quantize : "as it is",
                       spry_dtype_name(e->pool.shape.type), SPRY_PAGE_TOKENS,
                       c->rope.long_factors && e->context > c->rope.original_context, SPRY_VERSION);
    if (e->pool.shape.state)
        spry_buffer_format(&text, " states of %zu", e->pool.shape.state);
    if (text.failed)
        status = spry_fail_memory(error, "the fingerprint of pages", text.size);
    else
        *out = spry_kv_key_root(model, text.data, text.size);
    spry_buffer_deinit(&text);
    return status;
}

/* Recurrent states are in the folder of the pages, by a fingerprint of their own. */
static spry_status open_state_disk(spry_engine *e, const spry_kv_disk_options *pages, spry_error *error)
{
    spry_kv_disk_options states = *pages;
    states.fingerprint = spry_kv_key_root(pages->fingerprint, "states", strlen("states"));
    states.page_bytes = e->pool.shape.state;
    states.mover = &e->pool.states->pool.mover;
    return spry_kv_disk_open(&e->state_disk, &states, error);
}

static spry_status make_cache(spry_engine *e, const spry_engine_options *o, spry_error *error)
{
    spry_status status = SPRY_OK;
    if (o->cache_dir) {
        char kernels[SPRY_DEVICE_IDENTITY];
        const spry_device_setup setup = spry_engine_setup(e);
        spry_device_identify(e->kind, kernels, &setup);
        status = spry_engine_fingerprint(&e->fingerprint, e, kernels, o->quantize, error);
        if (status)
            return status;
        const spry_kv_disk_options disk = {.folder = o->cache_dir,
                                           .max_bytes = o->cache_disk_bytes,
                                           .ttl_seconds = o->cache_ttl,
                                           .fingerprint = e->fingerprint,
                                           .page_bytes = e->pool.page_bytes,
                                           .mover = &e->pool.mover,
                                           .threads = &e->threads,
                                           .log = e->log};
        status = spry_kv_disk_open(&e->disk, &disk, error);
        if (!status && e->pool.states)
            status = open_state_disk(e, &disk, error);
    }
    const spry_kv_cache_options cache = {.max_bytes = o->cache_bytes ? o->cache_bytes : SIZE_MAX,
                                         .ttl_ns = o->cache_ttl * (uint64_t)1000000000,
                                         .host_bytes = spry_engine_host_bytes(e, o->cache_host_bytes),
                                         .disk = e->disk,
                                         .state_disk = e->state_disk,
                                         .contents = e->span_pages > 0,
                                         .log = e->log};
    return status ? status : spry_kv_cache_init(&e->cache, &e->pool, &cache, error);
}

static spry_status quantize(spry_engine *e, const char *name, spry_error *error)
{
    const spry_recipe *recipe;
    size_t before = e->model->weights.bytes;
    spry_status status = spry_recipe_find(&recipe, name, error);
    if (!status)
        status = spry_model_quantize(e->model, recipe, e->ops, e->threads, e->mapped, error);
    if (!status)
        spry_log_write(&e->log, SPRY_LOG_INFO, "quantised to %s: %.1f MB of weights became %.1f MB", recipe->name,
                       (double)before / 1e6, (double)e->model->weights.bytes / 1e6);
    return status;
}

static spry_status add_adapters(spry_engine *e, const spry_engine_options *o, spry_error *error)
{
    spry_status status = spry_model_add_adapters(e->model, o->lora, error);
    const spry_adapters *adapters = &e->model->adapters;
    e->adapters = spry_adapters_default(adapters);
    for (uint32_t i = 0; !status && i < adapters->count; i++)
        spry_log_write(&e->log, SPRY_LOG_INFO, "adapter %s: rank %u, scale %g", adapters->list[i].name,
                       adapters->list[i].rank, (double)adapters->list[i].scale);
    return status;
}

/* Warns when the model's own template cannot be used. */
static void warn_of_template(const spry_engine *e)
{
    const char *problem = spry_chat_template_problem(e->model->chat);
    if (*problem)
        spry_log_write(&e->log, SPRY_LOG_WARN, "%s: the chat template is not understood, ChatML is used instead: %s",
                       e->model->name, problem);
    else if (!spry_chat_template_is_own(e->model->chat) && !e->model->config.bidirectional)
        spry_log_write(&e->log, SPRY_LOG_WARN, "%s: there is no chat template, ChatML is used instead", e->model->name);
}

static void tell_placement(const spry_engine *e)
{
    char text[256];
    spry_placement placement;
    spry_model_placement(&placement, e->model, e->ops);
    spry_placement_describe(text, sizeof text, &placement);
    spry_log_write(&e->log, SPRY_LOG_DEBUG, "%s: %s", e->model->name, text);
}

/* Steps have their own lane; so do ops, if traced: each step contains its ops. */
static spry_status start_tracing(spry_engine *e, spry_trace *trace, spry_error *error)
{
    char name[96];
    e->trace = trace;
    if (!trace)
        return SPRY_OK;
    snprintf(name, sizeof name, "steps of %.80s", e->model->name);
    uint32_t lane = spry_trace_lane(trace, name);
    spry_device_set_trace(e->device, trace, lane);
    if (!spry_trace_wants_ops(trace))
        return SPRY_OK;
    e->watch = calloc(1, sizeof *e->watch);
    if (!e->watch)
        return spry_fail_memory(error, "watching ops", sizeof *e->watch);
    e->watch->trace = trace;
    e->watch->lane = lane;
    spry_device_set_watch(e->device, e->watch);
    return SPRY_OK;
}

/* Some layers are on a GPU, the others on the CPU. `asked`: the option, or SPRY_LAYERS_AUTO. */
static void explain_split(spry_engine *e, const char *gpu, uint32_t asked)
{
    if (!e->why_cpu[0] && e->gpu_layers < e->model->config.n_layers)
        snprintf(e->why_cpu, sizeof e->why_cpu, "%s computes %u of %u layers, %s; the CPU computes the others", gpu,
                 e->gpu_layers, e->model->config.n_layers,
                 asked == SPRY_LAYERS_AUTO ? "as many as fit its memory" : "as many as gpu-layers allows");
}

static spry_status open_device(spry_engine *e, spry_error *error)
{
    spry_device_setup setup = spry_engine_setup(e);
    spry_status status;
    spry_error trouble = {0};
    while ((status = spry_device_open(&e->device, e->device_name, &setup, &trouble)) && e->automatic &&
           strcmp(e->device_name, "cpu") != 0) {
        status = spry_engine_retreat(e, status, trouble.message, error);
        if (status)
            return status;
        setup = spry_engine_setup(e);
    }
    if (status)
        return spry_fail(error, status, "%s", trouble.message);
    spry_device_attach(e->device, &e->pool);
    const char *second = strchr(e->device_name, '+');
    const uint32_t asked = e->gpu_layers;
    if (second) /* what computes decides the bits of pages */
        e->gpu_layers = spry_device_layers(e->device);
    if (second)
        explain_split(e, second + 1, asked);
    if (second && e->automatic && !e->gpu_layers) {
        snprintf(e->device_text, sizeof e->device_text, "cpu");
    } else if (second && e->automatic && e->gpu_layers == e->model->config.n_layers) {
        snprintf(e->device_text, sizeof e->device_text, "%s", second + 1);
    } else if (second) {
        snprintf(e->device_text, sizeof e->device_text, "%s, %u of %u layers on %s", e->device_name, e->gpu_layers,
                 e->model->config.n_layers, second + 1);
    } else {
        snprintf(e->device_text, sizeof e->device_text, "%s", e->device_name);
    }
    spry_log_write(&e->log, SPRY_LOG_INFO, "%s: computed on %s, with a context of %u tokens", e->model->name,
                   e->device_text, e->context);
    return SPRY_OK;
}

/* The token that the tokenizer puts before every text. */
static void find_start_token(spry_engine *e)
{
    spry_error ignored;
    int32_t id = -1;
    size_t count = 0;
    spry_status status = spry_engine_tokenize(e, &id, 1, &count, "", 0, false, &ignored);
    e->start_token = !status && count && id == spry_engine_begin_token(e) ? id : -1;
}

/* Opens everything except the model. */
static spry_status open_parts(spry_engine *e, const spry_engine_options *o, spry_error *error)
{
    spry_kv_shape shape;
    spry_status status = spry_engine_set_sizes(e, &shape, o, error);
    if (!status)
        status = spry_ops_get(&e->ops, o->cpu, error);
    if (!status)
        status = spry_threads_create(&e->threads, o->threads, error);
    if (!status && o->chat_template)
        status = spry_engine_use_template(e, o->chat_template, error);
    if (!status && o->quantize)
        status = quantize(e, o->quantize, error);
    if (!status && o->lora)
        status = add_adapters(e, o, error);
    if (!status)
        status = spry_eyes_create(&e->eyes, e, o, error);
    if (!status)
        status = spry_engine_place(e, &shape, o, error);
    if (!status)
        status = spry_engine_choose_experts(e, o->expert_bytes, error);
    spry_draft_head *head = NULL;
    if (!status)
        status = spry_head_find(&head, e, o->draft_head, error);
    if (status)
        return status;
    spry_engine_choose_kv_type(e, &shape, o);
    status = make_pool(e, &shape, o->kv_bytes, error);
    if (!status)
        status = open_device(e, error);
    if (!status)
        status = spry_head_create(&e->head, e, head, error);
    else
        spry_draft_head_close(head);
    if (!status)
        status = make_cache(e, o, error);
    if (status)
        return status;
    tell_placement(e);
    warn_of_template(e);
    find_start_token(e);
    status = spry_driver_create(&e->driver, e, error);
    return status ? status : start_tracing(e, o->trace, error);
}

/* The model comes from a file or, if `data` is not NULL, from memory. */
static spry_status open_any(spry_engine **out, const char *name, const void *data, size_t size,
                            const spry_engine_options *theirs, spry_error *error)
{
    spry_engine_options options;
    *out = NULL;
    spry_engine_options_default(&options);
    spry_status status = spry_sized_read(&options, sizeof options, theirs, "spry_engine_options", error);
    if (status)
        return status;
    spry_engine *e = calloc(1, sizeof *e);
    if (!e)
        return spry_fail_memory(error, "an engine", sizeof *e);
    e->log = (spry_log){options.log, options.log_user};
    e->mapped = !data || options.data_is_mapped;
    pthread_mutex_init(&e->making, NULL);
    spry_draft_steps_init(&e->steps);
    spry_step_time_init(&e->times);
    status =
        data ? spry_model_open_memory(&e->model, data, size, name, error) : spry_model_open(&e->model, name, error);
    if (!status) {
        options.quantize = spry_model_recipe_name(e->model, options.quantize);
        e->source = (spry_device_source){.name = name, .quantize = options.quantize, .data = data, .size = size};
        status = open_parts(e, &options, error);
        e->source = (spry_device_source){.name = e->model->name};
    }
    if (status)
        spry_engine_close(e);
    else
        *out = e;
    return status;
}

spry_status spry_engine_open(spry_engine **out, const char *path, const spry_engine_options *options, spry_error *error)
{
    char found[SPRY_MODEL_PATH_MAX + 1];
    *out = NULL;
    bool is_path = path[0] == '/' || path[0] == '.' || (strchr(path, '/') && !strchr(path, ':')); /* hf:OWNER/REPO */
    if (is_path || spry_path_exists(path))
        return open_any(out, path, NULL, 0, options, error);
    spry_status status = spry_model_locate(found, path, error);
    return status == SPRY_OK ? open_any(out, found, NULL, 0, options, error) : status;
}

spry_status spry_engine_open_memory(spry_engine **out, const void *data, size_t size, const char *name,
                                    const spry_engine_options *options, spry_error *error)
{
    return open_any(out, name, data ? data : "", data ? size : 0, options, error);
}

/* Whether sessions, jobs or callbacks still use the engine. */
static bool in_use(const spry_engine *e)
{
    spry_driver *d = e->driver;
    if (spry_driver_is_owner(d))
        return true;
    pthread_mutex_lock(&d->lock);
    bool used = d->n_handles || e->n_sessions > (d->configured ? d->options.max_running : 0);
    pthread_mutex_unlock(&d->lock);
    return used;
}

spry_status spry_engine_close(spry_engine *e)
{
    if (!e)
        return SPRY_OK;
    if (e->driver && in_use(e))
        return SPRY_ERR_BUSY;
    spry_driver_destroy(e->driver);
    spry_eyes_destroy(e->eyes);
    free(e->mmproj);
    spry_session_destroy(e->drafter);
    spry_head_destroy(e->head);
    spry_grammar_cache_destroy(e->grammars);
    spry_vocabulary_destroy(e->vocabulary);
    spry_vocabulary_destroy(e->call_vocabulary);
    spry_kv_cache_deinit(&e->cache);
    spry_kv_disk_close(e->disk); /* its writer reads pages of the device until then */
    spry_kv_disk_close(e->state_disk);
    spry_device_close(e->device);
    free(e->watch);
    if (!e->borrows_threads)
        spry_threads_destroy(e->threads);
    spry_kv_pool_deinit(&e->pool);
    spry_model_close(e->model);
    pthread_mutex_destroy(&e->making);
    free(e);
    return SPRY_OK;
}

void spry_engine_stepped(spry_engine *e, const spry_step_load *load, bool plain, uint64_t ns)
{
    spry_draft_steps_measure(&e->steps, load->rows, plain, ns);
    spry_step_time_measure(&e->times, load, spry_device_attention_ns(e->device), ns);
    if (load->rows >= SPRY_PAGE_TOKENS)
        spry_kv_cache_computed(&e->cache, load->rows, ns);
}

void spry_engine_return_memory(spry_engine *e)
{
    size_t held = e->pool.n_held;
    spry_kv_cache_shrink(&e->cache, e->pool.n_pages * e->kv_idle_share / 100, spry_clock_ns());
    spry_log_write(&e->log, SPRY_LOG_DEBUG, "%s: %.1f MB of KV memory returned, %.1f MB held", e->model->name,
                   (double)((held - e->pool.n_held) * e->pool.page_bytes) / 1e6,
                   (double)(e->pool.n_held * e->pool.page_bytes) / 1e6);
}

void spry_engine_describe(const spry_engine *e, spry_engine_info *info)
{
    spry_device_memory reserved;
    const spry_device_setup setup = spry_engine_setup(e);
    spry_device_estimate(e->kind, &reserved, &setup, NULL); /* does not overflow, because the engine could be opened */
    *info = (spry_engine_info){.size = offsetof(spry_engine_info, reserved),
                               .architecture = e->model->config.arch->name,
                               .vocabulary = e->model->config.n_vocab,
                               .embedding = e->model->pooling.width,
                               .parameters = e->model->weights.parameters,
                               .context = e->context,
                               .weight_bytes = e->model->weights.bytes,
                               .copied_bytes = e->model->weights.copied_bytes,
                               .kv_bytes_per_token = e->pool.page_bytes / SPRY_PAGE_TOKENS,
                               .kv_bytes = e->pool.page_bytes * e->pool.n_pages + spry_kv_states_bytes(&e->pool.shape),
                               .threads = (uint32_t)spry_threads_count(e->threads),
                               .scratch_bytes = reserved.scratch,
                               .chunk = e->chunk,
                               .cpu = e->ops->name,
                               .device = e->device_text};
}

spry_trace *spry_engine_trace(const spry_engine *e)
{
    return e->trace;
}

bool spry_engine_lora(spry_engine *e, size_t index, spry_lora_info *info)
{
    const spry_adapters *adapters = &e->model->adapters;
    *info = (spry_lora_info){0};
    if (index >= adapters->count)
        return false;
    pthread_mutex_lock(&e->making);
    *info = (spry_lora_info){.size = offsetof(spry_lora_info, reserved),
                             .name = adapters->list[index].name,
                             .path = adapters->list[index].path,
                             .rank = adapters->list[index].rank,
                             .scale = e->adapters.of[index]};
    pthread_mutex_unlock(&e->making);
    return true;
}

spry_status spry_engine_set_lora(spry_engine *e, const char *lora, spry_error *error)
{
    spry_adapter_scales scales;
    spry_status status = spry_adapters_choose(&scales, &e->model->adapters, lora, error);
    if (status)
        return status;
    pthread_mutex_lock(&e->making);
    e->adapters = scales;
    pthread_mutex_unlock(&e->making);
    return SPRY_OK;
}

void spry_engine_sampling(const spry_engine *e, spry_sampling *settings)
{
    spry_sampling_hints_apply(&e->model->sampling, settings);
}

void spry_engine_kv_figures(spry_engine *e, spry_kv_figures *figures)
{
    spry_kv_cache_figures cache;
    spry_kv_disk_figures disk = {0};
    spry_driver_enter(e->driver);
    spry_kv_cache_describe(&e->cache, &cache);
    if (e->disk)
        spry_kv_disk_describe(e->disk, &disk);
    if (e->state_disk) {
        spry_kv_disk_figures states;
        spry_kv_disk_describe(e->state_disk, &states);
        disk.load_failures += states.load_failures;
        disk.skipped += states.skipped;
        disk.removed += states.removed;
    }
    *figures = (spry_kv_figures){.size = offsetof(spry_kv_figures, reserved),
                                 .page_bytes = e->pool.page_bytes,
                                 .page_tokens = SPRY_PAGE_TOKENS,
                                 .pages = e->pool.n_pages,
                                 .free_pages = e->pool.n_free,
                                 .cached_pages = cache.pages,
                                 .idle_pages = cache.unused_pages,
                                 .pinned_pages = cache.pinned_pages,
                                 .lookups = cache.lookups,
                                 .hit_tokens = cache.hit_tokens,
                                 .known_prompts = cache.known,
                                 .found_prompts = cache.found,
                                 .miss_tokens = cache.miss_tokens,
                                 .restored_tokens = cache.restored_tokens,
                                 .span_tokens = cache.span_tokens,
                                 .repaired_tokens = cache.repaired_tokens,
                                 .inserted_pages = cache.inserted,
                                 .evicted_pages = cache.evicted,
                                 .expired_pages = cache.expired,
                                 .disk_bytes = disk.bytes,
                                 .disk_files = disk.files,
                                 .disk_stored_pages = disk.stored,
                                 .disk_loaded_pages = disk.loaded,
                                 .disk_bad_pages = disk.load_failures,
                                 .disk_skipped_pages = disk.skipped,
                                 .disk_removed_pages = disk.removed,
                                 .held_pages = e->pool.n_held,
                                 .host_bytes = cache.host_held * e->pool.page_bytes,
                                 .host_pages = cache.host_pages,
                                 .host_saved_pages = cache.host_saved,
                                 .host_loaded_pages = cache.host_loaded};
    spry_driver_leave(e->driver);
}
