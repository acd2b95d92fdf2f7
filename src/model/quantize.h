/* Quantising a model that has been opened: its float matrices become what `spry convert` would write and a later open
 * would find, bit for bit, without a file in between. */
#ifndef SPRY_MODEL_QUANTIZE_H
#define SPRY_MODEL_QUANTIZE_H

#include "base/dtype.h"
#include "base/error.h"
#include "model/model.h"
#include "platform/threads.h"
#include "spry_tools.h"

/* Defines names like "q4_k_m": the type of each tensor of a model. The same rule is used by `spry convert` and for
 * quantising while loading, so that both give the same weights. */

typedef struct spry_recipe {
    const char *name;
    spry_dtype matrices;
    spry_dtype finer;     /* type of value and down projections in about half of the layers, where errors matter most */
    spry_dtype embedding; /* and of the output matrix */
    uint32_t file_type;   /* llama.cpp's general.file_type for it */
} spry_recipe;

/* Upper or lower case; an unknown name gets a sentence that lists the known ones. */
spry_status spry_recipe_find(const spry_recipe **out, const char *name, spry_error *error);

/* The type of a tensor by its GGUF name, of a model with `n_layers`, with rows of `n_in`: vectors and routers stay F32.
 * Rows that are not whole blocks of the type take the nearest finer one they are whole blocks of, or F16. */
spry_dtype spry_recipe_type(const spry_recipe *recipe, spry_view name, uint32_t n_layers, uint32_t n_dims, size_t n_in);

/* Encodes every matrix into one mapping that the model owns; vectors stay. `mapped`: the floats are in mapped files,
 * and their pages are given back as soon as each matrix is done. A model with a matrix that is not of floats is refused
 * before anything changes. Once per model, before weights are packed. */
spry_status spry_model_quantize(spry_model *model, const spry_recipe *recipe, const spry_ops *ops,
                                spry_threads *threads, bool mapped, spry_error *error);

/* The recipe of a name: "auto" is "q8_0" for a model of floats, and NULL, as it is, for any other. Other
 * names, and NULL, are returned. */
const char *spry_model_recipe_name(spry_model *model, const char *name);

/* Gives the matrices the types and sizes they would have, and no more: for a model that was opened for its sizes alone.
 */
spry_status spry_model_quantize_sizes(spry_model *model, const spry_recipe *recipe, spry_error *error);

#endif
