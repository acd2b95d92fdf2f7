/* Gemma 3n: residual streams (AltUp), per-layer inputs, the low-rank branch beside attention (LAuReL) and sparse
 * gates; the formulas are in kernel_args.h. Grid: one block per row, 256 threads. */
#include "device/cuda/kernel_args.h"
#include "device/cuda/kernels/activations.cuh"

SPRY_KERNEL(spry_layer_inputs, spry_layer_inputs_args)
{
    uint64_t at = ((uint64_t)blockIdx.x * a.n_layers + blockIdx.y) * a.n;
    float *in = a.in + at, sum = 0;
    for (uint32_t i = threadIdx.x; i < a.n; i += SPRY_ROW_THREADS)
        sum = fmaf(in[i] * a.scale, in[i] * a.scale, sum);
    row_norm norm = {0, 1.0f / sqrtf(block_sum(sum) / (float)a.n + a.eps)};
    for (uint32_t i = threadIdx.x; i < a.n; i += SPRY_ROW_THREADS)
        in[i] = (normalised(in[i] * a.scale, norm, a.weight, (const float *)0, i) + a.table[at + i]) * a.last_scale;
}

/* Mean square of a row. */
SPRY_DEVICE float mean_square(const float *x, uint32_t n)
{
    float sum = 0;
    for (uint32_t i = threadIdx.x; i < n; i += SPRY_ROW_THREADS)
        sum = fmaf(x[i], x[i], sum);
    return block_sum(sum) / (float)n;
}

/* The factor that gives a row of mean square `own` the magnitude of one of mean square `like`. */
SPRY_DEVICE float matching(float own, float like)
{
    return sqrtf(like) / sqrtf(fmaxf(own, 1e-5f));
}

SPRY_KERNEL(spry_streams_begin, spry_streams_args)
{
    uint64_t row = (uint64_t)blockIdx.x * a.n;
    float like = mean_square(a.x + row, a.n);
    for (uint32_t k = 0; k < a.n_streams; k++) {
        float *stream = a.streams + k * a.step + row;
        float factor = k ? matching(mean_square(stream, a.n), like) : 1;
        for (uint32_t i = threadIdx.x; i < a.n; i += SPRY_ROW_THREADS)
            stream[i] = k ? stream[i] * factor : a.x[row + i];
    }
}

SPRY_KERNEL(spry_streams_end, spry_streams_args)
{
    uint64_t row = (uint64_t)blockIdx.x * a.n;
    const float *first = a.streams + row;
    float like = mean_square(first, a.n), factors[SPRY_STREAMS_MAX];
    for (uint32_t k = 1; k < a.n_streams; k++)
        factors[k] = matching(mean_square(a.others + k * a.step + row, a.n), like);
    for (uint32_t i = threadIdx.x; i < a.n; i += SPRY_ROW_THREADS) {
        float sum = first[i];
        for (uint32_t k = 1; k < a.n_streams; k++)
            sum += a.others[k * a.step + row + i] * factors[k];
        a.x[row + i] = sum * (1.0f / (float)a.n_streams);
    }
}

/* Multiplies `count` lists of coefficients by the row's modalities. */
SPRY_DEVICE void make_mix(float *mix, const spry_streams_mix_args &a, uint32_t count)
{
    for (uint32_t i = threadIdx.x; i < count; i += SPRY_ROW_THREADS) {
        float sum = 0;
        for (uint32_t m = 0; m < a.n_streams; m++)
            sum = fmaf(a.coefficients[i * a.n_streams + m],
                       tanhf(a.modality[(uint64_t)blockIdx.x * a.n_streams + m] * a.scale), sum);
        mix[i] = sum;
    }
    syncthreads();
}

SPRY_KERNEL(spry_streams_predict, spry_streams_mix_args)
{
    SPRY_SMEM float mix[SPRY_STREAMS_MAX * SPRY_STREAMS_MAX];
    uint64_t row = (uint64_t)blockIdx.x * a.n;
    make_mix(mix, a, a.n_streams * a.n_streams);
    for (uint32_t i = threadIdx.x; i < a.n; i += SPRY_ROW_THREADS)
        for (uint32_t k = 0; k < a.n_streams; k++) {
            float sum = a.streams[k * a.step + row + i];
            for (uint32_t j = 0; j < a.n_streams; j++)
                sum = fmaf(a.streams[j * a.step + row + i], mix[k * a.n_streams + j], sum);
            a.predicted[k * a.step + row + i] = sum;
            if (k == a.active)
                a.x[row + i] = sum;
        }
}

SPRY_KERNEL(spry_streams_correct, spry_streams_mix_args)
{
    SPRY_SMEM float mix[SPRY_STREAMS_MAX];
    uint64_t row = (uint64_t)blockIdx.x * a.n;
    make_mix(mix, a, a.n_streams);
    for (uint32_t i = threadIdx.x; i < a.n; i += SPRY_ROW_THREADS) {
        float change = a.x[row + i] - a.predicted[a.active * a.step + row + i];
        for (uint32_t k = 0; k < a.n_streams; k++) {
            float value = fmaf(change, mix[k] + 1, a.predicted[k * a.step + row + i]);
            a.streams[k * a.step + row + i] = value;
            if (k == a.active)
                a.y[row + i] = value * a.output_scale[i];
        }
    }
}

SPRY_KERNEL(spry_streams_add, spry_streams_add_args)
{
    uint64_t row = (uint64_t)blockIdx.x * a.n;
    row_norm norm = norm_of(a.y + row, a.n, a.eps, 0);
    for (uint32_t i = threadIdx.x; i < a.n; i += SPRY_ROW_THREADS) {
        float value = normalised(a.y[row + i], norm, a.weight, (const float *)0, i);
        for (uint32_t k = 1; k < a.n_streams; k++)
            a.streams[k * a.step + row + i] += value;
    }
}

SPRY_KERNEL(spry_laurel, spry_laurel_args)
{
    uint64_t row = (uint64_t)blockIdx.x * a.n;
    float *x = a.x + row;
    const float *y = a.y + row, *low = a.low + row, *none = (const float *)0;
    row_norm x_norm = norm_of(x, a.n, a.eps, 0), y_norm = norm_of(y, a.n, a.eps, 0);
    row_norm low_norm = norm_of(low, a.n, a.eps, 0);
    for (uint32_t i = threadIdx.x; i < a.n; i += SPRY_ROW_THREADS) {
        float beside =
            normalised(low[i], low_norm, a.low_weight, none, i) + normalised(x[i], x_norm, a.x_weight, none, i);
        x[i] = (x[i] + normalised(y[i], y_norm, a.y_weight, none, i) + beside) * a.scale;
    }
}

SPRY_KERNEL(spry_sparsify, spry_sparsify_args)
{
    float *x = a.x + (uint64_t)blockIdx.x * a.n, sum = 0, squares = 0;
    for (uint32_t i = threadIdx.x; i < a.n; i += SPRY_ROW_THREADS)
        sum += x[i];
    float mean = block_sum(sum) / (float)a.n;
    for (uint32_t i = threadIdx.x; i < a.n; i += SPRY_ROW_THREADS)
        squares = fmaf(x[i] - mean, x[i] - mean, squares);
    float least = fmaf(sqrtf(block_sum(squares) / (float)a.n), a.times, mean);
    for (uint32_t i = threadIdx.x; i < a.n; i += SPRY_ROW_THREADS)
        x[i] = x[i] > least ? x[i] - least : x[i] == x[i] ? 0 : x[i];
}
