/* Uses are counted for every expert, also for those without a place, so that one that is chosen often gets and keeps
 * one even if experts in between are many. */
#include "device/cpu/expert_store.h"

#include <stdlib.h>

#include "base/checked.h"
#include "device/cpu/packing.h"
#include "platform/memory.h"

enum { MATRICES = 3 };

static void matrices_of(spry_weight *out[MATRICES], const spry_layer *l, uint32_t expert)
{
    out[0] = &l->expert_gate[expert];
    out[1] = &l->expert_up[expert];
    out[2] = &l->expert_down[expert];
}

/* Each matrix begins at a multiple of 64. */
static bool packed_bytes(size_t *bytes, const spry_weight *w, const spry_ops *ops)
{
    return spry_weight_packed_bytes(bytes, w, ops) && spry_checked_align(bytes, *bytes, 64);
}

bool spry_expert_bytes(size_t *largest, size_t *all, const spry_weights *weights, const spry_config *config,
                       const spry_ops *ops)
{
    *largest = *all = 0;
    for (size_t i = 0; i < (size_t)config->n_layers * config->n_experts; i++) {
        const spry_layer *l = &weights->layers[i / config->n_experts];
        spry_weight *matrices[MATRICES];
        size_t sum = 0;
        if (!l->expert_gate)
            continue;
        matrices_of(matrices, l, (uint32_t)(i % config->n_experts));
        for (size_t m = 0; m < MATRICES; m++) {
            size_t bytes, file = matrices[m]->n_out * matrices[m]->row_bytes;
            if (!packed_bytes(&bytes, matrices[m], ops) || !spry_checked_add(&sum, sum, bytes) ||
                !spry_checked_add(all, *all, bytes ? bytes : file))
                return false;
        }
        *largest = sum > *largest ? sum : *largest;
    }
    return true;
}

spry_status spry_expert_store_init(spry_expert_store *s, spry_layer *layers, const spry_device_setup *setup,
                                   size_t budget, spry_error *error)
{
    size_t n = (size_t)setup->config->n_layers * setup->config->n_experts, all, each, places;
    *s = (spry_expert_store){.layers = layers, .config = setup->config, .ops = setup->ops};
    if (!spry_expert_bytes(&each, &all, setup->weights, setup->config, setup->ops))
        return spry_fail(error, SPRY_ERR_MEMORY, "packed experts would be larger than any memory");
    if (!each)
        return SPRY_OK;
    places = budget / each ? budget / each : 1;
    places = places < n ? places : n;
    s->n_places = (uint32_t)places;
    s->place_bytes = each;
    s->bytes = places * each; /* at most the budget, or one expert */
    s->drop = setup->mapped && !setup->weights->copied_bytes;
    s->holds = calloc(places, sizeof *s->holds);
    s->place = malloc(n * sizeof *s->place);
    s->uses = calloc(n, sizeof *s->uses);
    s->memory = s->holds && s->place && s->uses ? spry_memory_map(s->bytes) : NULL;
    if (!s->memory) {
        spry_expert_store_deinit(s);
        return spry_fail_memory(error, "packed experts", places * each);
    }
    for (size_t i = 0; i < n; i++)
        s->place[i] = s->n_places;
    return SPRY_OK;
}

void spry_expert_store_deinit(spry_expert_store *s)
{
    if (s->memory)
        spry_memory_unmap(s->memory, s->bytes);
    free(s->holds);
    free(s->place);
    free(s->uses);
    *s = (spry_expert_store){0};
}

static void set_packed(const spry_expert_store *s, uint32_t id, unsigned char *at, spry_threads *threads)
{
    spry_weight *matrices[MATRICES];
    matrices_of(matrices, &s->layers[id / s->config->n_experts], id % s->config->n_experts);
    for (size_t m = 0; m < MATRICES; m++) {
        size_t bytes = 0;
        packed_bytes(&bytes, matrices[m], s->ops); /* counted before */
        if (at && bytes)
            spry_weight_pack(matrices[m], at, s->ops, threads, s->drop);
        else
            matrices[m]->packed = NULL;
        at = at ? at + bytes : NULL;
    }
}

/* The place of the expert that was used least. */
static uint32_t free_place(spry_expert_store *s)
{
    if (s->n_full < s->n_places)
        return s->n_full++;
    uint32_t least = 0;
    for (uint32_t i = 1; i < s->n_places; i++)
        if (s->uses[s->holds[i]] < s->uses[s->holds[least]])
            least = i;
    set_packed(s, s->holds[least], NULL, NULL);
    s->place[s->holds[least]] = s->n_places;
    return least;
}

void spry_expert_store_take(spry_expert_store *s, spry_threads *threads, uint32_t layer, uint32_t expert)
{
    uint32_t id = layer * s->config->n_experts + expert;
    s->uses[id]++;
    if (s->place[id] < s->n_places)
        return;
    if (++s->n_packed % (4 * (uint64_t)s->n_places) == 0)
        for (size_t i = 0; i < (size_t)s->config->n_layers * s->config->n_experts; i++)
            s->uses[i] /= 2;
    uint32_t at = free_place(s);
    s->holds[at] = id;
    s->place[id] = at;
    set_packed(s, id, s->memory + at * s->place_bytes, threads);
}
