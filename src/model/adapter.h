/* LoRA adapters. An adapter has, for some matrices of a model, a pair of narrow matrices whose product is added to the
 * matrix. Adapters are loaded in addition to an open model, as floats, and selected for each row when steps are
 * computed; or merged into the matrices of an exported model.
 *
 * Files are Hugging Face folders (adapter_config.json, adapter_model.safetensors) and GGUF files of type "adapter".
 * They are untrusted: every tensor must belong to a matrix of the model, have a partner, and fit in shape. */
#ifndef SPRY_MODEL_ADAPTER_H
#define SPRY_MODEL_ADAPTER_H

#include "kv/kv_key.h"
#include "model/weights.h"

enum { SPRY_ADAPTERS_MAX = 16 };

typedef struct spry_adapter {
    const char *name; /* last part of its path, without .gguf */
    const char *path;
    float scale;     /* scale for requests that choose no adapters */
    uint32_t rank;   /* the largest rank of its pairs */
    spry_kv_key key; /* hash of its contents */
} spry_adapter;

typedef struct spry_adapters {
    spry_adapter list[SPRY_ADAPTERS_MAX];
    uint32_t count;
    uint32_t ranks;   /* the sum of the ranks of all adapters */
    spry_arena arena; /* memory of their matrices */
} spry_adapters;

/* The factor of each adapter; 0: it is not used. */
typedef struct spry_adapter_scales {
    float of[SPRY_ADAPTERS_MAX];
} spry_adapter_scales;

/* Loads adapters for the weights of a model, which must be in their final layout, and attaches them. `paths`: "PATH" or
 * "PATH=SCALE", separated by commas. After a failure the weights must not be used. */
spry_status spry_adapters_load(spry_adapters *adapters, spry_weights *weights, const spry_config *config,
                               const char *paths, spry_error *error);
void spry_adapters_deinit(spry_adapters *adapters);

/* The scales for requests that choose no adapter. */
spry_adapter_scales spry_adapters_default(const spry_adapters *adapters);

/* Reads a choice: "NAME" or "NAME=SCALE", separated by commas. A number selects the adapter with that index, from 0,
 * unless an adapter has it as its name. "": no adapter. */
spry_status spry_adapters_choose(spry_adapter_scales *scales, const spry_adapters *adapters, const char *text,
                                 spry_error *error);

bool spry_adapter_scales_any(const spry_adapter_scales *scales);

/* The KV root (the key before the first page) for pages that are computed with these adapters, from the root for pages
 * without adapters. */
spry_kv_key spry_adapters_root(spry_kv_key root, const spry_adapters *adapters, const spry_adapter_scales *scales);

/* Adds the adapters' changes to a row of a matrix, [n_in]. */
void spry_adapters_add_row(float *row, const spry_weight *weight, size_t index, const spry_adapters *adapters,
                           const spry_adapter_scales *scales);

#endif
