/* Quantising a model that has been opened: its float matrices get the same bits as if `spry convert` had written a file
 * and that file had been opened. */
#ifndef SPRY_MODEL_QUANTIZE_H
#define SPRY_MODEL_QUANTIZE_H

#include "base/dtype.h"
#include "base/error.h"
#include "model/model.h"
#include "platform/threads.h"
#include "spry_tools.h"

/* A recipe defines a name like "q4_k_m": the type of each tensor of a model. `spry convert` and quantising while
 * loading use the same recipes, so that both give the same weights. */

typedef struct spry_recipe {
    const char *name;
    spry_dtype matrices;
    spry_dtype finer;     /* type of the value and down projections in about half of the layers, whose errors matter
                           * most */
    spry_dtype embedding; /* type of the embedding and of the output matrix */
    uint32_t file_type;   /* value of llama.cpp's general.file_type */
} spry_recipe;

/* Finds a recipe by name, in upper or lower case; the error for an unknown name lists the known ones. */
spry_status spry_recipe_find(const spry_recipe **out, const char *name, spry_error *error);

/* The type of a tensor, by its GGUF name, in a model of `n_layers` layers; `n_in`: values of a row. Vectors and routers
 * stay F32. If a row does not consist of whole blocks of the type, the tensor gets the nearest finer type that fits, or
 * F16. */
spry_dtype spry_recipe_type(const spry_recipe *recipe, spry_view name, uint32_t n_layers, uint32_t n_dims, size_t n_in);

/* Encodes every matrix into one mapping that the model owns; vectors are unchanged. `mapped`: the floats are in mapped
 * files, whose pages are released after each matrix. A model with a matrix that is not of floats is refused before
 * anything changes. At most once per model, before weights are packed. */
spry_status spry_model_quantize(spry_model *model, const spry_recipe *recipe, const spry_ops *ops,
                                spry_threads *threads, bool mapped, spry_error *error);

/* The name of the recipe to use: "auto" becomes "q8_0" for a model of floats and NULL (no change) for other models.
 * Other names, and NULL, are returned unchanged. */
const char *spry_model_recipe_name(spry_model *model, const char *name);

/* Sets only the types and sizes that the matrices would have, for a model that was opened without its weights. */
spry_status spry_model_quantize_sizes(spry_model *model, const spry_recipe *recipe, spry_error *error);

#endif
