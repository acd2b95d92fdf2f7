/* Measuring: the regions of weights, pages and working memory are known exactly; the rest of the process is the
 * program. Estimating: the same regions, as far as they would be touched. */
#include <stdlib.h>

#include "base/checked.h"
#include "base/sized.h"
#include "engine/engine_state.h"
#include "model/placement.h"
#include "platform/memory.h"
#include "spry_tools.h"
#include "tokenizer/bpe.h"

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
                                 .whole = now > known ? now : known};
    return SPRY_OK;
}

/* ---- estimating -------------------------------------------------------------------------------------------------- */

enum {
    STACK_BYTES = 16 << 10, /* touched part of a worker's stack */
    CODE_BYTES = 12 << 18,  /* touched part of the program and its libraries */
    NAME_BYTES = 8,         /* of a token's spelling, where it is unknown */
    MAP_SLOT_BYTES = 24,    /* of base/map.h */
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
        copies += t->bytes; /* of the file in memory: fits */
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
