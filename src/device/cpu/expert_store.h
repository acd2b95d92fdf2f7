/* Experts of a model that is larger than memory: they stay in their mapped file, and those in use are packed into a
 * limited number of places. An expert that is needed and not there takes the place of the one that was chosen least
 * often lately. A packed expert is the same whenever it is packed, so results do not depend on the limit. */
#ifndef SPRY_DEVICE_CPU_EXPERT_STORE_H
#define SPRY_DEVICE_CPU_EXPERT_STORE_H

#include "device/device.h"

typedef struct spry_expert_store {
    spry_layer *layers; /* whose experts' packed forms come and go */
    const spry_config *config;
    const spry_ops *ops;
    unsigned char *memory; /* NULL: all experts are where they belong */
    size_t bytes, place_bytes;
    uint32_t n_places, n_full;
    uint32_t *holds;   /* [n_places]: layer * n_experts + expert */
    uint32_t *place;   /* [n_layers * n_experts]: n_places, none */
    uint32_t *uses;    /* [n_layers * n_experts]: halved from time to time */
    uint64_t n_packed; /* experts that had to be packed */
    bool drop;         /* give pages of the file back once they are packed */
} spry_expert_store;

/* Bytes of the largest packed expert, 0: none is packed; and of all, packed or as they lie. False when that
 * overflows. */
bool spry_expert_bytes(size_t *largest, size_t *all, const spry_weights *weights, const spry_config *config,
                       const spry_ops *ops);

/* Places for `budget` bytes, at least one. `layers` belong to the device. */
spry_status spry_expert_store_init(spry_expert_store *store, spry_layer *layers, const spry_device_setup *setup,
                                   size_t budget, spry_error *error);
void spry_expert_store_deinit(spry_expert_store *store);

/* Packs an expert of a layer, if it is not. Others may lose their place. */
void spry_expert_store_take(spry_expert_store *store, spry_threads *threads, uint32_t layer, uint32_t expert);

#endif
