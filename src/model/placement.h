/* The offsets of tensors in a model's files, and their use: in place, packed, copied or unused. The readers have
 * checked that every tensor is inside its file, aligned and without overlap. */
#ifndef SPRY_MODEL_PLACEMENT_H
#define SPRY_MODEL_PLACEMENT_H

#include "kernels/ops.h"
#include "model/model.h"

enum { SPRY_ALIGNMENT_SHOWN = 4096 };

/* The largest power of two, at most SPRY_ALIGNMENT_SHOWN, that divides its offset in the file. */
size_t spry_tensor_alignment(const spry_tensor *tensor);

/* Whether its bytes are those of its rows, one after another, and no more. */
bool spry_tensor_contiguous(const spry_tensor *tensor);

/* By index, in the files' order; NULL past the end. */
const spry_tensor *spry_model_tensor(const spry_model *model, size_t index);

typedef enum spry_placing {
    SPRY_PLACED_UNUSED,
    SPRY_PLACED_FLOATS,
    SPRY_PLACED_COPIED,
    SPRY_PLACED_PACKED,
    SPRY_PLACED_IN_PLACE,
    SPRY_PLACED_COUNT
} spry_placing;

const char *spry_placing_name(spry_placing placing); /* "in place" */

/* The use of a tensor with these kernels; *why is a phrase. */
spry_placing spry_model_placing(const spry_model *model, size_t index, const spry_ops *ops, const char **why);

/* Counts over all tensors. */
typedef struct spry_placement {
    size_t tensors, contiguous, smallest_alignment; /* of all; 0 when there are none */
    size_t placed[SPRY_PLACED_COUNT];
} spry_placement;

void spry_placement_add(spry_placement *placement, const spry_tensor *tensor);
void spry_model_placement(spry_placement *placement, const spry_model *model, const spry_ops *ops);

/* "291 tensors, all contiguous, smallest alignment 32; 197 packed, ..., 0 copied"; without the second part where
 * it was not counted. */
void spry_placement_describe(char *out, size_t size, const spry_placement *placement);

#endif
