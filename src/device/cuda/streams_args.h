/* What the kernels of Gemma 3n's own parts are given (kernels/streams.cu). A stream is [rows, n]; streams lie `step`
 * floats apart. Everywhere a block works on a row. */
#ifndef SPRY_DEVICE_CUDA_STREAMS_ARGS_H
#define SPRY_DEVICE_CUDA_STREAMS_ARGS_H

#include "device/cuda/kernel_args.h"

enum { SPRY_STREAMS_MAX = 16 };

/* What a row's token gives to all layers: in = (norm(in * scale) + table) * last_scale. Blocks of (rows, layers). */
typedef struct spry_layer_inputs_args {
    SPRY_AT(float) in;           /* [rows, n_layers * n] */
    SPRY_AT(const float) table;  /* the same: what the token's row of the table gives */
    SPRY_AT(const float) weight; /* [n] */
    uint32_t n, n_layers;
    float scale, last_scale, eps;
} spry_layer_inputs_args;

/* Begins: stream 0 becomes x, the others get the magnitude of x. Ends: x = mean of stream 0 and the others, which get
 * its magnitude first. */
typedef struct spry_streams_args {
    SPRY_AT(float) x;            /* [rows, n] */
    SPRY_AT(float) streams;      /* when they end, of stream 0 */
    SPRY_AT(const float) others; /* when they end: the others, brought back */
    uint64_t step;
    uint32_t n, n_streams;
} spry_streams_args;

/* Mixes by tanh(modality * scale). Predicts: predicted[k] = streams[k] + sum over j of coefficients[k][j] * streams[j],
 * x = that of the active one. Corrects: streams[k] = predicted[k] + (x - predicted[active]) * (1 + coefficients[k]), y
 * = streams[active] * output_scale. */
typedef struct spry_streams_mix_args {
    SPRY_AT(float) x;
    SPRY_AT(float) y;
    SPRY_AT(float) streams;
    SPRY_AT(float) predicted;
    SPRY_AT(const float) modality;     /* [rows, n_streams] */
    SPRY_AT(const float) coefficients; /* [n_streams * n_streams, n_streams], or to correct [n_streams, n_streams] */
    SPRY_AT(const float) output_scale; /* [n] */
    uint64_t step;
    uint32_t n, n_streams, active;
    float scale;
} spry_streams_mix_args;

/* All streams but the first += norm(y). */
typedef struct spry_streams_add_args {
    SPRY_AT(float) streams;
    SPRY_AT(const float) y;
    SPRY_AT(const float) weight;
    uint64_t step;
    uint32_t n, n_streams;
    float eps;
} spry_streams_add_args;

/* What attention and the low-rank path beside it give: x = (x + norm(y) + norm(x) + norm(low)) * scale. */
typedef struct spry_laurel_args {
    SPRY_AT(float) x;
    SPRY_AT(const float) y;
    SPRY_AT(const float) low;
    SPRY_AT(const float) x_weight;
    SPRY_AT(const float) y_weight;
    SPRY_AT(const float) low_weight;
    uint32_t n;
    float scale, eps;
} spry_laurel_args;

/* Values below mean + times * deviation of their row become 0, the others what they have above it. */
typedef struct spry_sparsify_args {
    SPRY_AT(float) x;
    uint32_t n;
    float times;
} spry_sparsify_args;

#endif
