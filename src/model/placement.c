/* Joins the facts of the directory with the use of each tensor. */
#include "model/placement.h"

#include <stdio.h>

#include "base/checked.h"

static const char *const names[SPRY_PLACED_COUNT] = {
    [SPRY_PLACED_UNUSED] = "unused", [SPRY_PLACED_FLOATS] = "floats",     [SPRY_PLACED_COPIED] = "copied",
    [SPRY_PLACED_PACKED] = "packed", [SPRY_PLACED_IN_PLACE] = "in place",
};

const char *spry_placing_name(spry_placing placing)
{
    return names[placing];
}

size_t spry_tensor_alignment(const spry_tensor *tensor)
{
    size_t alignment = SPRY_ALIGNMENT_SHOWN;
    while (tensor->offset % alignment)
        alignment /= 2;
    return alignment;
}

bool spry_tensor_contiguous(const spry_tensor *tensor)
{
    size_t last = tensor->n_dims ? tensor->n_dims - 1 : 0, bytes;
    if (!spry_dtype_size(&bytes, tensor->type, tensor->dims[last]))
        return false;
    for (size_t i = 0; i < last; i++)
        if (!spry_checked_mul(&bytes, bytes, tensor->dims[i]))
            return false;
    return bytes == tensor->bytes;
}

const spry_tensor *spry_model_tensor(const spry_model *model, size_t index)
{
    return model->gguf ? spry_gguf_tensor(model->gguf, index) : spry_safetensors_tensor(model->files, index);
}

static spry_placing place_matrix(const spry_weights *w, const spry_tensor *t, const spry_ops *ops, const char **why)
{
    bool embedding = t->data == w->embedding.data, tied = embedding && t->data == w->output.data;
    if (embedding && !tied) {
        *why = "its rows are read one by one";
        return SPRY_PLACED_IN_PLACE;
    }
    if (ops->matmul[t->type].group) {
        *why = tied ? "kernels take groups of rows; tokens are looked up in them, too" : "kernels take groups of rows";
        return SPRY_PLACED_PACKED;
    }
    *why = "kernels take its rows as they lie";
    return SPRY_PLACED_IN_PLACE;
}

spry_placing spry_model_placing(const spry_model *model, size_t index, const spry_ops *ops, const char **why)
{
    const spry_weights *w = &model->weights;
    switch ((spry_tensor_use)w->uses[index]) {
    case SPRY_USE_FLOATS: *why = "a vector, turned into floats once"; return SPRY_PLACED_FLOATS;
    case SPRY_USE_COPIED: *why = "it does not begin where its type needs to"; return SPRY_PLACED_COPIED;
    case SPRY_USE_MATRIX:
        if (!w->quantized_bytes)
            return place_matrix(w, spry_model_tensor(model, index), ops, why);
        *why = "quantised while the model was opened";
        return SPRY_PLACED_COPIED;
    case SPRY_USE_NONE: break;
    }
    *why = "nothing in this architecture asks for it";
    return SPRY_PLACED_UNUSED;
}

void spry_placement_add(spry_placement *placement, const spry_tensor *tensor)
{
    size_t alignment = spry_tensor_alignment(tensor);
    placement->tensors++;
    placement->contiguous += spry_tensor_contiguous(tensor);
    if (placement->tensors == 1 || alignment < placement->smallest_alignment)
        placement->smallest_alignment = alignment;
}

void spry_model_placement(spry_placement *placement, const spry_model *model, const spry_ops *ops)
{
    const spry_tensor *tensor;
    const char *why;
    *placement = (spry_placement){0};
    for (size_t i = 0; (tensor = spry_model_tensor(model, i)); i++) {
        spry_placement_add(placement, tensor);
        placement->placed[spry_model_placing(model, i, ops, &why)]++;
    }
}

void spry_placement_describe(char *out, size_t size, const spry_placement *p)
{
    char contiguous[48] = "all contiguous", placed[128] = "";
    size_t known = 0;
    for (size_t i = 0; i < SPRY_PLACED_COUNT; i++)
        known += p->placed[i];
    if (p->contiguous < p->tensors)
        snprintf(contiguous, sizeof contiguous, "%zu not contiguous", p->tensors - p->contiguous);
    if (known)
        snprintf(placed, sizeof placed, "; %zu packed, %zu in place, %zu made floats, %zu unused, %zu copied",
                 p->placed[SPRY_PLACED_PACKED], p->placed[SPRY_PLACED_IN_PLACE], p->placed[SPRY_PLACED_FLOATS],
                 p->placed[SPRY_PLACED_UNUSED], p->placed[SPRY_PLACED_COPIED]);
    snprintf(out, size, "%zu tensors, %s, smallest alignment %zu%s", p->tensors, contiguous, p->smallest_alignment,
             placed);
}
