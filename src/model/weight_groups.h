/* A matrix in the groups of rows that kernels read (kernels/packed.h). */
#ifndef SPRY_MODEL_WEIGHT_GROUPS_H
#define SPRY_MODEL_WEIGHT_GROUPS_H

#include "kernels/ops.h"
#include "model/weights.h"
#include "platform/threads.h"

/* The bytes of a matrix's packed form, 0 if its kernel uses file layout; false when the size overflows. */
bool spry_weight_packed_bytes(size_t *bytes, const spry_weight *weight, const spry_ops *ops);

/* Chooses the type of the groups; it depends on all values of a matrix, so that results have the same bits with any
 * number of ranks. */
void spry_weight_choose_groups(spry_weight *weight, const spry_ops *ops, spry_threads *threads);

/* Packs a matrix into `out`; `drop` releases pages of the file. */
void spry_weight_pack(spry_weight *weight, unsigned char *out, const spry_ops *ops, spry_threads *threads, bool drop);

/* Packs one group of `group` rows, beginning with row `first`. */
void spry_weight_pack_group(void *out, const spry_weight *weight, size_t first, size_t group);

#endif
