/* LoRA adapters: a pair of narrow matrices for some matrices of a model, whose product is added to them. They are
 * loaded beside an open model, as floats, and chosen row by row when steps are computed; or merged into what is
 * exported.
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
    float scale;     /* for requests that choose no adapters */
    uint32_t rank;   /* the largest of its pairs */
    spry_kv_key key; /* of its contents */
} spry_adapter;

typedef struct spry_adapters {
    spry_adapter list[SPRY_ADAPTERS_MAX];
    uint32_t count;
    uint32_t ranks;   /* of all adapters together */
    spry_arena arena; /* their matrices */
} spry_adapters;

/* What each adapter is multiplied by; 0: it is not used. */
typedef struct spry_adapter_scales {
    float of[SPRY_ADAPTERS_MAX];
} spry_adapter_scales;

/* Loads adapters, each given as "PATH" or "PATH=SCALE" and separated by commas, for the weights of a model in their
 * final layout, and attaches them there. After a failure the weights must not be used. */
spry_status spry_adapters_load(spry_adapters *adapters, spry_weights *weights, const spry_config *config,
                               const char *paths, spry_error *error);
void spry_adapters_deinit(spry_adapters *adapters);

/* The scales of requests that choose no adapter. */
spry_adapter_scales spry_adapters_default(const spry_adapters *adapters);

/* Reads a choice: "NAME" or "NAME=SCALE", separated by commas; a number selects the adapter at that place, counted
 * from 0, unless one has that name. "": none. */
spry_status spry_adapters_choose(spry_adapter_scales *scales, const spry_adapters *adapters, const char *text,
                                 spry_error *error);

bool spry_adapter_scales_any(const spry_adapter_scales *scales);

/* The root of pages that are computed with these adapters, from that of pages without any. */
spry_kv_key spry_adapters_root(spry_kv_key root, const spry_adapters *adapters, const spry_adapter_scales *scales);

/* Adds the adapters' changes to a row of a matrix, [n_in]. */
void spry_adapters_add_row(float *row, const spry_weight *weight, size_t index, const spry_adapters *adapters,
                           const spry_adapter_scales *scales);

#endif
