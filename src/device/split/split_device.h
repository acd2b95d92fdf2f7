/* A model's first layers on one device and its last ones, with the output matrix, on another: "cpu+cuda:0". Steps run
 * on one after the other; between them rows pass through the host. Pages have their share on each. */
#ifndef SPRY_DEVICE_SPLIT_SPLIT_DEVICE_H
#define SPRY_DEVICE_SPLIT_SPLIT_DEVICE_H

#include "device/device_impl.h"

/* A device by kind, piece and name for messages. */
typedef struct spry_split_side {
    const spry_device_kind *kind;
    const char *piece, *name;
} spry_split_side;

/* Opens both. setup->layers: how many are wanted on the second; SPRY_LAYERS_AUTO: as many as fit. Where memory of the
 * second is not enough, fewer go there, down to none, and the log says so. *out is one of the devices itself where it
 * has all layers. */
spry_status spry_split_open(spry_device **out, const spry_split_side sides[2], const spry_device_setup *setup,
                            spry_error *error);

/* A range of a model's layers as a model of its own: what a composed device gives to the devices inside it. The part in
 * front has the embedding and gives its rows as they are, without the last norm; the later part takes rows instead of
 * tokens and has the output matrix. */

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
void spry_split_part_deinit(spry_split_part *part);

#endif
