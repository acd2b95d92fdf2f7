/* A model as it lies on disk: files kept mapped, config, weights, tokenizer, chat template. Immutable once open, so any
 * number of passes may share it. */
#ifndef SPRY_MODEL_MODEL_H
#define SPRY_MODEL_MODEL_H

#include "kv/kv_pool.h"
#include "model/adapter.h"
#include "model/arch.h"
#include "model/pooling.h"
#include "model/sampling_hints.h"
#include "model/weights.h"
#include "template/chat_template.h"
#include "tokenizer/tokenizer.h"

enum { SPRY_MAX_END_IDS = 16 };

typedef struct spry_model {
    char *name;      /* the path it was opened by */
    spry_gguf *gguf; /* or */
    spry_safetensors *files;
    spry_config config;
    spry_weights weights;
    spry_adapters adapters;    /* that its weights refer to */
    spry_tokenizer *tokenizer; /* NULL when the checkpoint has none */
    spry_chat_template *chat;
    int32_t end_ids[SPRY_MAX_END_IDS]; /* that the checkpoint names, beside the tokenizer's own */
    size_t n_end_ids;
    spry_pooling pooling;         /* how embeddings are made */
    spry_sampling_hints sampling; /* that the checkpoint recommends */
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

#endif
