/* Short convolutions as launches. */
#include <stdio.h>

#include "device/cuda/cuda_state.h"
#include "device/cuda/state_args.h"

static void launch(spry_cuda_device *d, const char *kernel, const spry_conv_args *args)
{
    char name[SPRY_CUDA_KERNEL_NAME];
    snprintf(name, sizeof name, "%s_%s", kernel, spry_cuda_type_name(d->pool->shape.type));
    spry_cuda_launch(&d->context, spry_cuda_kernel(&d->context, name),
                     (d->n_rows + SPRY_ROPE_KV_ROWS - 1) / SPRY_ROPE_KV_ROWS, args->n / args->kv.head_dim, 1,
                     SPRY_ROPE_KV_THREADS, args);
}

spry_quantise_args spry_cuda_convolution(spry_cuda_device *d, const spry_cuda_layer *l, uint32_t layer)
{
    const spry_cuda_scratch *s = &d->scratch;
    uint32_t n = d->config->n_embd;
    const spry_cuda_gemm in = {s->conv, 3 * (size_t)n, &l->conv_in};
    const spry_conv_args args = {.out = s->h,
                                 .in = s->conv,
                                 .weight = l->conv,
                                 .bias = l->conv_bias,
                                 .rows = d->upload.memory + d->upload.rows,
                                 .entries = d->upload.memory + d->upload.entries,
                                 .kv = spry_cuda_layer_pages(d, layer),
                                 .place_bytes = spry_kv_offset(d->pool, 1, 0),
                                 .n_rows = (uint32_t)d->n_rows,
                                 .n = n,
                                 .reach = d->config->n_conv};
    spry_cuda_quantise_gemms(d, spry_cuda_input(d, l->attn_norm, l->attn_norm_bias), &in, 1, d->n_rows, false);
    spry_cuda_charge_gemms(d, SPRY_OP_QKV, &in, 1, d->n_rows);
    launch(d, "spry_conv_store", &args);
    launch(d, "spry_convolve", &args);
    spry_cuda_charge(d, SPRY_OP_ATTEND, d->pool->shape.type, 0, 0);
    return (spry_quantise_args){.in = s->h, .n = n};
}
