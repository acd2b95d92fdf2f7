/* Weights in the layout that kernels want, placed once when a device is opened. The model's own stay as they are; a
 * matrix that has been packed is not read in the file any more, so its pages are given back to the system: packing
 * costs time once, and no memory. An embedding that is the output matrix, too, gives its rows from the packed form. One
 * of its own stays in the file and is fetched whole: rows of a few tokens would bring in most of it all the same, piece
 * by piece and in the middle of the first prompt. */
#ifndef SPRY_DEVICE_CPU_PACKING_H
#define SPRY_DEVICE_CPU_PACKING_H

#include "base/arena.h"
#include "device/device.h"

typedef struct spry_placed_weights {
    spry_weights weights;  /* what steps read: packed, and where it is not, as it lies in the model */
    spry_arena arena;      /* the lists of layers and experts */
    unsigned char *memory; /* what was packed or copied */
    size_t bytes;
} spry_placed_weights;

/* `all`: what kernels take as it lies is copied, too, so that steps read nothing but `memory`. */
spry_status spry_weights_place(spry_placed_weights *placed, const spry_device_setup *setup, bool all,
                               spry_error *error);
void spry_weights_unplace(spry_placed_weights *placed);

/* Bytes the weights take in memory once they are packed for these kernels, with those that stay as they lie. False when
 * that overflows. */
bool spry_weights_resident_bytes(size_t *bytes, const spry_weights *weights, const spry_config *config,
                                 const spry_ops *ops, bool mapped);

/* Bytes packing would take for these kernels; false when that overflows. */
bool spry_weights_packed_bytes(size_t *bytes, const spry_weights *weights, const spry_config *config,
                               const spry_ops *ops);

/* Whether a matrix meets a kernel that takes activations as integers; such matrices are packed. */
bool spry_weights_need_integers(const spry_weights *weights, const spry_config *config, const spry_ops *ops);

#endif
