/* A Whisper checkpoint: sizes, weights in the layout that kernels need, and the bytes of its tokens. It comes from a
 * Hugging Face folder or from a ggml file of whisper.cpp. Files are untrusted: every size is checked before it is
 * used. */
#ifndef SPRY_MODEL_WHISPER_WEIGHTS_H
#define SPRY_MODEL_WHISPER_WEIGHTS_H

#include "base/buffer.h"
#include "formats/tensor.h"
#include "kernels/ops.h"
#include "platform/file.h"
#include "platform/threads.h"

enum { SPRY_WHISPER_SECONDS = 30 }; /* seconds of sound in one window */

typedef struct spry_whisper_shape {
    uint32_t n_vocab, n_bands;
    uint32_t n_audio_ctx, n_audio_state, n_audio_heads, n_audio_layers;
    uint32_t n_text_ctx, n_text_state, n_text_heads, n_text_layers;
} spry_whisper_shape;

/* [n_out, n_in], in the layout of its type's kernel. */
typedef struct spry_voice_matrix {
    spry_dtype type;
    size_t n_out, n_in, stride;
    const unsigned char *data;
    const float *bias; /* [n_out] or NULL */
} spry_voice_matrix;

typedef struct spry_voice_norm {
    const float *weight, *bias;
} spry_voice_norm;

typedef struct spry_whisper_attention {
    spry_voice_norm norm;
    spry_voice_matrix q, k, v, o;
} spry_whisper_attention;

typedef struct spry_whisper_layer {
    spry_whisper_attention self, cross; /* an encoder's layer has no cross attention */
    spry_voice_norm norm;
    spry_voice_matrix up, down;
} spry_whisper_layer;

typedef struct spry_whisper_weights {
    spry_whisper_shape shape;
    spry_voice_matrix conv1, conv2; /* [n_out, 3 * n_in]: the three taps follow each other */
    const float *audio_positions;   /* [n_audio_ctx, n_audio_state] */
    const float *text_positions;    /* [n_text_ctx, n_text_state] */
    spry_whisper_layer *audio, *text;
    spry_voice_norm audio_norm, text_norm;
    spry_voice_matrix tokens; /* [n_vocab, n_text_state]: embedding and output */
    spry_view *token_bytes;   /* [n_token_bytes]; the tokens after these are control tokens */
    size_t n_token_bytes;     /* 0: the checkpoint has no tokenizer */
    spry_dtype kv_type;       /* F32 if the weights are F32, otherwise F16 */
    spry_arena arena;         /* everything above, except matrices in file layout */
    spry_mapping mapping;     /* the mapped ggml file */
    struct spry_safetensors *files;
} spry_whisper_weights;

/* `type`: matrices whose rows are whole blocks of this type are converted to it; SPRY_DTYPE_COUNT: none is. On failure
 * everything is closed again. */
spry_status spry_whisper_weights_open(spry_whisper_weights *weights, const char *path, const spry_ops *ops,
                                      spry_dtype type, spry_error *error);
void spry_whisper_weights_close(spry_whisper_weights *weights);

/* Reads a row of a matrix as floats. */
void spry_voice_matrix_row(float *out, const spry_ops *ops, const spry_voice_matrix *matrix, size_t row,
                           unsigned char *scratch);

/* ---- shared by the files that read Whisper checkpoints ----------------------------------------------------------- */

/* The directory of a ggml file. */
typedef struct spry_whisper_bin {
    spry_whisper_shape shape;
    spry_tensor *tensors; /* names as in OpenAI's checkpoints */
    size_t n_tensors;
    spry_view *token_bytes;
    size_t n_token_bytes;
} spry_whisper_bin;

/* Checks sizes that every checkpoint must have: positive, bounded, states divisible by heads. */
spry_status spry_whisper_shape_check(const spry_whisper_shape *shape, const char *path, spry_error *error);

#endif
