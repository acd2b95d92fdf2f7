/* Integer matrix products for NEON with dot products: groups of 8 outputs (packed.h), two vectors; a tile of up to 4
 * rows. One sdot multiplies four neighbouring weights of 4 outputs by four of the 16 activations that one load brought.
 * Levels of 4, 5 and 6 bits are small enough to pass as signed; their zero points come in as the number a sum starts
 * with. All exact; the only rounding is one conversion and one fused addition per block, in the order of blocks, the
 * same for any tile. */
#include <arm_neon.h>

#include "kernels/ops.h"
#include "kernels/packed.h"

enum { GROUP = 8, INT_TILE_ROWS = 4, INT_ROW_BLOCK = 32, QUAD_BYTES = 4 * GROUP };

/* One number of each output of a group. */
typedef struct eight {
    float32x4_t half[2];
} eight;

/* 32 weights of 8 outputs: quad * scale + min. */
typedef struct wblock {
    int8x16_t quad[8][2];
    eight scale, min;
} wblock;

static inline eight halves(const unsigned char *p)
{
    float16x8_t x = vreinterpretq_f16_u8(vld1q_u8(p));
    return (eight){{vcvt_f32_f16(vget_low_f16(x)), vcvt_high_f32_f16(x)}};
}

static inline eight bytes_u8(const unsigned char *p)
{
    uint16x8_t x = vmovl_u8(vld1_u8(p));
    return (eight){{vcvtq_f32_u32(vmovl_u16(vget_low_u16(x))), vcvtq_f32_u32(vmovl_high_u16(x))}};
}

static inline eight bytes_i8(const unsigned char *p)
{
    int16x8_t x = vmovl_s8(vreinterpret_s8_u8(vld1_u8(p)));
    return (eight){{vcvtq_f32_s32(vmovl_s16(vget_low_s16(x))), vcvtq_f32_s32(vmovl_high_s16(x))}};
}

static inline eight mul(eight a, eight b)
{
    return (eight){{vmulq_f32(a.half[0], b.half[0]), vmulq_f32(a.half[1], b.half[1])}};
}

static inline eight mul_one(eight a, float b)
{
    return (eight){{vmulq_n_f32(a.half[0], b), vmulq_n_f32(a.half[1], b)}};
}

/* a * b + c, rounded once */
static inline eight fma_all(eight a, eight b, eight c)
{
    return (eight){{vfmaq_f32(c.half[0], a.half[0], b.half[0]), vfmaq_f32(c.half[1], a.half[1], b.half[1])}};
}

static inline eight fma_one(eight a, float b, eight c)
{
    return (eight){{vfmaq_n_f32(c.half[0], a.half[0], b), vfmaq_n_f32(c.half[1], a.half[1], b)}};
}

static inline uint8x16_t low_nibbles(uint8x16_t x)
{
    return vandq_u8(x, vdupq_n_u8(15));
}

static inline uint8x16_t high_nibbles(uint8x16_t x)
{
    return vshrq_n_u8(x, 4);
}

/* 16 in each byte whose bit is set: for quad q, outputs 4h.., of eight masks of 32 bits */
static inline uint8x16_t fifth_bits(const unsigned char *masks, int q, int h)
{
    static const uint8_t bits[16] = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
    uint8x16_t both = vcombine_u8(vld1_dup_u8(masks + 4 * q + 2 * h), vld1_dup_u8(masks + 4 * q + 2 * h + 1));
    return vandq_u8(vtstq_u8(both, vld1q_u8(bits)), vdupq_n_u8(16));
}

/* Adds the products of four quads, of outputs 4h.., with 16 activations. */
static inline int32x4_t dot_16(int32x4_t sum, const int8x16_t quad[4][2], int h, int8x16_t values)
{
    sum = vdotq_laneq_s32(sum, quad[0][h], values, 0);
    sum = vdotq_laneq_s32(sum, quad[1][h], values, 1);
    sum = vdotq_laneq_s32(sum, quad[2][h], values, 2);
    return vdotq_laneq_s32(sum, quad[3][h], values, 3);
}

/* start + the dot of 4 * n activations from `values` on with n quads */
SPRY_INLINE eight dot_quads(int32_t start, const int8x16_t quad[][2], const int8_t *values, int n)
{
    int32x4_t left = vdupq_n_s32(start), right = left;
    for (int q = 0; q < n; q += 4) {
        int8x16_t sixteen = vld1q_s8(values + 4 * q);
        left = dot_16(left, quad + q, 0, sixteen);
        right = dot_16(right, quad + q, 1, sixteen);
    }
    return (eight){{vcvtq_f32_s32(left), vcvtq_f32_s32(right)}};
}

/* Types of 32 with a zero point: 8 * eights. */
SPRY_INLINE void add_zero_point(eight sum[INT_TILE_ROWS], const wblock *w, const spry_act_block *const act[], size_t b,
                                int n_rows, int eights)
{
    for (int r = 0; r < n_rows; r++) {
        const spry_act_block *a = act[r] + b;
        eight dot = dot_quads(a->minus_8_sum * eights, w->quad, a->values, 8);
        sum[r] = fma_all(dot, mul_one(w->scale, a->scale), sum[r]);
    }
}

/* Types of 32 with a minimum. */
SPRY_INLINE void add_with_min(eight sum[INT_TILE_ROWS], const wblock *w, const spry_act_block *const act[], size_t b,
                              int n_rows)
{
    for (int r = 0; r < n_rows; r++) {
        const spry_act_block *a = act[r] + b;
        eight dot = dot_quads(0, w->quad, a->values, 8);
        sum[r] = fma_all(dot, mul_one(w->scale, a->scale), sum[r]);
        sum[r] = fma_one(w->min, a->scaled_sum, sum[r]);
    }
}

SPRY_INLINE void load_q8_0(wblock *w, const unsigned char *p)
{
    w->scale = halves(p);
    p += 2 * GROUP;
    for (int q = 0; q < 8; q++)
        for (int h = 0; h < 2; h++) {
            uint8x16_t shifted = vld1q_u8(p + QUAD_BYTES * q + 16 * h);
            w->quad[q][h] = vreinterpretq_s8_u8(veorq_u8(shifted, vdupq_n_u8(0x80)));
        }
}

SPRY_INLINE void load_small(wblock *w, spry_dtype type, const unsigned char *p)
{
    bool min = type == SPRY_Q4_1 || type == SPRY_Q5_1, fifth = type == SPRY_Q5_0 || type == SPRY_Q5_1;
    w->scale = halves(p);
    p += 2 * GROUP;
    if (min) {
        w->min = halves(p);
        p += 2 * GROUP;
    }
    const unsigned char *masks = p;
    if (fifth)
        p += 4 * GROUP;
    for (int q = 0; q < 4; q++)
        for (int h = 0; h < 2; h++) {
            uint8x16_t both = vld1q_u8(p + QUAD_BYTES * q + 16 * h);
            uint8x16_t low = low_nibbles(both), high = high_nibbles(both);
            if (fifth) {
                low = vorrq_u8(low, fifth_bits(masks, q, h));
                high = vorrq_u8(high, fifth_bits(masks, q + 4, h));
            }
            w->quad[q][h] = vreinterpretq_s8_u8(low);
            w->quad[q + 4][h] = vreinterpretq_s8_u8(high);
        }
}

SPRY_INLINE void small_blocks(eight sum[INT_TILE_ROWS], spry_dtype type, const unsigned char *p,
                              const spry_act_block *const act[], size_t n_in, int n_rows)
{
    for (size_t b = 0; b < n_in / 32; b++, p += spry_packed_row_bytes(type) * GROUP) {
        wblock w;
        if (type == SPRY_Q8_0)
            load_q8_0(&w, p);
        else
            load_small(&w, type, p);
        if (type == SPRY_Q4_1 || type == SPRY_Q5_1)
            add_with_min(sum, &w, act, b, n_rows);
        else
            add_zero_point(sum, &w, act, b, n_rows, type == SPRY_Q4_0 ? 1 : type == SPRY_Q5_0 ? 2 : 0);
    }
}

/* Block s of the eight in Q4_K and Q5_K. */
SPRY_INLINE void load_k45_quads(wblock *w, spry_dtype type, const unsigned char *low, size_t s)
{
    const unsigned char *high = low + 4 * 8 * QUAD_BYTES;
    low += s / 2 * (8 * QUAD_BYTES);
    for (int q = 0; q < 8; q++)
        for (int h = 0; h < 2; h++) {
            uint8x16_t both = vld1q_u8(low + QUAD_BYTES * q + 16 * h);
            uint8x16_t level = s % 2 ? high_nibbles(both) : low_nibbles(both);
            if (type == SPRY_Q5_K) {
                uint8x16_t fifth = vtstq_u8(vld1q_u8(high + QUAD_BYTES * q + 16 * h), vdupq_n_u8((uint8_t)(1u << s)));
                level = vorrq_u8(level, vandq_u8(fifth, vdupq_n_u8(16)));
            }
            w->quad[q][h] = vreinterpretq_s8_u8(level);
        }
}

SPRY_INLINE void k45_blocks(eight sum[INT_TILE_ROWS], spry_dtype type, const unsigned char *p,
                            const spry_act_block *const act[], size_t n_in, int n_rows)
{
    for (size_t b = 0; b < n_in / 32; b += 8, p += spry_packed_row_bytes(type) * GROUP) {
        eight scale = halves(p), min = mul_one(halves(p + 2 * GROUP), -1);
        const unsigned char *scales = p + 4 * GROUP, *minima = scales + 8 * GROUP, *low = minima + 8 * GROUP;
        for (size_t s = 0; s < 8; s++) {
            wblock w = {.scale = mul(scale, bytes_u8(scales + s * GROUP)),
                        .min = mul(min, bytes_u8(minima + s * GROUP))};
            load_k45_quads(&w, type, low, s);
            add_with_min(sum, &w, act, b + s, n_rows);
        }
    }
}

/* Block s of the eight in Q6_K. Within a half of 128: blocks 0 and 1 in the low nibbles, 2 and 3 in the high ones; two
 * bits each of `high`. */
SPRY_INLINE void load_q6_quads(int8x16_t quad[8][2], const unsigned char *p, size_t s)
{
    const unsigned char *half = p + s / 4 * (24 * QUAD_BYTES), *low = half + s % 2 * (8 * QUAD_BYTES);
    const unsigned char *high = half + 16 * QUAD_BYTES;
    int8x16_t shift = vdupq_n_s8((int8_t)(4 - 2 * (int)(s % 4)));
    for (int q = 0; q < 8; q++)
        for (int h = 0; h < 2; h++) {
            uint8x16_t both = vld1q_u8(low + QUAD_BYTES * q + 16 * h), two = vld1q_u8(high + QUAD_BYTES * q + 16 * h);
            uint8x16_t nibble = s % 4 < 2 ? low_nibbles(both) : high_nibbles(both);
            uint8x16_t bits = vandq_u8(vshlq_u8(two, shift), vdupq_n_u8(0x30));
            quad[q][h] = vreinterpretq_s8_u8(vorrq_u8(nibble, bits));
        }
}

/* Q6_K scales every 16 values: two dots a block, zero point 32. */
SPRY_INLINE void add_q6(eight sum[INT_TILE_ROWS], const int8x16_t quad[8][2], eight first, eight second,
                        const spry_act_block *const act[], size_t b, int n_rows)
{
    for (int r = 0; r < n_rows; r++) {
        const spry_act_block *a = act[r] + b;
        eight one = dot_quads(-32 * a->half_sum[0], quad, a->values, 4);
        eight two = dot_quads(-32 * a->half_sum[1], quad + 4, a->values + 16, 4);
        sum[r] = fma_one(fma_all(two, second, mul(one, first)), a->scale, sum[r]);
    }
}

SPRY_INLINE void q6_blocks(eight sum[INT_TILE_ROWS], const unsigned char *p, const spry_act_block *const act[],
                           size_t n_in, int n_rows)
{
    for (size_t b = 0; b < n_in / 32; b += 8, p += spry_packed_row_bytes(SPRY_Q6_K) * GROUP) {
        eight scale = halves(p);
        const unsigned char *scales = p + 2 * GROUP;
        for (size_t s = 0; s < 8; s++) {
            int8x16_t quad[8][2];
            load_q6_quads(quad, scales + 16 * GROUP, s);
            add_q6(sum, quad, mul(scale, bytes_i8(scales + 2 * s * GROUP)),
                   mul(scale, bytes_i8(scales + (2 * s + 1) * GROUP)), act, b + s, n_rows);
        }
    }
}

/* For simd_integers.h: a group is two vectors. */
typedef eight int_sum;

static inline int_sum int_zero(void)
{
    return (int_sum){{vdupq_n_f32(0), vdupq_n_f32(0)}};
}

static inline void int_store(float *out, int_sum sum, size_t n_out)
{
    float all[GROUP];
    v_store(all, sum.half[0]);
    v_store(all + LANES, sum.half[1]);
    memcpy(out, all, n_out * sizeof *out);
}

SPRY_INLINE void int_blocks(int_sum sum[INT_TILE_ROWS], spry_dtype type, const unsigned char *p,
                            const spry_act_block *const act[], size_t n_in, int n_rows)
{
    if (type == SPRY_Q6_K)
        q6_blocks(sum, p, act, n_in, n_rows);
    else if (type == SPRY_Q4_K || type == SPRY_Q5_K)
        k45_blocks(sum, type, p, act, n_in, n_rows);
    else
        small_blocks(sum, type, p, act, n_in, n_rows);
}
