/* A model as its files have it: files kept mapped, config, weights, tokenizer, chat template. Immutable once open, so
 * any number of passes may share it. */
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

/* The sampling settings a checkpoint recommends: generation_config.json of a folder, `general.sampling.*` of a GGUF
 * file. They are advice: a value that is absent, no number or out of range counts as no advice. */

/* NaN: no advice. */
typedef struct spry_sampling_hints {
    float temperature, top_k, top_p, min_p, repeat_penalty;
} spry_sampling_hints;

/* `json` may be NULL; one that says "do_sample": false recommends nothing. */
void spry_sampling_hints_to_gguf(const spry_sampling_hints *hints, spry_gguf_writer *writer);

/* Replaces values of `settings` by the recommended ones and leaves the others. */
void spry_sampling_hints_apply(const spry_sampling_hints *hints, spry_sampling *settings);

enum { SPRY_MAX_END_IDS = 16 };

typedef struct spry_model {
    char *name;      /* the path it was opened by */
    spry_gguf *gguf; /* or */
    spry_safetensors *files;
    spry_config config;
    spry_weights weights;
    spry_adapters adapters;    /* the loaded adapters; the weights refer to them */
    spry_tokenizer *tokenizer; /* NULL when the checkpoint has none */
    spry_chat_template *chat;
    int32_t end_ids[SPRY_MAX_END_IDS]; /* end tokens that the checkpoint names; the tokenizer has one, too */
    size_t n_end_ids;
    spry_pooling pooling;         /* how embeddings are made */
    spry_sampling_hints sampling; /* settings that the checkpoint recommends */
    spry_arena arena;
} spry_model;

/* A .gguf file or a Hugging Face folder. */
spry_status spry_model_open(spry_model **out, const char *path, spry_error *error);
/* A GGUF file in memory that outlives the model. */
spry_status spry_model_open_memory(spry_model **out, const void *data, size_t size, const char *name,
                                   spry_error *error);
/* Either of them, without tokenizer and template: enough to say what the model needs. `data` NULL: a path. */
spry_status spry_model_open_sizes(spry_model **out, const char *name, const void *data, size_t size, spry_error *error);
void spry_model_close(spry_model *model);

/* Loads adapters (adapter.h) for the weights as they are now: after quantising, before a device places them. Once. */
spry_status spry_model_add_adapters(spry_model *model, const char *paths, spry_error *error);

/* A file of a folder as JSON, to be released; *out stays NULL when it is not there. */
spry_status spry_model_read_json(json_t **out, const char *folder, const char *file, spry_error *error);

/* Whether a token ends an answer. */
bool spry_model_is_end(const spry_model *model, int32_t id);

/* Bytes of keys and values a token costs, for messages and estimates. */
spry_kv_shape spry_model_kv_shape(const spry_model *model, spry_dtype type);

/* The offsets of tensors in a model's files, and their use: in place, packed, copied or unused. The readers have
 * checked that every tensor is inside its file, aligned and without overlap. */

enum { SPRY_ALIGNMENT_SHOWN = 4096 };

/* The largest power of two, at most SPRY_ALIGNMENT_SHOWN, that divides its offset in the file. */
size_t spry_tensor_alignment(const spry_tensor *tensor);

/* Whether its bytes are its rows, one after another, and nothing else. */
bool spry_tensor_contiguous(const spry_tensor *tensor);

/* By index, in the files' order; NULL past the end. */
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

/* The use of a tensor with these kernels; *why is a phrase. */
spry_placing spry_model_placing(const spry_model *model, size_t index, const spry_ops *ops, const char **why);

/* Counts over all tensors. */
typedef struct spry_placement {
    size_t tensors, contiguous, smallest_alignment; /* 0 when there are no tensors */
    size_t placed[SPRY_PLACED_COUNT];
} spry_placement;

void spry_placement_add(spry_placement *placement, const spry_tensor *tensor);
void spry_model_placement(spry_placement *placement, const spry_model *model, const spry_ops *ops);

/* "291 tensors, all contiguous, smallest alignment 32; 197 packed, ..., 0 copied"; without the second part where
 * it was not counted. */
void spry_placement_describe(char *out, size_t size, const spry_placement *placement);

/* A 128-bit identifier of what a model computes: models that differ in any weight or setting have different ones. */

/* Reads every tensor of the file, split over the threads. Call before the weights are packed, while their pages are in
 * memory. */
spry_status spry_model_fingerprint(spry_kv_key *out, const spry_model *model, spry_threads *threads, spry_error *error);

#endif
