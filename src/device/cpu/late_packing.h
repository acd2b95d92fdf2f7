/* Matrices that are packed when steps multiply by them, so that opening a model packs nothing. The first product with a
 * matrix packs each of its groups into a small room of a worker, multiplies, and forgets it: the first token waits
 * neither for memory to be cleared nor for panels to be written. The second product keeps the groups. A packed group is
 * the same wherever it lies, so results are those of a matrix that was packed before.
 *
 * Only the thread that runs steps decides what is kept; workers pack and multiply. */
#ifndef SPRY_DEVICE_CPU_LATE_PACKING_H
#define SPRY_DEVICE_CPU_LATE_PACKING_H

#include <stdatomic.h>

#include "base/arena.h"
#include "base/error.h"
#include "kernels/ops.h"
#include "model/weights.h"

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

/* The groups of a placed matrix; NULL: it is used as it lies, or is packed late. */
static inline const unsigned char *spry_weight_groups(const spry_weight *w)
{
    return w->late ? w->late->packed : w->packed;
}

/* Packs one group of a placed matrix, from row `first` on. */
void spry_weight_pack_group(void *out, const spry_weight *w, size_t first, size_t group);

/* Rooms for `n_rooms` workers, each for one group of at most `group_bytes`. A store of zeros needs no deinit. */
spry_status spry_late_store_init(spry_late_store *store, size_t n_rooms, size_t group_bytes, spry_error *error);
void spry_late_store_deinit(spry_late_store *store);

/* Packs outputs [begin, end) of a matrix that has no groups yet, and multiplies them; begin is the first of a group.
 * `m` has all but the weight. */
void spry_late_multiply(const spry_weight *w, const spry_matmul_kernel *kernel, const spry_matmul *m, size_t begin,
                        size_t end);

/* All outputs of the matrix were multiplied. True if it had no groups before: the time this took says nothing about the
 * next product. */
bool spry_late_multiplied(const spry_weight *w);

#endif
