/* The tables of cuda_kernels.h. */
#include "device/cuda/cuda_kernels.h"

#define K(name, threads) [name##_id] = #name,
const char *const spry_cuda_kernel_names[SPRY_KERNEL_COUNT] = {SPRY_KERNELS};
#undef K

#define K(name, threads) [name##_id] = (threads),
const uint16_t spry_cuda_kernel_threads[SPRY_KERNEL_COUNT] = {SPRY_KERNELS};
#undef K

/* ---- weights ----------------------------------------------------------------------------------------------------- */

#define SPLITK(T, small)                                                                                               \
    .embed = spry_embed_##T##_id,                                                                                      \
    .splitk = {spry_gemm_splitk_##T##_1_1_id, spry_gemm_splitk_##T##_2_1_id, spry_gemm_splitk_##T##_4_1_id,            \
               spry_gemm_splitk_##T##_2_2_id, spry_gemm_splitk_##T##_4_4_id, small}
#define FUSED(T)                                                                                                       \
    .tiles = spry_gemm_tiles_##T##_id,                                                                                 \
    .gemv = {spry_gemv_##T##_norm_id, spry_gemv_##T##_gate_id, spry_gemv_##T##_out_id},                                \
    .small = {spry_gemm_small_##T##_norm_2_id, spry_gemm_small_##T##_norm_4_id, spry_gemm_small_##T##_gate_4_id,       \
              spry_gemm_small_##T##_gate_8_id, spry_gemm_small_##T##_out_8_id}
#define WGMMA(T)                                                                                                       \
    .wgmma = {{spry_gemm_wgmma_##T##_8_1_2_id, spry_gemm_wgmma_##T##_16_2_1_id},                                       \
              {spry_gemm_wgmma_gate_##T##_8_1_2_id, spry_gemm_wgmma_gate_##T##_16_2_1_id}}

/* Bytes of the planes of weight_tiles.cuh, for 16 outputs by 64 inputs. */
#define QUANT(T, dtype, bits, zero, group, scale_bytes, min, super_plane, kind)                                        \
    [SPRY_##dtype] = {                                                                                                 \
        .repack = spry_repack_##T##_id,                                                                                \
        .format = SPRY_ACT_BF16,                                                                                       \
        .values = bits < 8 ? 512 : 1024,                                                                               \
        .high = bits < 8 ? (bits - 4) * 128 : 0,                                                                       \
        .scale = scale_bytes * SPRY_TILE_ROWS,                                                                         \
        .super = super_plane * 4 * SPRY_TILE_ROWS,                                                                     \
        SPLITK(T, SPRY_NO_KERNEL),                                                                                     \
        .large = {spry_gemm_wide_##T##_1_id, spry_gemm_wide_##T##_2_id},                                               \
        FUSED(T),                                                                                                      \
        WGMMA(T),                                                                                                      \
    },
#define LEVEL_SCALE(T, form, bits, zero, group, scale_bytes, ...) LEVEL_SCALE_##T = (scale_bytes),
enum { SPRY_LEVEL_FORMS(LEVEL_SCALE) };
#define LEVELS(T, dtype, form)                                                                                         \
    [SPRY_##dtype] = {                                                                                                 \
        .repack = spry_repack_##T##_id,                                                                                \
        .format = SPRY_ACT_BF16,                                                                                       \
        .values = 512,                                                                                                 \
        .scale = LEVEL_SCALE_##form * SPRY_TILE_ROWS,                                                                  \
        .super = 4 * SPRY_TILE_ROWS,                                                                                   \
        SPLITK(form, SPRY_NO_KERNEL),                                                                                  \
        .large = {spry_gemm_wide_##form##_1_id, spry_gemm_wide_##form##_2_id},                                         \
        FUSED(form),                                                                                                   \
        WGMMA(form),                                                                                                   \
    },
#define HALF(T, dtype, terms, act_format, lane)                                                                        \
    [SPRY_##dtype] = {                                                                                                 \
        .repack = spry_repack_##T##_id,                                                                                \
        .format = act_format,                                                                                          \
        .values = lane * 4 * SPRY_WARP,                                                                                \
        SPLITK(T, spry_gemm_splitk_##T##_1_1_small_id),                                                                \
        .large = {spry_gemm_multistage_##T##_id, spry_gemm_multistage_##T##_id},                                       \
        FUSED(T),                                                                                                      \
        WGMMA(T),                                                                                                      \
    },

const spry_weight_type spry_cuda_weight_types[SPRY_DTYPE_COUNT] = {
    SPRY_QUANT_BLOCKS(QUANT) SPRY_LEVEL_TYPES(LEVELS)
        SPRY_HALF_TYPES(HALF)[SPRY_F32] = {.format = SPRY_ACT_BF16X3,
                                           .values = 32 * 4 * SPRY_WARP,
                                           .repack = spry_repack_f32_id,
                                           SPLITK(f32, SPRY_NO_KERNEL),
                                           .large = {spry_gemm_plain_f32_id, spry_gemm_plain_f32_id}},
};

/* ---- KV pages and heads ------------------------------------------------------------------------------------------ */

#define KV(T, dtype)                                                                                                   \
    [SPRY_##dtype] = {                                                                                                 \
        .rope_kv = spry_rope_kv_##T##_id,                                                                              \
        .conv_store = spry_conv_store_##T##_id,                                                                        \
        .convolve = spry_convolve_##T##_id,                                                                            \
        .mla_rope_kv = spry_mla_rope_kv_##T##_id,                                                                      \
        .mla_split_kv = spry_mla_split_kv_##T##_id,                                                                    \
        .mla_prefill = spry_mla_prefill_##T##_id,                                                                      \
        .split_kv = {spry_attend_split_kv_##T##_1_id, spry_attend_split_kv_##T##_2_id,                                 \
                     spry_attend_split_kv_##T##_4_id, spry_attend_split_kv_##T##_8_id,                                 \
                     spry_attend_split_kv_##T##_16_id},                                                                \
        .prefill = {spry_attend_prefill_##T##_1_id, spry_attend_prefill_##T##_2_id, spry_attend_prefill_##T##_4_id,    \
                    spry_attend_prefill_##T##_8_id, spry_attend_prefill_##T##_16_id},                                  \
    },
const spry_kv_kernels spry_cuda_kv_kernels[SPRY_DTYPE_COUNT] = {SPRY_KV_TYPES(KV)};

#define HEADS(blocks, wgmma)                                                                                           \
    [blocks] = {spry_attend_split_kv_mma_##blocks##_id, spry_attend_prefill_mma_##blocks##_id, wgmma,                  \
                spry_attend_decode_##blocks##_id}
const spry_head_kernels spry_cuda_head_kernels[SPRY_HEAD_BLOCKS] = {
    HEADS(1, SPRY_NO_KERNEL), HEADS(2, spry_attend_prefill_wgmma_2_id), HEADS(3, spry_attend_prefill_wgmma_3_id),
    HEADS(4, spry_attend_prefill_wgmma_4_id), HEADS(8, SPRY_NO_KERNEL)};

#define FULL_HEADS(heads, blocks)                                                                                      \
    {                                                                                                                  \
        spry_rope_kv_##heads##_##blocks##_id,                                                                          \
        {                                                                                                              \
            spry_attend_decode_##heads##_short_##blocks##_id, spry_attend_decode_##heads##_single_##blocks##_id,       \
                spry_attend_decode_##heads##_long_##blocks##_id                                                        \
        }                                                                                                              \
    }
const spry_full_head_kernels spry_cuda_full_head_kernels[SPRY_FULL_HEADS][2] = {
    [SPRY_HEADS_NORM] = {FULL_HEADS(norm, 2), FULL_HEADS(norm, 4)},
    [SPRY_HEADS_RAW] = {FULL_HEADS(raw, 2), FULL_HEADS(raw, 4)},
    [SPRY_HEADS_PAIRS] = {FULL_HEADS(pairs, 2), FULL_HEADS(pairs, 4)},
};
