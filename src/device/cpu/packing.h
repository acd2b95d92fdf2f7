/* Weights in the layout of the kernels: their memory, and their conversion when a device is opened or by the steps that
 * use them first. The model's own weights are unchanged; a packed matrix is not read from the file again, so its pages
 * are released: packing takes time once, but no additional memory. An embedding that is also the output matrix is read
 * from its packed form. A separate embedding stays in the file and is read into memory completely: a few tokens would
 * read most of it anyway, page by page during the first prompt. */
#ifndef SPRY_DEVICE_CPU_PACKING_H
#define SPRY_DEVICE_CPU_PACKING_H

#include <stdatomic.h>

#include "base/buffer.h"
#include "base/error.h"
#include "device/cpu/pass.h"
#include "device/device.h"
#include "kernels/ops.h"
#include "model/weight_groups.h"

/* Matrices that are packed when steps first multiply by them, so that opening a model does not wait for packing. The
 * first product with a matrix packs each of its groups into a small buffer of a worker (a "room"), multiplies, and
 * discards it: the first token waits neither for memory to be cleared nor for packed groups to be written. The second
 * product keeps the groups. A packed group has the same bytes in either case, so results are the same as with a matrix
 * that was packed when it was opened.
 *
 * Only the thread that runs steps decides what is kept; workers pack and multiply. */

typedef struct spry_late_store {
    size_t n_left; /* number of matrices that are not packed yet */
    /* The workers' buffers. A worker takes one for a call; if none is free it packs into the matrix's own memory. */
    unsigned char *rooms;
    size_t n_rooms, room_bytes;
    atomic_bool *taken;                /* [n_rooms] */
    const unsigned char *first, *last; /* range of the file that may be released when all matrices are packed; NULL:
                                        * none */
} spry_late_store;

typedef struct spry_late_pack {
    spry_late_store *store;
    unsigned char *memory;       /* memory for all groups */
    const unsigned char *packed; /* NULL until the groups are kept, then `memory` */
    bool keep;                   /* the next product keeps the groups */
    bool drop;                   /* the file's pages of the rows are released once the groups are kept */
} spry_late_pack;

/* The groups of a weight; NULL: it is used in file layout, or steps have not packed it yet. */
static inline const unsigned char *spry_weight_groups(const spry_weight *w)
{
    return w->late ? w->late->packed : w->packed;
}

/* Creates buffers for `n_rooms` workers, each for at least one group of `group_bytes`. A zeroed store needs no
 * deinit. */
void spry_late_store_deinit(spry_late_store *store);

/* Packs outputs [begin, end) of a matrix without groups, and multiplies by them; `begin` is the first output of a
 * group. `m` is complete except for the weight. */
void spry_late_multiply(const spry_weight *w, const spry_matmul_kernel *kernel, const spry_matmul *m, size_t begin,
                        size_t end);

/* Call it after all outputs of the matrix have been multiplied. True if this product packed the matrix, so that its
 * duration says nothing about the next one. */
bool spry_late_multiplied(const spry_weight *w);

typedef struct spry_placed_weights {
    spry_weights weights;  /* the weights that steps read: packed, or in file layout */
    spry_arena arena;      /* memory of the lists of layers and experts */
    unsigned char *memory; /* packed or copied weights */
    size_t bytes;
    spry_late_store late; /* matrices that steps pack; `weights` has pointers to it, so it must not move */
} spry_placed_weights;

/* `all`: weights in file layout are copied, too, and all matrices are packed at once, so that steps read only
 * `memory`. `lender`: NULL, or the placed weights whose embedding and output matrix are used. */
spry_status spry_weights_place(spry_placed_weights *placed, const spry_device_setup *setup, bool all,
                               const spry_weights *lender, spry_error *error);
void spry_weights_unplace(spry_placed_weights *placed);

/* Replaces the lists of layers and experts by copies, so that they can be modified; false when memory is short. */
bool spry_weights_copy_lists(spry_weights *weights, spry_arena *arena, const spry_config *config);

/* Bytes of memory that the weights take when packed for these kernels, with the weights that stay in file layout.
 * `expert_bytes`: limit for experts, or 0. False when the size overflows. */
bool spry_weights_resident_bytes(size_t *bytes, const spry_weights *weights, const spry_config *config,
                                 const spry_ops *ops, bool mapped, size_t expert_bytes);

/* Bytes of packed weights for these kernels; false when the size overflows. */
bool spry_weights_packed_bytes(size_t *bytes, const spry_weights *weights, const spry_config *config,
                               const spry_ops *ops);

/* Which encodings of activations the kernels need that are computed once for all outputs of a product. */
spry_rounded_acts spry_weights_rounded_acts(const spry_weights *weights, const spry_config *config,
                                            const spry_ops *ops);

/* Experts of a model that is larger than memory. They stay in their mapped file, and the experts in use are packed into
 * a limited number of slots. An expert that is needed and not packed replaces the one that was selected least often
 * lately. A packed expert always has the same bytes, so results do not depend on the limit. */

typedef struct spry_expert_store {
    spry_layer *layers; /* layers, whose experts point to packed forms that change */
    const spry_config *config;
    const spry_ops *ops;
    unsigned char *memory; /* NULL: there is no limit, experts are treated like other weights */
    size_t bytes, place_bytes;
    uint32_t n_places, n_full;
    uint32_t *holds;   /* [n_places]: the expert in each slot, layer * n_experts + expert */
    uint32_t *place;   /* [n_layers * n_experts]: slot of each expert; n_places: none */
    uint32_t *uses;    /* [n_layers * n_experts]: number of uses, halved from time to time */
    uint64_t n_packed; /* how often an expert had to be packed */
    bool drop;         /* release pages of the file after packing */
} spry_expert_store;

/* Bytes of the largest packed expert, 0: none is packed; and of all experts, packed or in file layout. False when a
 * size overflows. */
bool spry_expert_bytes(size_t *largest, size_t *all, const spry_weights *weights, const spry_config *config,
                       const spry_ops *ops);

/* Creates slots for `budget` bytes, at least one. `layers` belong to the device. */
spry_status spry_expert_store_init(spry_expert_store *store, spry_layer *layers, const spry_device_setup *setup,
                                   size_t budget, spry_error *error);
void spry_expert_store_deinit(spry_expert_store *store);

/* Makes sure that an expert is packed; it may replace another one. */
void spry_expert_store_take(spry_expert_store *store, spry_threads *threads, uint32_t layer, uint32_t expert);

#endif
