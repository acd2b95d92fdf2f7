/* A model as it is in its files: mapped files, config, weights, tokenizer, chat template. It is immutable once open, so
 * it may be used by any number of threads. */
#ifndef SPRY_MODEL_MODEL_H
#define SPRY_MODEL_MODEL_H

#include <jansson.h>

#include "formats/gguf.h"
#include "formats/gguf_writer.h"
#include "kernels/ops.h"
#include "kv/kv_key.h"
#include "kv/kv_pool.h"
#include "model/adapter.h"
#include "model/arch.h"
#include "model/pooling.h"
#include "model/weights.h"
#include "platform/threads.h"
#include "spry.h"
#include "template/chat_template.h"
#include "tokenizer/tokenizer.h"

/* The sampling settings that a checkpoint recommends: generation_config.json of a folder, `general.sampling.*` of a
 * GGUF file. A value that is absent, not a number or out of range counts as no recommendation. */

/* NaN: no recommendation. */
typedef struct spry_sampling_hints {
    float temperature, top_k, top_p, min_p, repeat_penalty;
} spry_sampling_hints;

/* Writes the recommendations to the metadata of a GGUF file. */
void spry_sampling_hints_to_gguf(const spry_sampling_hints *hints, spry_gguf_writer *writer);

/* Replaces the values of `settings` that have a recommendation. */
void spry_sampling_hints_apply(const spry_sampling_hints *hints, spry_sampling *settings);

enum { SPRY_MAX_END_IDS = 16 };

typedef struct spry_model {
    char *name;      /* the path from which it was opened */
    spry_gguf *gguf; /* a GGUF file, or */
    spry_safetensors *files;
    spry_config config;
    spry_weights weights;
    spry_adapters adapters;    /* the loaded adapters; the weights refer to them */
    spry_tokenizer *tokenizer; /* NULL when the checkpoint has none */
    spry_chat_template *chat;
    int32_t end_ids[SPRY_MAX_END_IDS]; /* end tokens that the checkpoint names, in addition to the tokenizer's own */
    size_t n_end_ids;
    spry_pooling pooling;         /* how embeddings are computed from hidden states */
    spry_sampling_hints sampling; /* settings that the checkpoint recommends */
    spry_arena arena;
} spry_model;

/* A .gguf file or a Hugging Face folder. */
spry_status spry_model_open(spry_model **out, const char *path, spry_error *error);
/* Opens a GGUF file in memory, which must outlive the model. */
spry_status spry_model_open_memory(spry_model **out, const void *data, size_t size, const char *name,
                                   spry_error *error);
/* Opens either of them without tokenizer and template, which is enough to compute what memory the model needs. `data`
 * NULL: `name` is a path. */
spry_status spry_model_open_sizes(spry_model **out, const char *name, const void *data, size_t size, spry_error *error);
void spry_model_close(spry_model *model);

/* Loads adapters (adapter.h) for the current weights: after quantising, before a device stores them. At most once. */
spry_status spry_model_add_adapters(spry_model *model, const char *paths, spry_error *error);

/* Reads a file of a folder as JSON, which the caller releases; *out stays NULL if the file does not exist. */
spry_status spry_model_read_json(json_t **out, const char *folder, const char *file, spry_error *error);

/* Whether a token ends an answer. */
bool spry_model_is_end(const spry_model *model, int32_t id);

/* The sizes of a token's keys and values, for messages and estimates. */
spry_kv_shape spry_model_kv_shape(const spry_model *model, spry_dtype type);

/* Where a model's tensors are in its files, and how each is used: in place, packed, copied or not at all. The readers
 * have checked that every tensor is inside its file, aligned, and overlaps no other. */

enum { SPRY_ALIGNMENT_SHOWN = 4096 };

/* The largest power of two, at most SPRY_ALIGNMENT_SHOWN, that divides its offset in the file. */
size_t spry_tensor_alignment(const spry_tensor *tensor);

/* True if the tensor's bytes are its rows without gaps. */
bool spry_tensor_contiguous(const spry_tensor *tensor);

/* The tensor with an index, in the order of the files; NULL past the end. */
const spry_tensor *spry_model_tensor(const spry_model *model, size_t index);

typedef enum spry_placing {
    SPRY_PLACED_UNUSED,
    SPRY_PLACED_FLOATS,
    SPRY_PLACED_COPIED,
    SPRY_PLACED_PACKED,
    SPRY_PLACED_IN_PLACE,
    SPRY_PLACED_COUNT
} spry_placing;

const char *spry_placing_name(spry_placing placing); /* "in place" */

/* How a tensor is used with these kernels; *why is a phrase with the reason. */
spry_placing spry_model_placing(const spry_model *model, size_t index, const spry_ops *ops, const char **why);

/* Counts over all tensors. */
typedef struct spry_placement {
    size_t tensors, contiguous, smallest_alignment; /* 0 when there are no tensors */
    size_t placed[SPRY_PLACED_COUNT];
} spry_placement;

void spry_placement_add(spry_placement *placement, const spry_tensor *tensor);
void spry_model_placement(spry_placement *placement, const spry_model *model, const spry_ops *ops);

/* Writes "291 tensors, all contiguous, smallest alignment 32; 197 packed, ..., 0 copied"; without the second part if
 * uses were not counted. */
void spry_placement_describe(char *out, size_t size, const spry_placement *placement);

/* A 128-bit identifier of everything that a model computes with: models that differ in any weight or setting have
 * different ones. */

/* Reads every tensor of the file, divided among the threads. Call it before the weights are packed, while their pages
 * are in memory. */
spry_status spry_model_fingerprint(spry_kv_key *out, const spry_model *model, spry_threads *threads, spry_error *error);

#endif
