/* Weights in the layout of the kernels: memory for them when a device is opened, and their bytes then, or by the steps
 * that use them first (late_packing.h). The model's own weights are unchanged; a packed matrix is no longer read from
 * the file, so its pages are released: packing takes time once, but no memory. An embedding that is also the output
 * matrix is read from the packed form. A separate embedding stays in the file and is read into memory as a whole: a few
 * tokens would read most of it anyway, page by page during the first prompt. */
#ifndef SPRY_DEVICE_CPU_PACKING_H
#define SPRY_DEVICE_CPU_PACKING_H

#include "base/arena.h"
#include "device/cpu/late_packing.h"
#include "device/cpu/pass.h"
#include "device/device.h"

typedef struct spry_placed_weights {
    spry_weights weights;  /* read by steps: packed, or in file layout */
    spry_arena arena;      /* the lists of layers and experts */
    unsigned char *memory; /* packed or copied weights */
    size_t bytes;
    spry_late_store late; /* matrices that steps pack; pointers to it are in weights, so it must not move */
} spry_placed_weights;

/* `all`: weights in file layout are copied too and matrices packed at once, so that steps read only `memory`. */
spry_status spry_weights_place(spry_placed_weights *placed, const spry_device_setup *setup, bool all,
                               spry_error *error);
void spry_weights_unplace(spry_placed_weights *placed);

/* Replaces the lists of layers and experts by copies, to be modified; false when memory is short. */
bool spry_weights_copy_lists(spry_weights *weights, spry_arena *arena, const spry_config *config);

/* Memory of the weights when packed for these kernels, including those in file layout. `expert_bytes`: 0, or the limit
 * for experts (expert_store.h). False when that overflows. */
bool spry_weights_resident_bytes(size_t *bytes, const spry_weights *weights, const spry_config *config,
                                 const spry_ops *ops, bool mapped, size_t expert_bytes);

/* One matrix: the bytes of its packed form, 0 where its kernel reads it as it lies; false when that overflows. Packing
 * it into `out`; `drop` gives pages of the file back. */
bool spry_weight_packed_bytes(size_t *bytes, const spry_weight *weight, const spry_ops *ops);
void spry_weight_pack(spry_weight *weight, unsigned char *out, const spry_ops *ops, spry_threads *threads, bool drop);

/* Bytes that packing needs for these kernels; false when that overflows. */
bool spry_weights_packed_bytes(size_t *bytes, const spry_weights *weights, const spry_config *config,
                               const spry_ops *ops);

/* Which kernels there are whose activations are rounded once for all of a product. */
spry_rounded_acts spry_weights_rounded_acts(const spry_weights *weights, const spry_config *config,
                                            const spry_ops *ops);

#endif
