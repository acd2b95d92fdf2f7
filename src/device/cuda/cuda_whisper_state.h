/* What the files of Whisper on a GPU share. Its layers are layers of the block that language models run (cuda_block.c):
 * layer norms, heads without rope, a feed-forward part without a gate. So the state is that of such a device, whose
 * config, pages and rows change between the three kinds of attention. */
#ifndef SPRY_DEVICE_CUDA_CUDA_WHISPER_STATE_H
#define SPRY_DEVICE_CUDA_CUDA_WHISPER_STATE_H

#include "device/cuda/cuda_state.h"
#include "device/whisper_device.h"

/* Of sound to itself, of tokens to the tokens before them, of tokens to sound. */
typedef enum spry_cuda_view_kind { SPRY_VIEW_SOUND, SPRY_VIEW_TEXT, SPRY_VIEW_CROSS, SPRY_VIEWS } spry_cuda_view_kind;

/* What one kind of attention works on. Page i holds keys and values 32 i to 32 i + 31; the last page of CROSS takes
 * what nothing reads. */
typedef struct spry_cuda_view {
    spry_kv_pool pool; /* sizes of its pages */
    spry_cuda_memory pages;
    spry_cuda_attention attention;
    uint32_t n_heads, head_dim;
    size_t n_tokens; /* at most */
    size_t n_chunks;
} spry_cuda_view;

typedef struct spry_cuda_whisper {
    spry_whisper_device device;
    spry_cuda_device gpu; /* its layers: those of the encoder, of the decoder, and the decoder's attention to sound */
    const spry_whisper_weights *weights; /* on the host */
    spry_config config;
    bool *none; /* [layers], no layer is any of that */
    spry_cuda_view views[SPRY_VIEWS];
    spry_cuda_matrix conv1, conv2;
    spry_cuda_matrix *cross_kv; /* [text layers, {k, v}] */
    spry_cuda_memory audio_positions, text_positions, audio_norm, audio_norm_bias;
    spry_cuda_memory features; /* [1 + 2 * n_audio_ctx + 1, n_bands] */
    spry_cuda_memory wide;     /* [1 + 2 * n_audio_ctx + 1, n]: the first convolution, zeros in the first row */
    size_t rows;               /* offset of rows in the upload; those that look at sound stand behind them */
    size_t n_states;           /* of the sound that tokens attend to */
} spry_cuda_whisper;

/* cuda_whisper_model.c: the weights to the GPU; bytes they take there. */
size_t spry_cuda_whisper_bytes(spry_cuda_whisper *w, const spry_ops *ops);
spry_status spry_cuda_whisper_load(spry_cuda_whisper *w, const spry_ops *ops, spry_error *error);

/* cuda_whisper_run.c: what a step of the device sends ahead, and launches. */
void spry_cuda_whisper_encode(spry_cuda_whisper *w, const float *features, size_t n_states);
void spry_cuda_whisper_decode(spry_cuda_whisper *w, const int32_t *tokens, size_t n_tokens, size_t past);

#endif
