/* Resolves a command's MODEL argument and opens the model.
 *
 *   nothing                      the bundled Spry-Tales-29M
 *   Spry-Tales-29M, ...          a bundled model, in any case; Llama-Tales-29M, ... until the release after this one
 *   a path                       a .gguf file, a Hugging Face folder, or (for tokenize) one tokenizer file
 *   NAME                         NAME or NAME.gguf in the models folder
 *   a short name of the catalogue, qwen3:0.6b
 *                                the hub's model of that name
 *   hf:OWNER/REPO[:TYPE], ollama:NAME[:TAG]
 *                                the model that `spry pull` stored for this name, or the hub's own program; on a
 *                                terminal the user is asked whether to download it
 *
 * A name with a slash, or that begins with "..", is only ever a path, so no name leaves the models folder. */
#ifndef SPRY_CLI_MODEL_SOURCE_H
#define SPRY_CLI_MODEL_SOURCE_H

#include "base/error.h"
#include "spry_tools.h"

typedef struct spry_model_source {
    const void *data; /* a bundled model's bytes; NULL: the model is at `path` */
    size_t size;
    char *path;        /* owned; NULL for a bundled model */
    const char *alias; /* NULL, or the name a bundled model had before */
    char *name;        /* owned: the display name, without folders and ".gguf" */
} spry_model_source;

/* Resolves `model` (NULL: none given). `models_folder` NULL: the user's folder. Reads no model file. The message for an
 * unknown model lists the places searched and their contents. */
spry_status spry_model_source_find(spry_model_source *source, const char *model, const char *models_folder,
                                   spry_error *error);
void spry_model_source_deinit(spry_model_source *source);

spry_status spry_model_source_engine(spry_engine **out, const spry_model_source *source,
                                     const spry_engine_options *options, spry_error *error);

/* The source as tools take it; borrowed from it. */
spry_model_file spry_model_source_file(const spry_model_source *source);

/* ---- bundled models ---------------------------------------------------------------------------------------------- */

/* The bundled models: GGUF files linked in by bundled.S. */

#define SPRY_BUNDLED_MODEL   "Spry-Tales-29M"
#define SPRY_BUNDLED_DRAFTER "Spry-Tales-Draft-4M"

extern const unsigned char spry_bundled_tales_begin[], spry_bundled_tales_end[];
extern const unsigned char spry_bundled_tales_draft_begin[], spry_bundled_tales_draft_end[];
extern const unsigned char spry_bundled_catalogue_begin[], spry_bundled_catalogue_end[]; /* models/catalogue.json */

#endif
