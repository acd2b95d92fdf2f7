/* Weights in the layout of the kernels: memory for them when a device is opened, and their bytes then, or by the steps
 * that use them first. The model's own weights are unchanged; a packed matrix is no longer read from
 * the file, so its pages are released: packing takes time once, but no memory. An embedding that is also the output
 * matrix is read from the packed form. A separate embedding stays in the file and is read into memory as a whole: a few
 * tokens would read most of it anyway, page by page during the first prompt. */
#ifndef SPRY_DEVICE_CPU_PACKING_H
#define SPRY_DEVICE_CPU_PACKING_H

#include <stdatomic.h>

#include "base/buffer.h"
#include "base/error.h"
#include "device/cpu/pass.h"
#include "device/device.h"
#include "kernels/ops.h"
#include "model/weights.h"

/* Matrices that are packed when steps multiply by them, so that opening a model packs nothing. The first product with a
 * matrix packs each of its groups into a small room of a worker, multiplies, and forgets it: the first token waits
 * neither for memory to be cleared nor for panels to be written. The second product keeps the groups. A packed group is
 * the same wherever it is, so results are the same as with a matrix that was packed before.
 *
 * Only the thread that runs steps decides what is kept; workers pack and multiply. */

typedef struct spry_late_store {
    size_t n_left; /* matrices that are not packed yet */
    /* A worker takes a room for one call. One that finds none packs into the matrix's own memory. */
    unsigned char *rooms;
    size_t n_rooms, room_bytes;
    atomic_bool *taken;                /* [n_rooms] */
    const unsigned char *first, *last; /* what of the file may be given back when all are packed; NULL: nothing */
} spry_late_store;

typedef struct spry_late_pack {
    spry_late_store *store;
    unsigned char *memory;       /* for all groups */
    const unsigned char *packed; /* NULL: not yet; then `memory` */
    bool keep;                   /* the next product keeps the groups */
    bool drop;                   /* rows in the file are given back once they are kept */
} spry_late_pack;

/* The groups of a placed matrix; NULL: it is used as the file has it, or is packed late. */
static inline const unsigned char *spry_weight_groups(const spry_weight *w)
{
    return w->late ? w->late->packed : w->packed;
}

/* Rooms for `n_rooms` workers, each for one group of at most `group_bytes`. A store of zeros needs no deinit. */
void spry_late_store_deinit(spry_late_store *store);

/* Packs outputs [begin, end) of a matrix that has no groups yet, and multiplies them; begin is the first of a group.
 * `m` has all but the weight. */
void spry_late_multiply(const spry_weight *w, const spry_matmul_kernel *kernel, const spry_matmul *m, size_t begin,
                        size_t end);

/* All outputs of the matrix were multiplied. True if it had no groups before: the time this took says nothing about the
 * next product. */
bool spry_late_multiplied(const spry_weight *w);

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
 * for experts. False when that overflows. */
bool spry_weights_resident_bytes(size_t *bytes, const spry_weights *weights, const spry_config *config,
                                 const spry_ops *ops, bool mapped, size_t expert_bytes);

/* One matrix: the bytes of its packed form, 0 where its kernel reads it as the file has it; false when that overflows.
 * Packing it into `out`; `drop` gives pages of the file back. */
bool spry_weight_packed_bytes(size_t *bytes, const spry_weight *weight, const spry_ops *ops);
void spry_weight_pack(spry_weight *weight, unsigned char *out, const spry_ops *ops, spry_threads *threads, bool drop);

/* Bytes that packing needs for these kernels; false when that overflows. */
bool spry_weights_packed_bytes(size_t *bytes, const spry_weights *weights, const spry_config *config,
                               const spry_ops *ops);

/* Which kernels there are whose activations are rounded once for all of a product. */
spry_rounded_acts spry_weights_rounded_acts(const spry_weights *weights, const spry_config *config,
                                            const spry_ops *ops);

/* Experts of a model that is larger than memory: they stay in their mapped file, and those in use are packed into a
 * limited number of places. An expert that is needed and not there takes the place of the one that was chosen least
 * often lately. A packed expert is the same whenever it is packed, so results do not depend on the limit. */

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

/* Bytes of the largest packed expert, 0: none is packed; and of all, packed or as the file has them. False when that
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
