/* Writes a model as GGUF: from a Hugging Face folder or another GGUF file, with its matrices in a given type. It has
 * the names and layout of llama.cpp's converter. */
#ifndef SPRY_MODEL_GGUF_EXPORT_H
#define SPRY_MODEL_GGUF_EXPORT_H

#include "base/error.h"
#include "formats/gguf_writer.h"
#include "model/model.h"
#include "model/quantize.h"
#include "model/shapes.h"
#include "platform/threads.h"

typedef struct spry_export {
    const spry_recipe *recipe; /* the type of each tensor */
    bool merges;               /* the model's adapters, by their own scales, become part of its matrices */
    const char *title;         /* general.name; NULL: the model's own, or its folder's */
    spry_threads *threads;
    bool (*progress)(void *user, size_t done, size_t total); /* bytes written; false stops; may be NULL */
    void *user;
} spry_export;

/* Atomic: the file appears under its name only when it is complete. */
spry_status spry_model_export(const spry_model *model, const char *path, const spry_export *options, spry_error *error);

/* Checkpoints of llama2.c: a header of seven numbers, then all weights as floats. Its vocabulary follows in the same
 * file, or is beside it in tokenizer.bin. */

/* Whether a file can be one: its size is what its header says, with or without a vocabulary. */
bool spry_llama2c_is(const char *path);

/* Writes it as GGUF, in floats; layouts agree, so no value changes. */
spry_status spry_llama2c_to_gguf(const char *out, const char *path, spry_error *error);

/* Which tensors and which metadata a GGUF file of a model holds. */

/* One tensor to write: equal slices one after another (experts), each [n_out, n_in]. */
typedef struct spry_export_item {
    spry_tensor as;            /* name, type and dims in the new file */
    const spry_weight *pieces; /* [n_pieces] */
    size_t n_pieces;
    size_t permute_head; /* rows of a head of this size change from rope pairs (i, i + d/2) to (2i, 2i + 1); 0: not */
    const uint32_t *rows, *columns; /* NULL, or where each row, and each value of a row, comes from */
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

/* The row of the source that becomes `row`: with heads of size `head` (not 0), GGUF's rope pairs are side by side. */
static inline size_t spry_export_source_row(size_t head, size_t row)
{
    size_t in_head = head ? row % head : 0;
    return head ? row - in_head + in_head % 2 * (head / 2) + in_head / 2 : row;
}

/* llama3's scaled frequencies as a file keeps them: [rope_dim / 2] that divide the plain ones. NULL: no memory. */
const float *spry_export_rope_factors(const spry_config *config, spry_arena *arena);

/* general.*, the architecture's keys, tokenizer, chat template. False when memory is short. */
bool spry_export_metadata(const spry_export_plan *plan, spry_gguf_writer *writer);

/* A model with the sizes of another shape that computes what it computed before, so that a real drafter can be measured
 * with a target that is bound by memory. The weights of the model keep their bytes; everything added is 0:
 *
 *   columns  of the embedding and of every matrix that reads it; the sum of a norm then goes over more values, so norms
 *            are multiplied by sqrt(old / new size), and the epsilon by old / new
 *   heads    whose queries, keys and values are 0, and whose output no column reads. Heads keep their size, and each
 *            key/value head gets as many query heads as in the shape; where these are fewer than before, copies of it
 *            serve the others
 *   layers   after the others, which add nothing
 *
 * The vocabulary and the context stay. Outputs are equal up to rounding: the epsilon of norms of heads is that of the
 * others, too. */

typedef struct spry_widen {
    const spry_shape *shape;
    const char *name;                                        /* general.name */
    bool (*progress)(void *user, size_t done, size_t total); /* bytes written; false stops; may be NULL */
    void *user;
} spry_widen;

/* Writes a GGUF file of a model that came from one. Llama, Qwen2 and Qwen3 only; a shape that is smaller than the model
 * anywhere is refused. Atomic: the file appears when it is whole. */
spry_status spry_model_widen(const spry_model *model, const char *path, const spry_widen *job, spry_error *error);

#endif
