/* The table of kernels, and pipelines with their cache. */
#include "device/vulkan/vulkan_kernels.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "base/buffer.h"
#include "base/dtype.h"
#include "device/cuda/kernel_list.h"
#include "device/vulkan/vulkan_gpu.h"
#include "platform/directory.h"
#include "platform/environment.h"

/* ---- the table --------------------------------------------------------------------------------------------------- */

#define IMAGES(X)                                                                                                      \
    X(attention)                                                                                                       \
    X(combine)                                                                                                         \
    X(draw_scan)                                                                                                       \
    X(draw_tokens)                                                                                                     \
    X(embed)                                                                                                           \
    X(feed)                                                                                                            \
    X(gemm)                                                                                                            \
    X(gemv)                                                                                                            \
    X(moe_combine)                                                                                                     \
    X(moe_group)                                                                                                       \
    X(moe_route)                                                                                                       \
    X(norm)                                                                                                            \
    X(quantise)                                                                                                        \
    X(repack)                                                                                                          \
    X(residual)                                                                                                        \
    X(rope_angles)                                                                                                     \
    X(rope_kv)                                                                                                         \
    X(softcap)
#define DECLARE(name) extern const uint32_t spry_vulkan_image_##name[], spry_vulkan_image_##name##_end[];
IMAGES(DECLARE)

#define ENTRY(kernel, image_name, args, ...)                                                                           \
    {.name = #kernel,                                                                                                  \
     .image = spry_vulkan_image_##image_name,                                                                          \
     .image_end = spry_vulkan_image_##image_name##_end,                                                                \
     .args_bytes = sizeof(args),                                                                                       \
     .constants = {__VA_ARGS__}},

/* Constants of a weight type: bits of a quant (0: floats), the quant that means 0, values with a common scale, bytes of
 * scales for 64 values, minima, second scales, 4-bit floats; bytes of a float. */
#define TYPE_KERNELS(T, ...)                                                                                           \
    ENTRY(spry_repack_##T, repack, spry_repack_args, __VA_ARGS__)                                                      \
    ENTRY(spry_embed_##T, embed, spry_embed_args, __VA_ARGS__)                                                         \
    ENTRY(spry_gemm_splitk_##T##_1_1, gemv, spry_gemm_args, __VA_ARGS__, 1)                                            \
    ENTRY(spry_gemm_splitk_##T##_2_1, gemv, spry_gemm_args, __VA_ARGS__, 2)                                            \
    ENTRY(spry_gemm_splitk_##T##_4_1, gemv, spry_gemm_args, __VA_ARGS__, 4)                                            \
    ENTRY(spry_gemm_splitk_##T##_2_2, gemv, spry_gemm_args, __VA_ARGS__, 8)                                            \
    ENTRY(spry_gemm_splitk_##T##_4_4, gemm, spry_gemm_args, __VA_ARGS__)
#define QUANT_KERNELS(T, dtype, bits, zero, group, scale, min, super, floats)                                          \
    TYPE_KERNELS(T, bits, zero, group, scale, min, super, floats, 0)

/* Types of KV pages: bytes of a float, 1: q8_0. Attention: those, queries of a workgroup, coordinates of a thread,
 * whether it is prefill. */
enum { PAGES_f16 = 2, PAGES_q8_0 = 1, PAGES_f32 = 4 };
enum { SPLIT_QUERIES = 4, PREFILL_QUERIES = 16 };
#define ATTENTION(T, dims, each)                                                                                       \
    ENTRY(spry_attend_split_kv_##T##_##dims, attention, spry_attend_args, PAGES_##T, SPLIT_QUERIES, each, 0)           \
    ENTRY(spry_attend_prefill_##T##_##dims, attention, spry_attend_args, PAGES_##T,                                    \
          (each) > 2 ? PREFILL_QUERIES / 4 : PREFILL_QUERIES, each, 1)
#define KV_KERNELS(T, ...)                                                                                             \
    ENTRY(spry_rope_kv_##T, rope_kv, spry_rope_kv_args, PAGES_##T)                                                     \
    ATTENTION(T, 1, 1) ATTENTION(T, 2, 1) ATTENTION(T, 4, 1) ATTENTION(T, 8, 2) ATTENTION(T, 16, 4)

const spry_vulkan_kernel spry_vulkan_kernels[] = {
    TYPE_KERNELS(f32, 0, 0, 0, 0, 0, 0, 0, 4) TYPE_KERNELS(f16, 0, 0, 0, 0, 0, 0, 1, 2)
        TYPE_KERNELS(bf16, 0, 0, 0, 0, 0, 0, 2, 2) SPRY_QUANT_TYPES(QUANT_KERNELS) SPRY_KV_TYPES(KV_KERNELS)
            ENTRY(spry_attend_combine, combine, spry_attend_args, 0)
                ENTRY(spry_quantise, quantise, spry_quantise_args, 0)
                    ENTRY(spry_residual, residual, spry_residual_args, 0) ENTRY(spry_norm, norm, spry_norm_args, 0)
                        ENTRY(spry_softcap, softcap, spry_softcap_args, 0)
                            ENTRY(spry_rope_angles, rope_angles, spry_rope_angles_args, 0)
                                ENTRY(spry_feed_tokens, feed, spry_feed_args, 0)
                                    ENTRY(spry_moe_route, moe_route, spry_moe_route_args, 0)
                                        ENTRY(spry_moe_group, moe_group, spry_moe_group_args, 0)
                                            ENTRY(spry_moe_combine, moe_combine, spry_moe_combine_args, 0)
                                                ENTRY(spry_draw_scan, draw_scan, spry_draw_args, 0)
                                                    ENTRY(spry_draw_tokens, draw_tokens, spry_draw_args, 0)};
const size_t spry_vulkan_n_kernels = SPRY_COUNT(spry_vulkan_kernels);

/* ---- the cache on disk ------------------------------------------------------------------------------------------- */

/* A file begins with the hash of what follows. What another driver or device wrote is ignored by the driver. */
enum { CACHE_MOST = 64 << 20, CACHE_NAME = 2 * VK_UUID_SIZE + 8 };

static bool open_folder(spry_directory *folder, char name[CACHE_NAME], const spry_vk_gpu *g)
{
    spry_buffer path;
    int length = snprintf(name, CACHE_NAME, "vulkan-");
    for (size_t i = 0; i < VK_UUID_SIZE; i++)
        length += snprintf(name + length, CACHE_NAME - (size_t)length, "%02x", g->facts.uuid[i]);
    spry_buffer_init(&path, 4096);
    bool there = spry_environment_hub_folder(&path, SPRY_OWN_FOLDER) && spry_buffer_append(&path, "", 1) &&
                 !spry_directory_open(folder, path.data, NULL);
    spry_buffer_deinit(&path);
    return there;
}

/* The cache's bytes, which the caller frees; NULL: none. */
static void *read_cache(const spry_vk_gpu *g, size_t *size)
{
    spry_directory folder;
    spry_opened file;
    char name[CACHE_NAME];
    uint64_t hash = 0;
    void *data = NULL;
    *size = 0;
    if (!open_folder(&folder, name, g))
        return NULL;
    if (!spry_opened_open(&file, &folder, name)) {
        size_t bytes = file.size > sizeof hash && file.size < CACHE_MOST ? (size_t)file.size - sizeof hash : 0;
        data = bytes ? malloc(bytes) : NULL;
        struct iovec pieces[] = {{&hash, sizeof hash}, {data, bytes}};
        if (data && (spry_opened_read(&file, pieces, 2, 0) || XXH3_64bits(data, bytes) != hash)) {
            free(data);
            data = NULL;
        }
        *size = data ? bytes : 0;
        spry_opened_close(&file);
    }
    spry_directory_close(&folder);
    return data;
}

/* A cache that cannot be written costs only time. */
static void write_cache(spry_vk_gpu *g)
{
    spry_directory folder;
    char name[CACHE_NAME];
    size_t size = 0;
    void *data = NULL;
    if (g->vk.GetPipelineCacheData(g->device, g->cache, &size, NULL) || !size || !(data = malloc(size)))
        return;
    if (!g->vk.GetPipelineCacheData(g->device, g->cache, &size, data) && open_folder(&folder, name, g)) {
        uint64_t hash = XXH3_64bits(data, size);
        struct iovec pieces[] = {{&hash, sizeof hash}, {data, size}};
        spry_directory_write(&folder, name, pieces, 2);
        spry_directory_close(&folder);
    }
    free(data);
}

int spry_vk_pipelines_open(spry_vk_gpu *g)
{
    const VkPushConstantRange range = {VK_SHADER_STAGE_COMPUTE_BIT, 0, sizeof(uint64_t)};
    const VkPipelineLayoutCreateInfo layout = {.sType = VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO,
                                               .pushConstantRangeCount = 1,
                                               .pPushConstantRanges = &range};
    VkPipelineCacheCreateInfo cache = {.sType = VK_STRUCTURE_TYPE_PIPELINE_CACHE_CREATE_INFO};
    g->pipelines = calloc(spry_vulkan_n_kernels, sizeof(VkPipeline));
    if (!g->pipelines)
        return VK_ERROR_OUT_OF_HOST_MEMORY;
    void *data = read_cache(g, &cache.initialDataSize);
    cache.pInitialData = data;
    int result = g->vk.CreatePipelineCache(g->device, &cache, NULL, &g->cache);
    free(data);
    return result ? result : g->vk.CreatePipelineLayout(g->device, &layout, NULL, &g->layout);
}

void spry_vk_pipelines_close(spry_vk_gpu *g)
{
    if (g->cache_grew && !g->lost)
        write_cache(g);
    for (size_t i = 0; g->pipelines && i < spry_vulkan_n_kernels; i++)
        g->vk.DestroyPipeline(g->device, g->pipelines[i], NULL);
    g->vk.DestroyPipelineCache(g->device, g->cache, NULL);
    g->vk.DestroyPipelineLayout(g->device, g->layout, NULL);
    free(g->pipelines);
    g->pipelines = NULL;
}

/* ---- pipelines --------------------------------------------------------------------------------------------------- */

static int make_pipeline(spry_vk_gpu *g, VkPipeline *pipeline, VkShaderModule module, const spry_vulkan_kernel *kernel)
{
    enum { WISHED = 32 };
    VkSpecializationMapEntry entries[SPRY_VULKAN_CONSTANTS];
    for (uint32_t i = 0; i < SPRY_VULKAN_CONSTANTS; i++)
        entries[i] = (VkSpecializationMapEntry){i, i * (uint32_t)sizeof(uint32_t), sizeof(uint32_t)};
    uint32_t values[SPRY_VULKAN_CONSTANTS];
    memcpy(values, kernel->constants, sizeof values);
    values[SPRY_VULKAN_CONSTANTS - 1] = g->facts.import_alignment != 0; /* weights.glsl: SHARED */
    const VkSpecializationInfo constants = {SPRY_VULKAN_CONSTANTS, entries, sizeof values, values};
    const VkPipelineShaderStageRequiredSubgroupSizeCreateInfo size = {
        .sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_REQUIRED_SUBGROUP_SIZE_CREATE_INFO,
        .requiredSubgroupSize = WISHED};
    bool sized = g->facts.full_subgroups && g->facts.subgroup_min <= WISHED && g->facts.subgroup_max >= WISHED;
    const VkComputePipelineCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO,
        .stage = {.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO,
                  .pNext = sized ? &size : NULL,
                  .flags = sized ? VK_PIPELINE_SHADER_STAGE_CREATE_REQUIRE_FULL_SUBGROUPS_BIT : 0,
                  .stage = VK_SHADER_STAGE_COMPUTE_BIT,
                  .module = module,
                  .pName = "main",
                  .pSpecializationInfo = &constants},
        .layout = g->layout};
    return g->vk.CreateComputePipelines(g->device, g->cache, 1, &info, NULL, pipeline);
}

int spry_vk_pipeline(spry_vk_gpu *g, size_t number)
{
    const spry_vulkan_kernel *kernel = &spry_vulkan_kernels[number];
    VkShaderModule module;
    if (g->pipelines[number])
        return VK_SUCCESS;
    const VkShaderModuleCreateInfo info = {.sType = VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO,
                                           .codeSize =
                                               (size_t)(kernel->image_end - kernel->image) * sizeof *kernel->image,
                                           .pCode = kernel->image};
    int result = g->vk.CreateShaderModule(g->device, &info, NULL, &module);
    if (result)
        return result;
    result = make_pipeline(g, &g->pipelines[number], module, kernel);
    g->vk.DestroyShaderModule(g->device, module, NULL);
    g->cache_grew = g->cache_grew || !result;
    return result;
}
