/* Whisper models on a GPU (device/whisper_device.h). */
#ifndef SPRY_DEVICE_CUDA_CUDA_WHISPER_H
#define SPRY_DEVICE_CUDA_CUDA_WHISPER_H

#include "device/cuda/cuda_state.h"
#include "device/whisper_device.h"
#include "platform/cuda_driver.h"

/* Like spry_cuda_device_open. */
spry_status spry_cuda_whisper_open(spry_whisper_device **out, const spry_cuda *driver, const void *const *images,
                                   int index, const spry_whisper_setup *setup, spry_error *error);

/* Whisper's layers are layers of the block that language models run (cuda_block.c): layer norms, heads without RoPE,
 * feed-forward without a gate. So the state is a spry_cuda_device, whose config, pages and rows change between the
 * three kinds of attention. */

/* Encoder self-attention, decoder self-attention, decoder cross-attention. */
typedef enum spry_cuda_view_kind { SPRY_VIEW_SOUND, SPRY_VIEW_TEXT, SPRY_VIEW_CROSS, SPRY_VIEWS } spry_cuda_view_kind;

/* The pages of one kind of attention. Page i holds tokens 32 i to 32 i + 31; the last page of CROSS receives rows that
 * are never read. */
typedef struct spry_cuda_view {
    spry_kv_pool pool; /* sizes of the pages */
    spry_cuda_memory pages;
    spry_cuda_attention attention;
    uint32_t n_heads, head_dim;
    size_t n_tokens; /* maximum */
    size_t n_chunks;
} spry_cuda_view;

typedef struct spry_cuda_whisper {
    spry_whisper_device device;
    spry_cuda_device gpu;                /* layers: the encoder's, the decoder's, the decoder's cross-attention */
    const spry_whisper_weights *weights; /* on the host */
    spry_config config;
    bool *none; /* [layers], all false */
    spry_cuda_view views[SPRY_VIEWS];
    spry_cuda_matrix conv1, conv2;
    spry_cuda_matrix *cross_kv; /* [text layers, {k, v}] */
    spry_cuda_memory audio_positions, text_positions, audio_norm, audio_norm_bias;
    spry_cuda_memory features; /* [1 + 2 * n_audio_ctx + 1, n_bands] */
    spry_cuda_memory wide; /* [1 + 2 * n_audio_ctx + 1, n]: output of the first convolution; the first row is zeros */
    size_t rows;           /* offset of the rows in the upload; the rows of cross-attention follow */
    size_t n_states;       /* number of encoder states, which cross-attention reads */
} spry_cuda_whisper;

/* Loads the weights; bytes that they need. */
size_t spry_cuda_whisper_bytes(spry_cuda_whisper *w, const spry_ops *ops);
spry_status spry_cuda_whisper_load(spry_cuda_whisper *w, const spry_ops *ops, spry_error *error);

/* Upload and launches of a step. */
void spry_cuda_whisper_encode(spry_cuda_whisper *w, const float *features, size_t n_states);
void spry_cuda_whisper_decode(spry_cuda_whisper *w, const int32_t *tokens, size_t n_tokens, size_t past);

#endif
