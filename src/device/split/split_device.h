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

#endif
