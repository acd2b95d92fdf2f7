/* Which tensors and which metadata a GGUF file of a model holds. */
#ifndef SPRY_MODEL_EXPORT_PLAN_H
#define SPRY_MODEL_EXPORT_PLAN_H

#include "formats/gguf_writer.h"
#include "model/gguf_export.h"

/* One tensor to write: equal slices one after another (experts), each [n_out, n_in]. */
typedef struct spry_export_item {
    spry_tensor as;            /* name, type and dims in the new file */
    const spry_weight *pieces; /* [n_pieces] */
    size_t n_pieces;
    size_t permute_head; /* rows of a head of this size change from rope pairs (i, i + d/2) to (2i, 2i + 1); 0: not */
} spry_export_item;

typedef struct spry_export_plan {
    spry_export_item *items;
    size_t count, capacity;
    const spry_export *options;
    const spry_model *model;
    spry_arena arena;
    spry_status status; /* the first failure; later additions do nothing */
    spry_error *error;
} spry_export_plan;

spry_status spry_export_plan_init(spry_export_plan *plan, const spry_model *model, const spry_export *options,
                                  spry_error *error);
void spry_export_plan_deinit(spry_export_plan *plan);

/* The row of the source that becomes `row`: with heads of size `head` (not 0), GGUF's rope pairs stand side by side. */
static inline size_t spry_export_source_row(size_t head, size_t row)
{
    size_t in_head = head ? row % head : 0;
    return head ? row - in_head + in_head % 2 * (head / 2) + in_head / 2 : row;
}

/* llama3's scaled frequencies as a file keeps them: [rope_dim / 2] that divide the plain ones. NULL: no memory. */
const float *spry_export_rope_factors(const spry_config *config, spry_arena *arena);

/* general.*, the architecture's keys, tokenizer, chat template. False when memory is short. */
bool spry_export_metadata(const spry_export_plan *plan, spry_gguf_writer *writer);

#endif
