/* Configs and weights of a part are those of the whole with their lists begun later. */
#include "device/split/split_part.h"

#include <stdlib.h>

#include "model/arch.h"
#include "model/tensor_names.h"

spry_status spry_split_check(const spry_config *c, spry_error *error)
{
    bool apart = !c->arch->streams && !c->n_delta_layers;
    for (uint32_t i = 0; apart && i < c->n_layers; i++)
        apart = c->kv_layer[i] == i && c->kv_slot[i] == i;
    return apart ? SPRY_OK
                 : spry_fail(error, SPRY_ERR_UNSUPPORTED,
                             "layers of %s models share more than their rows and cannot be split over devices",
                             c->arch->name);
}

static void add_bytes(void *context, const spry_matrix *matrix)
{
    *(size_t *)context += matrix->weight->n_out * matrix->weight->row_bytes;
}

/* Bytes of the part's matrices: what packing may give back is less. */
static size_t count_bytes(spry_weights *w, const spry_config *c)
{
    size_t bytes = w->embedding.data ? w->embedding.n_out * w->embedding.row_bytes : 0;
    spry_matrices_each(w, c, add_bytes, &bytes);
    for (uint32_t i = 0; i < c->n_layers; i++)
        for (uint32_t h = 0; w->layers[i].k_b && h < c->n_heads; h++)
            bytes += w->layers[i].k_b[h].n_out * w->layers[i].k_b[h].row_bytes +
                     w->layers[i].v_b[h].n_out * w->layers[i].v_b[h].row_bytes;
    return bytes;
}

static void take_weights(spry_split_part *part, const spry_device_setup *setup, uint32_t first, bool begins, bool ends)
{
    spry_weights *w = &part->weights;
    const spry_weight none = {0};
    *w = *setup->weights;
    bool tied = w->embedding.data == w->output.data;
    w->layers += first;
    if (!begins) {
        w->embedding = w->positions = w->token_types = none;
        w->embedding_norm = w->embedding_norm_bias = NULL;
    }
    if (!ends) {
        w->output = none;
        w->output_norm = w->output_norm_bias = NULL;
    }
    if (tied) { /* both parts read it: neither may give its rows back */
        w->quantized_bytes = 0;
        part->setup.mapped = false;
    }
    w->bytes = count_bytes(w, &part->config);
}

static spry_status take_config(spry_split_part *part, const spry_config *c, uint32_t first, uint32_t end,
                               spry_error *error)
{
    uint32_t n = end - first;
    part->lists = malloc(n * sizeof *part->lists);
    if (!part->lists)
        return spry_fail_memory(error, "a part of a model", n * sizeof *part->lists);
    for (uint32_t i = 0; i < n; i++)
        part->lists[i] = i;
    part->config = *c;
    part->config.n_layers = part->config.n_kv_slots = n;
    part->config.kv_layer = part->config.kv_slot = part->lists;
    part->config.convolves = c->convolves ? c->convolves + first : NULL;
    part->config.rotated = c->rotated ? c->rotated + first : NULL;
    part->config.sliding = c->sliding ? c->sliding + first : NULL;
    part->config.sparsity = c->sparsity ? c->sparsity + first : NULL;
    return SPRY_OK;
}

/* Of the pool, shape, sizes and turns are there; pages are counted by the whole one. */
static spry_status take_pool(spry_split_part *part, const spry_kv_pool *whole, spry_error *error)
{
    spry_kv_pool *pool = &part->pool;
    size_t token;
    *pool = *whole;
    pool->references = pool->free = NULL;
    pool->held = NULL;
    pool->shape.n_layers = part->config.n_layers;
    if (!spry_kv_token_bytes(&token, &pool->shape))
        return spry_fail(error, SPRY_ERR_MEMORY, "a KV page is larger than any memory");
    pool->page_bytes = token * SPRY_PAGE_TOKENS;
    return SPRY_OK;
}

spry_status spry_split_part_init(spry_split_part *part, const spry_device_setup *setup, uint32_t first, uint32_t end,
                                 spry_error *error)
{
    bool begins = first == 0, ends = end == setup->config->n_layers;
    *part = (spry_split_part){.setup = *setup};
    spry_status status = take_config(part, setup->config, first, end, error);
    if (!status)
        status = take_pool(part, setup->pool, error);
    if (status) {
        spry_split_part_deinit(part);
        return status;
    }
    take_weights(part, setup, first, begins, ends);
    part->setup.config = &part->config;
    part->setup.weights = &part->weights;
    part->setup.pool = &part->pool;
    part->setup.expert_bytes = 0;
    part->setup.limits.max_logits = ends ? setup->limits.max_logits : 1;
    return SPRY_OK;
}

void spry_split_part_deinit(spry_split_part *part)
{
    free(part->lists);
    part->lists = NULL;
}
