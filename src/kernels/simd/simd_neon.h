/* Four floats at a time: NEON of 64-bit ARM. Memory is accessed as bytes, which need no alignment. */
#ifndef SPRY_KERNELS_SIMD_NEON_H
#define SPRY_KERNELS_SIMD_NEON_H

#include <arm_neon.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/compiler.h"

enum { LANES = 4, TILE_OUTPUTS = 4, TILE_ROWS = 4, SCORE_QUERIES = 2, VALUE_QUERIES = 4, VALUE_VECTORS = 4 };

typedef float32x4_t vec;

/* Copies the first n elements, n < LANES. Not a memcpy of n bytes: a call would spill the sums from registers. */
SPRY_INLINE void copy_part(void *out, const void *in, size_t size, size_t n)
{
    for (size_t i = 0; i < LANES - 1; i++)
        if (i < n)
            memcpy((unsigned char *)out + i * size, (const unsigned char *)in + i * size, size);
}

static inline vec v_set(float x)
{
    return vdupq_n_f32(x);
}
static inline vec v_load(const float *p)
{
    return vreinterpretq_f32_u8(vld1q_u8((const uint8_t *)p));
}
static inline vec v_load_part(const float *p, size_t n)
{
    float part[LANES] = {0};
    copy_part(part, p, sizeof *p, n);
    return v_load(part);
}
static inline void v_store(float *p, vec x)
{
    vst1q_u8((uint8_t *)p, vreinterpretq_u8_f32(x));
}
static inline void v_store_part(float *p, vec x, size_t n)
{
    float part[LANES];
    v_store(part, x);
    copy_part(p, part, sizeof *p, n);
}
static inline vec v_load_f16(const uint16_t *p)
{
    return vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8((const uint8_t *)p)));
}
static inline vec v_set_f16(uint16_t half)
{
    return vcvt_f32_f16(vreinterpret_f16_u16(vdup_n_u16(half)));
}
static inline vec v_load_f16_part(const uint16_t *p, size_t n)
{
    uint16_t part[LANES] = {0};
    copy_part(part, p, sizeof *p, n);
    return v_load_f16(part);
}
static inline void v_store_f16(void *p, vec x)
{
    vst1_u8(p, vreinterpret_u8_f16(vcvt_f16_f32(x)));
}
static inline vec v_load_bf16(const uint16_t *p)
{
    uint16x4_t narrow = vreinterpret_u16_u8(vld1_u8((const uint8_t *)p));
    return vreinterpretq_f32_u32(vshll_n_u16(narrow, 16));
}
static inline vec v_load_bf16_part(const uint16_t *p, size_t n)
{
    uint16_t part[LANES] = {0};
    copy_part(part, p, sizeof *p, n);
    return v_load_bf16(part);
}
static inline vec v_load_f8(const uint8_t *p)
{
    uint32_t four;
    memcpy(&four, p, sizeof four);
    int16x4_t wide = vget_low_s16(vmovl_s8(vreinterpret_s8_u32(vdup_n_u32(four))));
    uint16x4_t moved = vreinterpret_u16_s16(vshl_n_s16(wide, 7));
    return vcvt_f32_f16(vreinterpret_f16_u16(vbic_u16(moved, vdup_n_u16(0x4000))));
}
static inline vec v_load_i8(const int8_t *p)
{
    uint32_t four;
    memcpy(&four, p, sizeof four);
    int16x8_t wide = vmovl_s8(vreinterpret_s8_u32(vdup_n_u32(four)));
    return vcvtq_f32_s32(vmovl_s16(vget_low_s16(wide)));
}
/* The low and the high nibbles of 16 bytes, minus 8. */
static inline void v_split_nibbles(unsigned char *low, unsigned char *high, const unsigned char *from)
{
    uint8x16_t both = vld1q_u8(from), eight = vdupq_n_u8(8);
    vst1q_u8(low, vsubq_u8(vandq_u8(both, vdupq_n_u8(15)), eight));
    vst1q_u8(high, vsubq_u8(vshrq_n_u8(both, 4), eight));
}
static inline vec v_add(vec a, vec b)
{
    return vaddq_f32(a, b);
}
static inline vec v_sub(vec a, vec b)
{
    return vsubq_f32(a, b);
}
static inline vec v_mul(vec a, vec b)
{
    return vmulq_f32(a, b);
}
static inline vec v_div(vec a, vec b)
{
    return vdivq_f32(a, b);
}
static inline vec v_max(vec a, vec b)
{
    return vmaxq_f32(a, b);
}
static inline vec v_min(vec a, vec b)
{
    return vminq_f32(a, b);
}
static inline vec v_fma(vec a, vec b, vec c)
{
    return vfmaq_f32(c, a, b);
}
static inline vec v_round(vec a)
{
    return vrndnq_f32(a);
}
/* Multiplies by 2^n in two steps, because 2^n alone may be out of a float's normal range. */
static inline vec v_scale2(vec x, vec n)
{
    int32x4_t whole = vcvtnq_s32_f32(n), half = vshrq_n_s32(whole, 1), rest = vsubq_s32(whole, half);
    int32x4_t bias = vdupq_n_s32(127);
    vec first = vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(half, bias), 23));
    vec second = vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(rest, bias), 23));
    return vmulq_f32(vmulq_f32(x, first), second);
}
static inline float v_sum(vec a)
{
    return vaddvq_f32(a);
}
static inline float v_largest(vec a)
{
    return vmaxvq_f32(a);
}
static inline vec v_zero_below(vec y, vec x, vec limit)
{
    return vreinterpretq_f32_u32(vbicq_u32(vreinterpretq_u32_f32(y), vcltq_f32(x, limit)));
}
static inline vec v_select_range(vec x, vec y, int first, int begin, int end)
{
    static const int32_t lanes[LANES] = {0, 1, 2, 3};
    int32x4_t index = vaddq_s32(vdupq_n_s32(first), vld1q_s32(lanes));
    uint32x4_t inside = vandq_u32(vcgeq_s32(index, vdupq_n_s32(begin)), vcltq_s32(index, vdupq_n_s32(end)));
    return vbslq_f32(inside, x, y);
}

#endif
