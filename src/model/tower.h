/* The eyes of a model: a vision tower, what pictures are made into before it, and the projector after it, from a
 * Hugging Face folder. A tower is a row in the table of tower.c: an architecture (arch/towers.c) and a recipe. The
 * tower's layers run on a device like those of any model; everything here is for the host. */
#ifndef SPRY_MODEL_TOWER_H
#define SPRY_MODEL_TOWER_H

#include "formats/image.h"
#include "model/model.h"
#include "model/picture.h"
#include "model/resample.h"

/* norm, linear, gelu, linear. */
typedef struct spry_projector {
    const float *norm, *norm_bias; /* of its whole input, or NULL */
    spry_weight in, out;           /* `in` absent: `out` alone */
} spry_projector;

typedef struct spry_tower {
    const struct spry_tower_kind *kind;
    spry_arena arena;
    spry_config config;           /* of the layers */
    spry_weights weights;         /* in the model's files */
    uint32_t patch, merge, width; /* pixels of a patch's side, patches of a row's side, floats of a row */
    uint32_t fixed_side;          /* pixels of every picture's side; 0: they keep their ratio */
    double min_pixels, max_pixels;
    spry_filter filter;
    float mean[3], deviation[3];
    const float *patches, *patch_bias; /* [n_embd, 3, patch, patch], [n_embd] */
    const float *positions;            /* [position_side * position_side, n_embd] */
    uint32_t position_side;
    spry_projector projector, deep[SPRY_MAX_TAPS];
    int32_t pad, begin, end; /* tokens in place of its rows, before and after them; -1: none */
    const spry_ops *ops;     /* plain ones: they take rows of every type as files have them */
} spry_tower;

/* Whether the folder's model has eyes that this version knows; *pad may stay NULL. */
bool spry_tower_known(const char *folder);

/* Fails for a model without eyes. */
spry_status spry_tower_open(spry_tower **out, const spry_model *model, spry_error *error);
void spry_tower_close(spry_tower *tower);

/* A picture as rows of patches for the tower's layers: [rows * columns] of them, raster order. */
spry_status spry_tower_patches(const spry_tower *tower, spry_picture **out, const spry_image *image,
                               uint64_t max_pixels, spry_threads *threads, spry_error *error);

/* Hidden states [n_rows, n_embd] of these patches, and taps after them, become rows for the model. */
spry_status spry_tower_project(const spry_tower *tower, spry_picture **out, const spry_picture *patches,
                               const float *hidden, spry_kv_key hash, spry_threads *threads, spry_error *error);

/* The 8-bit pixels that patches are cut from: [*height, *width, 3], to be freed. */
spry_status spry_tower_resize(const spry_tower *tower, unsigned char **out, uint32_t *width, uint32_t *height,
                              const spry_image *image, uint64_t max_pixels, spry_error *error);

#endif
