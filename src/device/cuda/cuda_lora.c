/* LoRA adapters: GEMMs use the unchanged matrices, and the adapters' part is added afterwards. A step without adapted
 * rows launches nothing more. */
#include "device/cuda/cuda_state.h"

#include <string.h>

void spry_cuda_lora_rows(spry_cuda_device *d, const spry_segment *g, size_t first_row)
{
    size_t n = d->device.limits.n_adapters;
    float *scales = (float *)(void *)(d->upload.host + d->upload.scales) + first_row * n;
    d->adapted = d->adapted || (n && spry_adapter_scales_any(&g->adapters));
    for (size_t i = 0; n && i < g->n_rows; i++)
        memcpy(scales + i * n, g->adapters.of, n * sizeof *scales);
}

bool spry_cuda_has_lora(const spry_cuda_device *d, const spry_cuda_gemm *products, size_t n_products)
{
    bool any = false;
    for (size_t i = 0; i < n_products; i++)
        any = any || products[i].w->pairs;
    return any && d->adapted;
}

spry_cuda_memory spry_cuda_lora_input(const spry_cuda_device *d, spry_quantise_args *args)
{
    bool dense = !args->in_stride || args->in_stride == args->n;
    bool made = args->weight || args->up || args->ungated || args->source || !dense;
    if (made && !args->plain)
        args->plain = d->scratch.plain;
    return made ? args->plain : args->in;
}

/* Adds the adapters' part to at most SPRY_LORA_PARTS products, with one launch of each kernel. */
static void lora_parts(spry_cuda_device *d, const spry_cuda_rows *rows, const spry_cuda_gemm *products,
                       size_t n_products, size_t n_rows, spry_cuda_expert_groups groups)
{
    enum { WARPS = SPRY_LORA_THREADS / 32 };
    const spry_step_limits *limits = &d->device.limits;
    size_t row_blocks = (n_rows + SPRY_LORA_ROWS - 1) / SPRY_LORA_ROWS, n_out = 0;
    spry_lora_args args = {.in = rows->plain,
                           .shrunk = d->scratch.shrunk,
                           .scales = d->upload.memory + d->upload.scales,
                           .source = rows->source,
                           .experts = groups.experts,
                           .expert_rows = (uint32_t)groups.align,
                           .n_rows = (uint32_t)n_rows,
                           .n_in = products[0].w->tiles.n_in,
                           .n_adapters = limits->n_adapters,
                           .n_ranks = limits->adapter_ranks};
    for (size_t i = 0; i < n_products; i++) {
        const spry_cuda_gemm *p = &products[i];
        args.parts[i] = (spry_lora_part){
            .pairs = p->w->pairs, .out = p->out, .n_out = p->w->tiles.n_out, .stride = (uint32_t)p->stride};
        n_out = p->w->pairs && args.parts[i].n_out > n_out ? args.parts[i].n_out : n_out;
    }
    spry_cuda_launch(&d->context, spry_lora_shrink_id, (limits->adapter_ranks + WARPS - 1) / WARPS, row_blocks,
                     n_products, &args);
    spry_cuda_launch(&d->context, spry_lora_expand_id, (n_out + SPRY_LORA_THREADS - 1) / SPRY_LORA_THREADS, row_blocks,
                     n_products, &args);
}

void spry_cuda_lora(spry_cuda_device *d, const spry_cuda_rows *rows, const spry_cuda_gemm *products, size_t n_products,
                    size_t n_rows, spry_cuda_expert_groups groups)
{
    for (size_t i = 0; i < n_products; i += SPRY_LORA_PARTS) {
        size_t n = n_products - i < SPRY_LORA_PARTS ? n_products - i : SPRY_LORA_PARTS;
        if (spry_cuda_has_lora(d, products + i, n))
            lora_parts(d, rows, products + i, n, n_rows, groups);
    }
}
