/* Choice of kernels for Vulkan. All products of a type have the same order of sums, so the choice changes no bit. */
#include "device/vulkan/vulkan_device.h"

spry_gemm_launch spry_vulkan_pick_gemm(const spry_gemm_args *args, spry_dtype type)
{
    enum { MANY = 64, FEW = 32 }; /* rows of a workgroup of gemm.comp; up to this many are read by gemv.comp */
    static const struct {
        uint32_t rows;
        spry_splitk_variant variant;
    } gemv[] = {{1, SPRY_SPLITK_1_1}, {2, SPRY_SPLITK_2_1}, {4, SPRY_SPLITK_4_1}, {8, SPRY_SPLITK_2_2}};
    const spry_weight_type *t = &spry_cuda_weight_types[type];
    uint32_t most = args->experts ? args->expert_rows : args->n_rows;
    if (most > FEW)
        return (spry_gemm_launch){.kernel = t->splitk[SPRY_SPLITK_4_4], .rows = MANY, .tiles = MANY / SPRY_TILE_ROWS};
    size_t i = 0;
    while (i + 1 < SPRY_COUNT(gemv) && gemv[i].rows < most)
        i++;
    return (spry_gemm_launch){.kernel = t->splitk[gemv[i].variant], .rows = gemv[i].rows, .tiles = 1};
}

/* The kernels of attention.comp: a workgroup has one page and four queries, or in prefill all pages and 16 queries;
 * four where heads are larger than 256. */
spry_cuda_attention spry_vulkan_attention_of(uint32_t head_dim, spry_dtype type)
{
    enum { QUERIES = 4, PREFILL = 4 };
    size_t index = 0;
    while (((size_t)32 << index) < head_dim && index < 4)
        index++;
    return (spry_cuda_attention){.split_kv = spry_cuda_kv_kernels[type].split_kv[index],
                                 .prefill = spry_cuda_kv_kernels[type].prefill[index],
                                 .combine = spry_attend_combine_id,
                                 .chunk_pages = 1,
                                 .warps = 1,
                                 .prefill_warps = PREFILL,
                                 .queries = QUERIES,
                                 .parts = 1};
}
