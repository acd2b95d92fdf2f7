/* Integer matrix products for NEON: groups of 8 outputs (packed.h), two vectors; a tile of up to 4 rows. With dot
 * products one sdot multiplies four adjacent weights of 4 outputs by four of 16 loaded activations; without them they
 * are added in 16 bits, as many as cannot overflow, and then in 32. Levels of 4, 5 and 6 bits fit in signed bytes;
 * their zero points are the initial value of a dot. All of this is exact; the only rounding is one conversion and one
 * fused addition per block, in block order, the same for any tile, with and without dot products.
 *
 * A block of 32 is processed in two halves of 16: 16 weights of 8 outputs and the dots and sums of 4 rows fill 32
 * registers. */
#include <arm_neon.h>
#include <string.h>

#include "kernels/grids.h"
#include "kernels/ops.h"
#include "kernels/packed.h"

enum { GROUP = 8, INT_TILE_ROWS = 4, INT_ROW_BLOCK = 32, QUAD_BYTES = 4 * GROUP };

/* One value per output of a group. */
typedef struct eight {
    float32x4_t half[2];
} eight;

typedef struct eight_int {
    int32x4_t half[2];
} eight_int;

/* 16 weights of 8 outputs, in quads of four adjacent values: [i][0] has outputs 0 to 3, [i][1] outputs 4 to 7. */
typedef int8x16_t quads[4][2];

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

/* Scales of MXFP4: spry_half_e8m0_bits of 8 bytes. */
static inline eight exponents(const unsigned char *p)
{
    uint32_t bits[8];
    for (int i = 0; i < 8; i++)
        bits[i] = spry_half_e8m0_bits(p[i]);
    return (eight){{vreinterpretq_f32_u32(vld1q_u32(bits)), vreinterpretq_f32_u32(vld1q_u32(bits + 4))}};
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

static inline eight_int all_int(int32_t x)
{
    return (eight_int){{vdupq_n_s32(x), vdupq_n_s32(x)}};
}

static inline eight to_floats(eight_int x)
{
    return (eight){{vcvtq_f32_s32(x.half[0]), vcvtq_f32_s32(x.half[1])}};
}

static inline uint8x16_t load_quad(const unsigned char *p, int q, int h)
{
    return vld1q_u8(p + QUAD_BYTES * q + 16 * h);
}

/* 16 in each byte whose bit is set in a mask of 16 bits. */
static inline uint8x16_t fifth_bits(const unsigned char *mask)
{
    static const uint8_t bits[16] = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
    uint8x16_t both = vcombine_u8(vld1_dup_u8(mask), vld1_dup_u8(mask + 1));
    return vandq_u8(vtstq_u8(both, vld1q_u8(bits)), vdupq_n_u8(16));
}

#if defined(__ARM_FEATURE_DOTPROD)
SPRY_INLINE int32x4_t dot_quads(int32x4_t dot, const quads w, int h, int8x16_t values, spry_dtype type)
{
    (void)type;
    dot = vdotq_laneq_s32(dot, w[0][h], values, 0);
    dot = vdotq_laneq_s32(dot, w[1][h], values, 1);
    dot = vdotq_laneq_s32(dot, w[2][h], values, 2);
    return vdotq_laneq_s32(dot, w[3][h], values, 3);
}
#else
/* Sums of two products of bytes fit in 16 bits, sums of four if levels are below 64. */
SPRY_INLINE int32x4_t dot_quads(int32x4_t dot, const quads w, int h, int8x16_t values, spry_dtype type)
{
    const int fit = type == SPRY_Q8_0 || type == SPRY_IQ4_NL || type == SPRY_IQ4_XS ? 2 : 4;
    int32x4_t all = vreinterpretq_s32_s8(values), low = vdupq_n_s32(0), high = low;
    int8x16_t four[4] = {vreinterpretq_s8_s32(vdupq_laneq_s32(all, 0)), vreinterpretq_s8_s32(vdupq_laneq_s32(all, 1)),
                         vreinterpretq_s8_s32(vdupq_laneq_s32(all, 2)), vreinterpretq_s8_s32(vdupq_laneq_s32(all, 3))};
    for (int q = 0; q < 4; q += fit) {
        int16x8_t first = vmull_s8(vget_low_s8(w[q][h]), vget_low_s8(four[q]));
        int16x8_t second = vmull_high_s8(w[q][h], four[q]);
        for (int i = q + 1; i < q + fit; i++) {
            first = vmlal_s8(first, vget_low_s8(w[i][h]), vget_low_s8(four[i]));
            second = vmlal_high_s8(second, w[i][h], four[i]);
        }
        low = vpadalq_s16(low, first);
        high = vpadalq_s16(high, second);
    }
    return vaddq_s32(dot, vpaddq_s32(low, high));
}
#endif

/* Adds the products of the weights and the first or second half of a block of each row's activations. */
SPRY_INLINE void add_dots(eight_int dot[INT_TILE_ROWS], spry_dtype type, const quads w,
                          const spry_act_block *const act[], size_t b, int second, int n_rows)
{
    for (int r = 0; r < n_rows; r++) {
        int8x16_t values = vld1q_s8(act[r][b].values + 16 * second);
        dot[r].half[0] = dot_quads(dot[r].half[0], w, 0, values, type);
        dot[r].half[1] = dot_quads(dot[r].half[1], w, 1, values, type);
    }
}

/* Starts the dots of types with a zero point, which is 8 * eights. */
SPRY_INLINE void start_dots(eight_int dot[INT_TILE_ROWS], const spry_act_block *const act[], size_t b, int n_rows,
                            int eights)
{
    for (int r = 0; r < n_rows; r++)
        dot[r] = all_int(act[r][b].minus_8_sum * eights);
}

SPRY_INLINE void scale_dots(eight sum[INT_TILE_ROWS], const eight_int dot[INT_TILE_ROWS], eight scale,
                            const spry_act_block *const act[], size_t b, int n_rows)
{
    for (int r = 0; r < n_rows; r++)
        sum[r] = fma_all(to_floats(dot[r]), mul_one(scale, act[r][b].scale), sum[r]);
}

SPRY_INLINE void add_minima(eight sum[INT_TILE_ROWS], eight min, const spry_act_block *const act[], size_t b,
                            int n_rows)
{
    for (int r = 0; r < n_rows; r++)
        sum[r] = fma_one(min, act[r][b].scaled_sum, sum[r]);
}

SPRY_INLINE void load_small(quads w, spry_dtype type, const unsigned char *masks, const unsigned char *levels,
                            int second)
{
    for (int q = 0; q < 4; q++)
        for (int h = 0; h < 2; h++) {
            uint8x16_t level;
            if (type == SPRY_Q8_0) {
                level = veorq_u8(load_quad(levels, q + 4 * second, h), vdupq_n_u8(0x80));
            } else {
                uint8x16_t both = load_quad(levels, q, h);
                level = second ? vshrq_n_u8(both, 4) : vandq_u8(both, vdupq_n_u8(15));
            }
            if (type == SPRY_Q5_0 || type == SPRY_Q5_1)
                level = vorrq_u8(level, fifth_bits(masks + 4 * (q + 4 * second) + 2 * h));
            w[q][h] = vreinterpretq_s8_u8(level);
            if (type == SPRY_IQ4_NL || type == SPRY_IQ4_XS || type == SPRY_MXFP4)
                w[q][h] = vqtbl1q_s8(vld1q_s8(type == SPRY_MXFP4 ? spry_levels_e2m1 : spry_levels_iq4), level);
        }
}

SPRY_INLINE void small_blocks(eight sum[INT_TILE_ROWS], spry_dtype type, const unsigned char *p,
                              const spry_act_block *const act[], size_t n_in, int n_rows)
{
    bool min = type == SPRY_Q4_1 || type == SPRY_Q5_1, fifth = type == SPRY_Q5_0 || type == SPRY_Q5_1;
    size_t masks = min ? 4 * GROUP : type == SPRY_MXFP4 ? GROUP : 2 * GROUP, levels = fifth ? masks + 4 * GROUP : masks;
    for (size_t b = 0; b < n_in / 32; b++, p += spry_packed_row_bytes(type) * GROUP) {
        eight_int dot[INT_TILE_ROWS];
        start_dots(dot, act, b, n_rows, type == SPRY_Q4_0 ? 1 : type == SPRY_Q5_0 ? 2 : 0);
        for (int second = 0; second < 2; second++) {
            quads w;
            load_small(w, type, p + masks, p + levels, second);
            add_dots(dot, type, w, act, b, second, n_rows);
        }
        scale_dots(sum, dot, type == SPRY_MXFP4 ? exponents(p) : halves(p), act, b, n_rows);
        if (min)
            add_minima(sum, halves(p + 2 * GROUP), act, b, n_rows);
    }
}

/* Loads half of block s of the eight blocks in Q4_K and Q5_K. */
SPRY_INLINE void load_k45(quads w, spry_dtype type, const unsigned char *high, size_t s, int second)
{
    const unsigned char *low = (type == SPRY_Q5_K ? high + 8 * QUAD_BYTES : high) + s / 2 * (8 * QUAD_BYTES);
    for (int q = 0; q < 4; q++)
        for (int h = 0; h < 2; h++) {
            uint8x16_t both = load_quad(low, q + 4 * second, h);
            uint8x16_t level = s % 2 ? vshrq_n_u8(both, 4) : vandq_u8(both, vdupq_n_u8(15));
            if (type == SPRY_Q5_K) {
                uint8x16_t set = vtstq_u8(load_quad(high, q + 4 * second, h), vdupq_n_u8((uint8_t)(1u << s)));
                level = vorrq_u8(level, vandq_u8(set, vdupq_n_u8(16)));
            }
            w[q][h] = vreinterpretq_s8_u8(level);
        }
}

SPRY_INLINE void k45_blocks(eight sum[INT_TILE_ROWS], spry_dtype type, const unsigned char *p,
                            const spry_act_block *const act[], size_t n_in, int n_rows)
{
    for (size_t b = 0; b < n_in / 32; b += 8, p += spry_packed_row_bytes(type) * GROUP) {
        eight scale = halves(p), min = mul_one(halves(p + 2 * GROUP), -1);
        const unsigned char *scales = p + 4 * GROUP, *minima = scales + 8 * GROUP, *levels = minima + 8 * GROUP;
        for (size_t s = 0; s < 8; s++) {
            eight_int dot[INT_TILE_ROWS];
            start_dots(dot, act, b + s, n_rows, 0);
            for (int second = 0; second < 2; second++) {
                quads w;
                load_k45(w, type, levels, s, second);
                add_dots(dot, type, w, act, b + s, second, n_rows);
            }
            scale_dots(sum, dot, mul(scale, bytes_u8(scales + s * GROUP)), act, b + s, n_rows);
            add_minima(sum, mul(min, bytes_u8(minima + s * GROUP)), act, b + s, n_rows);
        }
    }
}

/* Loads half of block s of the eight blocks in Q6_K. Within 128 values, blocks 0 and 1 are in the low nibbles, 2 and 3
 * in the high ones; each has two bits of `high`. */
SPRY_INLINE void load_q6(quads w, const unsigned char *p, size_t s, int second)
{
    const unsigned char *high = p + s / 4 * (24 * QUAD_BYTES), *low = high + (1 + s % 2) * QUAD_BYTES;
    int8x16_t shift = vdupq_n_s8((int8_t)(4 - 2 * (int)(s % 4)));
    for (int q = 0; q < 4; q++)
        for (int h = 0; h < 2; h++) {
            uint8x16_t both = load_quad(low, 3 * (q + 4 * second), h);
            uint8x16_t two = load_quad(high, 3 * (q + 4 * second), h);
            uint8x16_t nibble = s % 4 < 2 ? vandq_u8(both, vdupq_n_u8(15)) : vshrq_n_u8(both, 4);
            uint8x16_t bits = vandq_u8(vshlq_u8(two, shift), vdupq_n_u8(0x30));
            w[q][h] = vreinterpretq_s8_u8(vorrq_u8(nibble, bits));
        }
}

/* Loads half of block s of eight blocks with two bits per value: 128 values in 8 quads. */
SPRY_INLINE void load_pairs(quads w, const unsigned char *low, size_t s, int second)
{
    int8x16_t shift = vdupq_n_s8((int8_t)(-2 * (int)(s % 4)));
    for (int q = 0; q < 4; q++)
        for (int h = 0; h < 2; h++) {
            uint8x16_t four = load_quad(low + s / 4 * (8 * QUAD_BYTES), q + 4 * second, h);
            w[q][h] = vreinterpretq_s8_u8(vandq_u8(vshlq_u8(four, shift), vdupq_n_u8(3)));
        }
}

/* Loads half of block s of the eight blocks in Q3_K. */
SPRY_INLINE void load_q3(quads w, const unsigned char *p, size_t s, int second)
{
    int8x16_t shift = vdupq_n_s8((int8_t)(s > 5 ? -(int)s : -3 * (int)(s % 2)));
    for (int q = 0; q < 4; q++)
        for (int h = 0; h < 2; h++) {
            const unsigned char *three = p + 3 * (q + 4 * second) * QUAD_BYTES;
            uint8x16_t level = vshlq_u8(load_quad(three, s > 5 ? 2 : (int)(s / 2), h), shift);
            level = vandq_u8(level, vdupq_n_u8(s > 5 ? 1 : 7));
            if (s > 5)
                level = vorrq_u8(level, vandq_u8(vshrq_n_u8(load_quad(three, (int)s - 6, h), 5), vdupq_n_u8(6)));
            w[q][h] = vreinterpretq_s8_u8(level);
        }
}

/* Types with eight blocks of 32 under one scale; in IQ4_XS each block also has a factor. TQ1_0 and TQ2_0 have a zero
 * point of 1. */
SPRY_INLINE void level_blocks(eight sum[INT_TILE_ROWS], spry_dtype type, const unsigned char *p,
                              const spry_act_block *const act[], size_t n_in, int n_rows)
{
    bool factors = type == SPRY_IQ4_XS;
    for (size_t b = 0; b < n_in / 32; b += 8, p += spry_packed_row_bytes(type) * GROUP) {
        eight scale = halves(p);
        const unsigned char *scales = p + 2 * GROUP, *low = factors ? scales + 8 * GROUP : scales;
        for (size_t s = 0; s < 8; s++) {
            eight_int dot[INT_TILE_ROWS];
            for (int r = 0; r < n_rows; r++)
                dot[r] = all_int(factors ? 0 : act[r][b + s].minus_8_sum / 8);
            for (int second = 0; second < 2; second++) {
                quads w;
                if (factors)
                    load_small(w, type, NULL, low + s * (4 * QUAD_BYTES), second);
                else
                    load_pairs(w, low, s, second);
                add_dots(dot, type, w, act, b + s, second, n_rows);
            }
            scale_dots(sum, dot, factors ? mul(scale, bytes_i8(scales + s * GROUP)) : scale, act, b + s, n_rows);
        }
    }
}

/* Loads half of block s of the eight blocks in a type with a scale for every 16 values. */
SPRY_INLINE void load_sixteen(quads w, spry_dtype type, const unsigned char *p, size_t s, int second)
{
    if (type == SPRY_Q6_K)
        load_q6(w, p, s, second);
    else if (type == SPRY_Q3_K)
        load_q3(w, p, s, second);
    else
        load_pairs(w, p, s, second);
}

/* The dots of such a half block. The zero point is 32 in Q6_K and 4 in Q3_K. */
SPRY_INLINE void dot_sixteen(eight dot[INT_TILE_ROWS], spry_dtype type, const unsigned char *p, size_t s,
                             const spry_act_block *const act[], size_t b, int second, int n_rows)
{
    eight_int whole[INT_TILE_ROWS];
    quads w;
    int zero = type == SPRY_Q6_K ? 32 : type == SPRY_Q3_K ? 4 : 0;
    for (int r = 0; r < n_rows; r++)
        whole[r] = all_int(-zero * act[r][b].half_sum[second]);
    load_sixteen(w, type, p, s, second);
    add_dots(whole, type, w, act, b, second, n_rows);
    for (int r = 0; r < n_rows; r++)
        dot[r] = to_floats(whole[r]);
}

/* Q2_K: each byte has a scale in its low nibble and a minimum in its high nibble. */
SPRY_INLINE eight sixteen_min(eight min, const unsigned char *bytes)
{
    uint8_t upper[GROUP];
    vst1_u8(upper, vshr_n_u8(vld1_u8(bytes), 4));
    return mul(min, bytes_u8(upper));
}

SPRY_INLINE eight sixteen_scale(spry_dtype type, eight scale, const unsigned char *bytes)
{
    uint8_t lower[GROUP];
    vst1_u8(lower, vand_u8(vld1_u8(bytes), vdup_n_u8(15)));
    return mul(scale, type == SPRY_Q2_K ? bytes_u8(lower) : bytes_i8(bytes));
}

/* The product for types with a scale for every 16 values. */
SPRY_INLINE void sixteen_blocks(eight sum[INT_TILE_ROWS], spry_dtype type, const unsigned char *p,
                                const spry_act_block *const act[], size_t n_in, int n_rows)
{
    for (size_t b = 0; b < n_in / 32; b += 8, p += spry_packed_row_bytes(type) * GROUP) {
        eight scale = halves(p), min = mul_one(halves(p + 2 * GROUP), -1);
        const unsigned char *scales = p + (type == SPRY_Q2_K ? 4 : 2) * GROUP, *levels = scales + 16 * GROUP;
        for (size_t s = 0; s < 8; s++, scales += 2 * GROUP) {
            eight one[INT_TILE_ROWS], two[INT_TILE_ROWS];
            eight first = sixteen_scale(type, scale, scales), second = sixteen_scale(type, scale, scales + GROUP);
            dot_sixteen(one, type, levels, s, act, b + s, 0, n_rows);
            dot_sixteen(two, type, levels, s, act, b + s, 1, n_rows);
            for (int r = 0; r < n_rows; r++)
                two[r] = fma_all(two[r], second, mul(one[r], first));
            for (int k = 0; type == SPRY_Q2_K && k < 2; k++)
                for (int r = 0; r < n_rows; r++)
                    two[r] = fma_one(sixteen_min(min, scales + k * GROUP), act[r][b + s].half_sum[k], two[r]);
            for (int r = 0; r < n_rows; r++)
                sum[r] = fma_one(two[r], act[r][b + s].scale, sum[r]);
        }
    }
}

/* Names that simd_integers.h needs; a group is two vectors. */
typedef eight int_sum;

static inline int_sum int_zero(void)
{
    return (int_sum){{vdupq_n_f32(0), vdupq_n_f32(0)}};
}

static inline void int_store(float *out, int_sum sum, size_t n_out)
{
    float part[GROUP], *whole = n_out == GROUP ? out : part;
    v_store(whole, sum.half[0]);
    v_store(whole + LANES, sum.half[1]);
    if (n_out < GROUP)
        memcpy(out, part, n_out * sizeof *out);
}
