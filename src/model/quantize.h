/* Quantising a model that has been opened: its float matrices become what `spry convert` would write and a later open
 * would find, bit for bit, without a file in between. */
#ifndef SPRY_MODEL_QUANTIZE_H
#define SPRY_MODEL_QUANTIZE_H

#include "model/model.h"
#include "model/recipe.h"
#include "platform/threads.h"

/* Encodes every matrix into one mapping that the model owns; vectors stay. `mapped`: the floats lie in mapped files,
 * and their pages are given back as soon as each matrix is done. A model with a matrix that is not of floats is refused
 * before anything changes. Once per model, before weights are packed. */
spry_status spry_model_quantize(spry_model *model, const spry_recipe *recipe, const spry_ops *ops,
                                spry_threads *threads, bool mapped, spry_error *error);

/* The recipe that a name stands for: "auto" is "q8_0" for a model of floats, and NULL, as it is, for any other. Other
 * names, and NULL, are returned. */
const char *spry_model_recipe_name(spry_model *model, const char *name);

/* Gives the matrices the types and sizes they would have, and no more: for a model that was opened for its sizes alone.
 */
spry_status spry_model_quantize_sizes(spry_model *model, const spry_recipe *recipe, spry_error *error);

#endif
