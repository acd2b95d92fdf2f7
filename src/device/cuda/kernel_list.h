/* Every kernel and every weight type of the GPU, as data for host and device. A kernel is one line K(name, threads) of
 * the lists below: the device takes its launch bounds from it (`name_threads`), the host its number (`name_id`), its
 * name for the driver and the threads of its blocks (cuda_kernels.c). So nothing is written twice, and no kernel is
 * looked up by a name that is put together at run time.
 *
 * docs/HOW_TO_ADD.md says how to add a weight type or a KV type. */
#ifndef SPRY_DEVICE_CUDA_KERNEL_LIST_H
#define SPRY_DEVICE_CUDA_KERNEL_LIST_H

#include "base/kv_types.h"
#include "device/cuda/kernel_args.h"
#include "kernels/blocks.h"

/* ---- weight types ------------------------------------------------------------------------------------------------ */

/* Quantised types and the forms in which weights are stored: kernels/blocks.h. Types of KV pages: base/kv_types.h.
 * Floats: X(name, dtype, bf16 terms of a weight and of an activation, activation format, bytes of a lane for 16
 * inputs). */
#define SPRY_HALF_TYPES(X)                                                                                             \
    X(f16, F16, 2, SPRY_ACT_BF16X2, 16)                                                                                \
    X(bf16, BF16, 1, SPRY_ACT_BF16, 16)
#define SPRY_FLOAT_TYPES(X)                                                                                            \
    SPRY_HALF_TYPES(X)                                                                                                 \
    X(f32, F32, 3, SPRY_ACT_BF16X3, 32)

/* Quantised types with a repacking kernel for their blocks, and all quantised forms with kernels for products. */
#define SPRY_QUANT_BLOCKS(X)                                                                                           \
    SPRY_QUANT_TYPES(X)                                                                                                \
    SPRY_QUANT_TYPES_CUDA(X)
#define SPRY_QUANT_FORMS(X)                                                                                            \
    SPRY_QUANT_BLOCKS(X)                                                                                               \
    SPRY_LEVEL_FORMS(X)

/* ---- kernels ----------------------------------------------------------------------------------------------------- */

/* Kernels of each type of a file, of each weight type, of each quantised type, of F16 and BF16, and of all types but
 * F32. */
#define SPRY_REPACK_KERNELS(T, ...) K(spry_repack_##T, SPRY_WARP)
#define SPRY_WEIGHT_KERNELS(T, ...)                                                                                    \
    K(spry_embed_##T, SPRY_ROW_THREADS)                                                                                \
    K(spry_gemm_splitk_##T##_1_1, SPRY_SPLITK_THREADS)                                                                 \
    K(spry_gemm_splitk_##T##_2_1, SPRY_SPLITK_THREADS)                                                                 \
    K(spry_gemm_splitk_##T##_4_1, SPRY_SPLITK_THREADS)                                                                 \
    K(spry_gemm_splitk_##T##_2_2, SPRY_SPLITK_THREADS)                                                                 \
    K(spry_gemm_splitk_##T##_4_4, SPRY_SPLITK_THREADS)
#define SPRY_QUANT_KERNELS(T, ...)                                                                                     \
    K(spry_gemm_wide_##T##_1, SPRY_WIDE_THREADS)                                                                       \
    K(spry_gemm_wide_##T##_2, SPRY_WIDE_THREADS)
#define SPRY_HALF_KERNELS(T, ...)                                                                                      \
    K(spry_gemm_splitk_##T##_1_1_small, SPRY_SPLITK_THREADS)                                                           \
    K(spry_gemm_multistage_##T, SPRY_MULTISTAGE_THREADS)
#define SPRY_FUSED_KERNELS(T, ...)                                                                                     \
    K(spry_gemm_tiles_##T, SPRY_PLAIN_THREADS)                                                                         \
    K(spry_gemv_##T##_norm, SPRY_SPLITK_THREADS)                                                                       \
    K(spry_gemv_##T##_gate, SPRY_SPLITK_THREADS)                                                                       \
    K(spry_gemv_##T##_out, SPRY_SPLITK_THREADS)                                                                        \
    K(spry_gemm_small_##T##_norm_2, SPRY_SPLITK_THREADS)                                                               \
    K(spry_gemm_small_##T##_norm_4, SPRY_SPLITK_THREADS)                                                               \
    K(spry_gemm_small_##T##_gate_4, SPRY_SPLITK_THREADS)                                                               \
    K(spry_gemm_small_##T##_gate_8, SPRY_SPLITK_THREADS)                                                               \
    K(spry_gemm_small_##T##_out_8, SPRY_SPLITK_THREADS)                                                                \
    K(spry_gemm_wgmma_##T##_8_1_2, SPRY_WGMMA_THREADS)                                                                 \
    K(spry_gemm_wgmma_##T##_16_2_1, SPRY_WGMMA_THREADS_2)                                                              \
    K(spry_gemm_wgmma_gate_##T##_8_1_2, SPRY_WGMMA_THREADS)                                                            \
    K(spry_gemm_wgmma_gate_##T##_16_2_1, SPRY_WGMMA_THREADS_2)

/* Kernels of each type of KV pages; the last number is the values of a head per lane. */
#define SPRY_KV_KERNELS(T, ...)                                                                                        \
    K(spry_rope_kv_##T, SPRY_ROPE_KV_THREADS)                                                                          \
    K(spry_conv_store_##T, SPRY_ROPE_KV_THREADS)                                                                       \
    K(spry_convolve_##T, SPRY_ROPE_KV_THREADS)                                                                         \
    K(spry_mla_rope_kv_##T, SPRY_ROPE_KV_THREADS)                                                                      \
    K(spry_mla_split_kv_##T, SPRY_MLA_THREADS)                                                                         \
    K(spry_mla_prefill_##T, SPRY_MLA_THREADS)                                                                          \
    K(spry_attend_split_kv_##T##_1, SPRY_SIMT_THREADS)                                                                 \
    K(spry_attend_split_kv_##T##_2, SPRY_SIMT_THREADS)                                                                 \
    K(spry_attend_split_kv_##T##_4, SPRY_SIMT_THREADS)                                                                 \
    K(spry_attend_split_kv_##T##_8, SPRY_SIMT_THREADS)                                                                 \
    K(spry_attend_split_kv_##T##_16, SPRY_SIMT_THREADS)                                                                \
    K(spry_attend_prefill_##T##_1, SPRY_SIMT_THREADS)                                                                  \
    K(spry_attend_prefill_##T##_2, SPRY_SIMT_THREADS)                                                                  \
    K(spry_attend_prefill_##T##_4, SPRY_SIMT_THREADS)                                                                  \
    K(spry_attend_prefill_##T##_8, SPRY_SIMT_THREADS)                                                                  \
    K(spry_attend_prefill_##T##_16, SPRY_SIMT_THREADS)

/* Kernels of a head size over F16 pages; `blocks` is the head size / 32. */
#define SPRY_HEAD_KERNELS(blocks)                                                                                      \
    K(spry_attend_split_kv_mma_##blocks, SPRY_HEAD_WARPS(blocks) * SPRY_WARP)                                          \
    K(spry_attend_prefill_mma_##blocks, SPRY_HEAD_WARPS(blocks) * SPRY_WARP)                                           \
    K(spry_attend_decode_##blocks, SPRY_HEAD_WARPS(blocks) * SPRY_WARP)
#define SPRY_FULL_HEAD_KERNELS(heads, blocks)                                                                          \
    K(spry_rope_kv_##heads##_##blocks, SPRY_ROPE_KV_THREADS)                                                           \
    K(spry_attend_decode_##heads##_short_##blocks, SPRY_HEAD_WARPS(blocks) * SPRY_WARP)                                \
    K(spry_attend_decode_##heads##_single_##blocks, SPRY_HEAD_WARPS(blocks) * SPRY_WARP)                               \
    K(spry_attend_decode_##heads##_long_##blocks, SPRY_HEAD_WARPS(blocks) * SPRY_WARP)

/* All of them; K is defined where the list is used. */
#define SPRY_KERNELS                                                                                                   \
    SPRY_FLOAT_TYPES(SPRY_REPACK_KERNELS)                                                                              \
    SPRY_QUANT_BLOCKS(SPRY_REPACK_KERNELS)                                                                             \
    SPRY_LEVEL_TYPES(SPRY_REPACK_KERNELS)                                                                              \
    SPRY_FLOAT_TYPES(SPRY_WEIGHT_KERNELS)                                                                              \
    SPRY_QUANT_FORMS(SPRY_WEIGHT_KERNELS)                                                                              \
    SPRY_QUANT_FORMS(SPRY_QUANT_KERNELS)                                                                               \
    SPRY_HALF_TYPES(SPRY_HALF_KERNELS)                                                                                 \
    SPRY_HALF_TYPES(SPRY_FUSED_KERNELS)                                                                                \
    SPRY_QUANT_FORMS(SPRY_FUSED_KERNELS)                                                                               \
    K(spry_gemm_plain_f32, SPRY_PLAIN_THREADS)                                                                         \
    SPRY_KV_TYPES(SPRY_KV_KERNELS)                                                                                     \
    SPRY_HEAD_KERNELS(1)                                                                                               \
    SPRY_HEAD_KERNELS(2)                                                                                               \
    SPRY_HEAD_KERNELS(3)                                                                                               \
    SPRY_HEAD_KERNELS(4)                                                                                               \
    SPRY_HEAD_KERNELS(8)                                                                                               \
    SPRY_FULL_HEAD_KERNELS(norm, 2)                                                                                    \
    SPRY_FULL_HEAD_KERNELS(norm, 4)                                                                                    \
    SPRY_FULL_HEAD_KERNELS(raw, 2)                                                                                     \
    SPRY_FULL_HEAD_KERNELS(raw, 4)                                                                                     \
    SPRY_FULL_HEAD_KERNELS(pairs, 2)                                                                                   \
    SPRY_FULL_HEAD_KERNELS(pairs, 4)                                                                                   \
    K(spry_attend_prefill_wgmma_2, SPRY_PREFILL_WGMMA_THREADS)                                                         \
    K(spry_attend_prefill_wgmma_3, SPRY_PREFILL_WGMMA_THREADS)                                                         \
    K(spry_attend_prefill_wgmma_4, SPRY_PREFILL_WGMMA_THREADS)                                                         \
    K(spry_attend_combine, SPRY_COMBINE_THREADS)                                                                       \
    K(spry_attend_combine_pages, SPRY_COMBINE_THREADS)                                                                 \
    K(spry_attend_combine_prefill, SPRY_COMBINE_THREADS)                                                               \
    K(spry_quantise, SPRY_QUANTISE_THREADS)                                                                            \
    K(spry_quantise_wgmma, SPRY_QUANTISE_WGMMA_UNITS *SPRY_WARP)                                                       \
    K(spry_residual, SPRY_ROW_THREADS)                                                                                 \
    K(spry_scale_rows, SPRY_ROW_THREADS)                                                                               \
    K(spry_limit_rows, SPRY_ROW_THREADS)                                                                               \
    K(spry_gate_rows, SPRY_ROW_THREADS)                                                                                \
    K(spry_norm, SPRY_ROW_THREADS)                                                                                     \
    K(spry_softcap, SPRY_ROW_THREADS)                                                                                  \
    K(spry_rope_angles, SPRY_ROW_THREADS)                                                                              \
    K(spry_positions, SPRY_ROW_THREADS)                                                                                \
    K(spry_feed_tokens, SPRY_FEED_THREADS)                                                                             \
    K(spry_moe_route, SPRY_WARP)                                                                                       \
    K(spry_moe_group, SPRY_ROW_THREADS)                                                                                \
    K(spry_moe_scale, SPRY_ROW_THREADS)                                                                                \
    K(spry_moe_combine, SPRY_ROW_THREADS)                                                                              \
    K(spry_lora_shrink, SPRY_LORA_THREADS)                                                                             \
    K(spry_lora_expand, SPRY_LORA_THREADS)                                                                             \
    K(spry_mla_slots, SPRY_MLA_THREADS)                                                                                \
    K(spry_mla_join, SPRY_MLA_THREADS)                                                                                 \
    K(spry_delta_gates, SPRY_DELTA_ROW_THREADS)                                                                        \
    K(spry_delta_keep, SPRY_DELTA_ROW_THREADS)                                                                         \
    K(spry_delta_32, SPRY_DELTA_THREADS)                                                                               \
    K(spry_delta_64, SPRY_DELTA_THREADS)                                                                               \
    K(spry_delta_128, SPRY_DELTA_THREADS)                                                                              \
    K(spry_delta_256, SPRY_DELTA_THREADS)                                                                              \
    K(spry_copy_heads, SPRY_HEADS_THREADS)                                                                             \
    K(spry_gate_heads, SPRY_HEADS_THREADS)                                                                             \
    K(spry_cool, SPRY_ROW_THREADS)                                                                                     \
    K(spry_layer_inputs, SPRY_ROW_THREADS)                                                                             \
    K(spry_streams_begin, SPRY_ROW_THREADS)                                                                            \
    K(spry_streams_end, SPRY_ROW_THREADS)                                                                              \
    K(spry_streams_predict, SPRY_ROW_THREADS)                                                                          \
    K(spry_streams_correct, SPRY_ROW_THREADS)                                                                          \
    K(spry_streams_add, SPRY_ROW_THREADS)                                                                              \
    K(spry_laurel, SPRY_ROW_THREADS)                                                                                   \
    K(spry_sparsify, SPRY_ROW_THREADS)                                                                                 \
    K(spry_draw_scan, SPRY_SCAN_THREADS)                                                                               \
    K(spry_draw_tokens, SPRY_DRAW_THREADS)

#define K(name, threads) name##_id,
typedef enum spry_kernel_id { SPRY_NO_KERNEL, SPRY_KERNELS SPRY_KERNEL_COUNT } spry_kernel_id;
#undef K

#define K(name, threads) name##_threads = threads,
enum spry_kernel_threads { SPRY_KERNELS };
#undef K

#endif
