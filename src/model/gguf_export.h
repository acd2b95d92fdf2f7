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
    bool merges;               /* the model's adapters are merged into its matrices, with their own scales */
    const char *title;         /* general.name; NULL: the model's own, or its folder's */
    spry_threads *threads;
    bool (*progress)(void *user, size_t done, size_t total); /* bytes written; false stops; may be NULL */
    void *user;
} spry_export;

/* The file appears under its name only when it is complete. */
spry_status spry_model_export(const spry_model *model, const char *path, const spry_export *options, spry_error *error);

/* Checkpoints of llama2.c: a header of seven numbers, then all weights as floats. The vocabulary is at the end of the
 * same file, or in tokenizer.bin in the same folder. */

/* True if the file can be one: its size fits its header, with or without a vocabulary. */
bool spry_llama2c_is(const char *path);

/* Writes a checkpoint as GGUF, with floats. The layouts agree, so no value changes. */
spry_status spry_llama2c_to_gguf(const char *out, const char *path, spry_error *error);

/* The tensors and the metadata for a GGUF file of a model. */

/* One tensor to write. It consists of equal slices (experts), each [n_out, n_in]. */
typedef struct spry_export_item {
    spry_tensor as;            /* name, type and dims in the new file */
    const spry_weight *pieces; /* [n_pieces] */
    size_t n_pieces;
    size_t permute_head,
        permute_rotated;            /* head size and its rotated part if rows of q or k change from RoPE pairs (i, i
                                     * + d/2) to (2i, 2i + 1); 0: they do not */
    const uint32_t *rows, *columns; /* NULL, or the source of each row, and of each value of a row */
} spry_export_item;

typedef struct spry_export_plan {
    spry_export_item *items;
    size_t count, capacity;
    const spry_export *options;
    const spry_model *model;
    struct spry_draft_head *head; /* NULL: the checkpoint has none, or it is a GGUF file already */
    const spry_config *config;    /* the model's, or the head's while its layer is added, */
    uint32_t first_layer;         /* whose number in the file this is */
    spry_arena arena;
    spry_status status; /* the first failure; after it nothing is added */
    spry_error *error;
} spry_export_plan;

spry_status spry_export_plan_init(spry_export_plan *plan, const spry_model *model, const spry_export *options,
                                  spry_error *error);
void spry_export_plan_deinit(spry_export_plan *plan);

/* The source row of row `row`. With heads of size `head` (not 0), of which RoPE rotates the first values, the two of a
 * pair become neighbours, as in GGUF. */
static inline size_t spry_export_source_row(size_t head, size_t rotated, size_t row)
{
    size_t in_head = head ? row % head : 0;
    return head && in_head < rotated ? row - in_head + in_head % 2 * (rotated / 2) + in_head / 2 : row;
}

/* The divisors of llama3's frequencies as GGUF files store them, [rope_dim / 2]. NULL: memory is short. */
const float *spry_export_rope_factors(const spry_config *config, spry_arena *arena);

/* Writes general.*, the architecture's keys, tokenizer and chat template. False when memory is short. */
bool spry_export_metadata(const spry_export_plan *plan, spry_gguf_writer *writer);

/* Widening: a model gets the larger sizes of another shape and still computes the same results, so that a real drafter
 * can be measured with a target whose speed is limited by memory. The weights of the model keep their bytes; everything
 * that is added is 0:
 *
 *   columns  of the embedding and of every matrix that reads it; the sum of a norm then goes over more values, so norms
 *            are multiplied by sqrt(old / new size), and the epsilon by old / new
 *   heads    whose queries, keys and values are 0, and whose output no column reads. Heads keep their size, and each
 *            key/value head gets as many query heads as in the shape; where these are fewer than before, copies of it
 *            serve the others
 *   layers   after the model's own; they add nothing to the residual
 *
 * The vocabulary and the context stay. Outputs are equal up to rounding: the epsilon of norms of heads is that of the
 * others, too. */

typedef struct spry_widen {
    const spry_shape *shape;
    const char *name;                                        /* general.name */
    bool (*progress)(void *user, size_t done, size_t total); /* bytes written; false stops; may be NULL */
    void *user;
} spry_widen;

/* Writes the widened model of a GGUF file. Llama, Qwen2 and Qwen3 only; fails if any size of the shape is smaller than
 * the model's. The file appears when it is complete. */
spry_status spry_model_widen(const spry_model *model, const char *path, const spry_widen *job, spry_error *error);

#endif
