/* A range of a model's layers as a model of its own: what a composed device gives to the devices inside it. The part in
 * front has the embedding and gives its rows as they are, without the last norm; the part behind takes rows instead of
 * tokens and has the output matrix. */
#ifndef SPRY_DEVICE_SPLIT_SPLIT_PART_H
#define SPRY_DEVICE_SPLIT_SPLIT_PART_H

#include "device/device_impl.h"

typedef struct spry_split_part {
    spry_config config;
    spry_weights weights;
    spry_kv_pool pool; /* the layout of its share of a page, and turns */
    uint32_t *lists;   /* of the config */
    spry_device_setup setup;
} spry_split_part;

/* Refuses models whose layers depend on each other beside the residual stream. */
spry_status spry_split_check(const spry_config *config, spry_error *error);

/* Layers [first, end) of the setup's model, which is borrowed. The part must not move. */
spry_status spry_split_part_init(spry_split_part *part, const spry_device_setup *setup, uint32_t first, uint32_t end,
                                 spry_error *error);
void spry_split_part_deinit(spry_split_part *part);

#endif
