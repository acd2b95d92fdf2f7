/* A model's first layers on one device and its last ones, with the output matrix, on another: "cpu+cuda:0". A step runs
 * on the first device, then on the second; between them rows are copied through the host. Each device stores its
 * layers' share of every page. */
#ifndef SPRY_DEVICE_SPLIT_SPLIT_DEVICE_H
#define SPRY_DEVICE_SPLIT_SPLIT_DEVICE_H

#include "device/device_impl.h"

/* One of the devices: its kind, the text after the colon, and its name for messages. */
typedef struct spry_split_side {
    const spry_device_kind *kind;
    const char *piece, *name;
} spry_split_side;

/* Opens both devices. setup->layers: number of layers wanted on the second one; SPRY_LAYERS_AUTO: as many as fit. If
 * the second one lacks memory, it gets fewer, down to none, and the log says so. If one device has all layers, *out is
 * that device itself. */
spry_status spry_split_open(spry_device **out, const spry_split_side sides[2], const spry_device_setup *setup,
                            spry_error *error);

/* A range of a model's layers as a model of its own, which the composed device gives to the devices inside it. The
 * front part has the embedding and returns its rows without the last norm; the back part takes rows in place of tokens
 * and has the output matrix. */

typedef struct spry_split_part {
    spry_config config;
    spry_weights weights;
    spry_kv_pool pool; /* layout of its share of a page, and turns (page rotations) */
    uint32_t *lists;   /* lists of the config */
    spry_device_setup setup;
} spry_split_part;

/* Refuses models whose layers exchange data other than the residual stream. */
spry_status spry_split_check(const spry_config *config, spry_error *error);

/* Initialises a part with layers [first, end) of the setup's model, which is borrowed. The part must not move. */
void spry_split_part_deinit(spry_split_part *part);

#endif
