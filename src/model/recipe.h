/* Defines names like "q4_k_m": the type of each tensor of a model. The same rule is used by `spry convert` and for
 * quantising while loading, so that both give the same weights. */
#ifndef SPRY_MODEL_RECIPE_H
#define SPRY_MODEL_RECIPE_H

#include "base/dtype.h"
#include "base/error.h"
#include "spry_tools.h"

typedef struct spry_recipe {
    const char *name;
    spry_dtype matrices;
    spry_dtype finer;     /* of value and down projections in about half of the layers, where errors weigh most */
    spry_dtype embedding; /* and of the output matrix */
    uint32_t file_type;   /* llama.cpp's general.file_type for it */
} spry_recipe;

/* Upper or lower case; an unknown name gets a sentence that lists the known ones. */
spry_status spry_recipe_find(const spry_recipe **out, const char *name, spry_error *error);

/* The type of a tensor by its GGUF name, of a model with `n_layers`, with rows of `n_in`: vectors and routers stay F32.
 * Rows that are not whole blocks of the type take the nearest finer one they are whole blocks of, or F16. */
spry_dtype spry_recipe_type(const spry_recipe *recipe, spry_view name, uint32_t n_layers, uint32_t n_dims, size_t n_in);

#endif
