/* A picture: rows that a model's vision tower and projector have computed from an image; they replace rows of the token
 * embedding. A prompt has placeholder tokens in the picture's place. In the keys of KV pages the rows' *contents*,
 * numbers computed from the picture's hash, replace the placeholders, so that a page is found again for the same
 * picture only.
 *
 * A picture begins a page and ends one. A sequence reuses all of its pages or none, and drops all of them or none. */
#ifndef SPRY_MODEL_PICTURE_H
#define SPRY_MODEL_PICTURE_H

#include <stdatomic.h>

#include "base/error.h"
#include "kv/kv_key.h"
#include "spry_pictures.h"

struct spry_picture {
    spry_kv_key hash;                /* hash of everything that determines the values */
    uint32_t n_rows, n_embd, n_deep; /* n_deep: layers after which further values are added */
    uint32_t columns;                /* rows are a grid of this width in rope's space; 0: one position after another */
    uint32_t top, left;              /* the grid's first row in a larger one: a tower's window */
    uint32_t line;                   /* rows between two rows that end lines of the picture; 0: there are none */
    bool two_way;                    /* the rows see each other */
    atomic_uint references;
    float values[]; /* [1 + n_deep, n_rows, n_embd]: the rows that replace embeddings, then the values to add */
};

/* Creates a picture without setting its values. */
spry_status spry_picture_create(spry_picture **out, spry_kv_key hash, uint32_t n_rows, uint32_t n_embd, uint32_t n_deep,
                                spry_error *error);
spry_picture *spry_picture_ref(const spry_picture *picture);
void spry_picture_unref(const spry_picture *picture);

/* Row `row` of the values that replace embeddings (layer 0), or of those added after layer - 1. */
static inline const float *spry_picture_values(const spry_picture *picture, uint32_t layer, uint32_t row)
{
    return picture->values + ((size_t)layer * picture->n_rows + row) * picture->n_embd;
}

/* The number that identifies a row; it is negative, so it is no token's id. */
int32_t spry_picture_content(const spry_picture *picture, uint32_t row);

/* The distance in RoPE positions from the first row to the text after the picture. */
static inline uint32_t spry_picture_extent(const spry_picture *p)
{
    uint32_t rows = p->columns ? p->n_rows / p->columns : 0;
    return !p->columns ? p->n_rows : rows > p->columns ? rows : p->columns;
}

#endif
